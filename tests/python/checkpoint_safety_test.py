"""Checkpoints in DeepSpeed's layout that are damaged, mixed, cut off or cannot be written: refused by every rank, in one
sentence that names the file, and never half of two saves."""

from __future__ import annotations

import errno
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, tokens
from ranks import main, message, run

LIST = "shoal_files.json"


def make(stage: int, accumulation: int = 1):
    import deepspeed

    torch.manual_seed(0)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }
    return deepspeed.initialize(model=Net(width=6, depth=1), config=config)[0]


def train(engine, first: int, last: int) -> None:
    for step in range(first, last):
        engine.backward(engine(tokens(step, engine.global_rank)))
        engine.step()


def weights(engine) -> list:
    names = [name for name, _ in engine.module.named_parameters()]
    return [engine._shoal.read_state(name, kind).tolist() for name in names for kind in ("weight", "first_moment")]


def flip(path: Path, offset: int, bit: int) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1 << bit]))


def in_turn(world, act) -> None:
    """What rank 0 does to the files while the others wait."""
    world.barrier()
    if world.rank == 0:
        act()
    world.barrier()


def flips(folder: str, count: int) -> list:
    """What is said of a load after a bit of a file was flipped, by stage and file."""
    found = []
    chance = random.Random(5)
    for stage in (0, 2, 3):
        engine = make(stage)
        train(engine, 0, 1)
        engine.save_checkpoint(os.path.join(folder, str(stage)), tag="t")
        train(engine, 1, 2)
        before = weights(engine)
        for path in sorted(Path(folder, str(stage), "t").iterdir()):
            for _ in range(count):
                place = chance.randrange(path.stat().st_size), chance.randrange(8)
                in_turn(engine._shoal.world, lambda: flip(path, *place))
                said = message(lambda: engine.load_checkpoint(os.path.join(folder, str(stage))))
                found.append([stage, path.name, *place, said])
                in_turn(engine._shoal.world, lambda: flip(path, *place))
        assert weights(engine) == before, "a checkpoint that is refused changes nothing"
        engine.load_checkpoint(os.path.join(folder, str(stage)))
        assert weights(engine) != before
    return found


def test_no_flipped_bit_is_loaded():
    with tempfile.TemporaryDirectory() as folder:
        both = run(__file__, "flips", 2, folder=folder, count=5)
        for case, other in zip(*both, strict=True):
            stage, name, offset, bit, said = case
            assert case == other, "the ranks say the same"
            assert f"/{stage}/t/{name} " in said, f"stage {stage}, bit {bit} of byte {offset} of {name}: {said}"


def as_a_deepspeed(folder: Path) -> None:
    """Files as another program writes them: without the list and the names of saves."""
    for path in folder.glob("*.pt"):
        values = torch.load(path, weights_only=False)
        values.pop("shoal_save", None)
        torch.save(values, path)
    (folder / LIST).unlink(missing_ok=True)


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def others_files(folder: str) -> dict:
    import deepspeed

    found = {}
    for stage in (1, 3):
        engine = make(stage)
        place = Path(folder, str(stage))
        train(engine, 0, 1)
        engine.save_checkpoint(str(place), tag="a")
        train(engine, 1, 2)
        engine.save_checkpoint(str(place), tag="b")
        own = "zero_pp_rank_1_mp_rank_00_optim_states.pt"
        tags = {}

        def load(tag: str) -> str:
            return message(lambda: engine.load_checkpoint(str(place), tag=tag))

        def with_copy(tag: str, source: str, name: str, target: str | None = None) -> str:
            """What is said of a copy of a checkpoint with a file of another in it."""
            copy = place / f"{tag}-copy"

            def act() -> None:
                shutil.copytree(place / tag, copy)
                shutil.copy2(place / source / name, copy / (target or name))

            in_turn(engine._shoal.world, act)
            said = load(f"{tag}-copy")
            in_turn(engine._shoal.world, lambda: shutil.rmtree(copy))
            return said

        tags["mixed"] = with_copy("a", "b", own)
        in_turn(engine._shoal.world, lambda: [(place / tag / LIST).unlink() for tag in "ab"])
        tags["mixed, no list"] = with_copy("a", "b", own)
        tags["ranks in a wrong order"] = with_copy("a", "a", own, own.replace("rank_1", "rank_0"))
        tags["a rank too many"] = with_copy("a", "a", own, own.replace("rank_1", "rank_2"))
        tags["no list"] = load("a")
        in_turn(engine._shoal.world, lambda: [as_a_deepspeed(place / tag) for tag in "ab"])
        tags["mixed of another program"] = with_copy("a", "b", own)
        tags["a rank too many of another program"] = with_copy("a", "a", own, own.replace("rank_1", "rank_2"))
        tags["of another program"] = load("a")
        record = max(zipfile.ZipFile(place / "a" / own).infolist(), key=lambda each: each.file_size)
        in_turn(engine._shoal.world, lambda: flip(place / "a" / own, record.header_offset + 200, 3))
        tags["a flipped bit of another program"] = load("a")
        engine.save_checkpoint(str(place), tag="c")
        in_turn(engine._shoal.world, lambda: [shutil.copy2(path, place / "c") for path in (place / "b").glob("*.pt")])
        tags["written over by another program"] = load("c")
        in_turn(engine._shoal.world, lambda: [as_fifo(path) for path in (place / "c" / own, place / "latest")])
        tags["a FIFO"] = load("c")
        tags["latest is a FIFO"] = message(lambda: engine.load_checkpoint(str(place)))
        tags["the config is a FIFO"] = message(lambda: deepspeed.initialize(model=Net(), config=str(place / "latest")))
        found[stage] = tags
    return found


def test_files_of_two_saves_are_refused():
    with tempfile.TemporaryDirectory() as folder:
        both = run(__file__, "others_files", 2, folder=folder)
    assert both[0] == both[1], "the ranks say the same"
    for stage, said in both[0].items():
        for case, wanted in (
            ("mixed", "rank_1_mp_rank_00_optim_states.pt is of another save (step 2, rank 1 of 2)"),
            ("mixed, no list", "optim_states.pt is of another save (step 2, 2 ranks"),
            ("ranks in a wrong order", "zero_pp_rank_0_mp_rank_00_optim_states.pt was saved by rank 1"),
            ("a rank too many", "zero_pp_rank_2_mp_rank_00_optim_states.pt was saved by rank 1"),
            ("no list", "nothing was raised"),
            ("mixed of another program", "is of step 2 of the optimizer"),
            ("a rank too many of another program", "of the ranks [0, 1, 2]"),
            ("of another program", "nothing was raised"),
            ("a flipped bit of another program", "optim_states.pt is damaged: its record"),
            ("written over by another program", "nothing was raised"),
            ("a FIFO", "optim_states.pt is not a regular file"),
            ("latest is a FIFO", "latest is a FIFO, not a regular file"),
            ("the config is a FIFO", "latest is a FIFO, not a regular file"),
        ):
            assert wanted in said[case], (stage, case, said[case])


def failing_saves(folder: str) -> dict:
    """What is said when one rank cannot save, what is left, and whether the run goes on."""
    found = {}
    engine = make(3)
    train(engine, 0, 1)
    engine.save_checkpoint(folder, tag="t")
    Path(folder, "t", "layer_0_expert_0_mp_rank_00_model_states.pt").write_text("a user's")
    saved = weights(engine)
    train(engine, 1, 2)
    second = engine.global_rank == 1
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)

    def attempt(case: str, tag: str = "t", **others) -> None:
        found[case] = message(lambda: engine.save_checkpoint(folder, tag=tag, **others))
        engine._shoal.world.barrier()
        found[f"{case}, left"] = sorted(name for name in os.listdir(folder) if name not in ("t", "latest", "zero_to_fp32.py"))

    attempt("pickle", client_state={"call": (lambda: 0)} if second else {})
    if second:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, limit[1]))
    attempt("full")
    resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    attempt("no folder", tag="latest")
    attempt("no tag", tag=".")
    loss = engine(tokens(2, engine.global_rank))
    attempt("pass")
    engine.backward(loss)
    engine.step()
    now = weights(engine)
    engine.load_checkpoint(folder)
    found["kept"] = weights(engine) == saved
    train(engine, 1, 3)
    found["goes on"] = weights(engine) == now
    engine.save_checkpoint(folder, tag=7, save_latest=False)
    found["files"] = sorted(os.listdir(os.path.join(folder, "7")))
    found["latest"] = Path(folder, "latest").read_text()
    return found


def save_smaller(folder: str) -> list:
    engine = make(3)
    engine.load_checkpoint(folder)
    engine.save_checkpoint(folder, tag="t")
    engine.load_checkpoint(folder)
    return sorted(os.listdir(os.path.join(folder, "t")))


def test_what_one_rank_cannot_save_fails_on_all():
    with tempfile.TemporaryDirectory() as folder:
        every = run(__file__, "failing_saves", 3, folder=folder)
        for found in every:
            assert found == every[0]
            for case, wanted in (
                ("pickle", "rank 1: "),
                ("full", "File too large"),
                ("no folder", "is there and is no folder"),
                ("no tag", "names no folder of its own"),
                ("pass", "a pass is open: its forward ran and its backward did not"),
            ):
                assert wanted in found[case] and found[f"{case}, left"] == [], (case, found[case], found[f"{case}, left"])
            assert found["kept"] and found["goes on"] and found["latest"] == "t"
            assert [name for name in found["files"] if "rank_2" in name] and LIST in found["files"]
        # By fewer ranks: their files alone, and what somebody else put there.
        for names in run(__file__, "save_smaller", 2, folder=folder):
            assert not [name for name in names if "rank_2" in name] and len(names) == 6, names
            assert Path(folder, "t", "layer_0_expert_0_mp_rank_00_model_states.pt").read_text() == "a user's"


def killed_saves(folder: str) -> list:
    """Forks that save again under one tag and are killed at each of their calls that change the disk: which state each left."""
    from shoal import _core

    from deepspeed.runtime import checkpoint_folder

    engine = make(2)
    train(engine, 0, 1)
    engine.save_checkpoint(folder, tag="t")
    states = [weights(engine)]
    train(engine, 1, 2)
    states.append(weights(engine))
    found = []
    for moment in range(100):
        child = os.fork()
        if child == 0:
            left = iter(range(moment))

            def dying(call):
                def wrapped(*args, **kwargs):
                    if next(left, None) is None:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return call(*args, **kwargs)

                return wrapped

            for module, name in ((os, "mkdir"), (os, "fsync"), (os, "replace"), (_core, "replace_path"), (shutil, "rmtree")):
                setattr(module, name, dying(getattr(module, name)))
            try:
                engine.save_checkpoint(folder, tag="t")
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        path, _ = engine.load_checkpoint(folder)
        found.append(states.index(weights(engine)))
        if os.WIFEXITED(status):
            break
        # What was there before, for the next one.
        train(engine, engine.global_steps, 2)
        if found[-1] == 1:
            engine.load_checkpoint(os.path.join(folder, "before"), tag="t")
            engine.save_checkpoint(folder, tag="t")
            train(engine, 1, 2)
        elif not os.path.isdir(os.path.join(folder, "before")):
            shutil.copytree(os.path.join(folder, "t"), os.path.join(folder, "before", "t"))
    checkpoint_folder.OLD_SECONDS = -1
    engine.save_checkpoint(folder, tag="t")
    return [found, sorted(name for name in os.listdir(folder) if name.startswith("."))]


def test_a_save_killed_anywhere_leaves_the_old_one_or_the_new_one():
    with tempfile.TemporaryDirectory() as folder:
        found, left = run(__file__, "killed_saves", 1, folder=folder)[0]
        assert found == sorted(found) and found[0] == 0 and found[-1] == 1 and len(found) > 8, found
        assert left == [], left


def test_what_may_be_alive_is_left_alone():
    """Where no locks are, by the time of the last write; and where a folder was made and is not locked yet."""
    from unittest import mock

    from shoal import beside, durable

    from deepspeed.runtime.checkpoint_folder import settle_dead

    def age(path: Path, seconds: float) -> None:
        for each in (*path.rglob("*"), path):
            os.utime(each, (time.time() - seconds,) * 2)

    names = (".t.tmp-" + "0" * 18, ".step-00000001.beside-" + "0" * 18)
    for name, settle in zip(names, (settle_dead, beside._settle_dead), strict=True):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, name)
            path.mkdir()
            settle(folder)
            assert path.is_dir(), "its save has not locked it yet"
            age(path, 100)
            settle(folder)
            assert not path.exists()
            path.mkdir()
            (path / "file").write_text("half")
            with mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "No locks available")):
                age(path, 23 * 3600)
                os.close(durable.lock(str(path)))
                settle(folder)
                assert durable.is_locked(str(path)) is None and path.is_dir()
                age(path, 25 * 3600)
                (path / "file").write_text("more")
                age_of_folder = time.time() - path.stat().st_mtime
                settle(folder)
                assert path.is_dir() and age_of_folder > 24 * 3600, "its file is being written"
                age(path, 25 * 3600)
                settle(folder)
            assert not path.exists()
            path.mkdir()
            (path / "file").write_text("half")
            settle(folder)
            assert not path.exists(), "it has no lock, where locks are"


def left_by_a_save(folder: str, *, new: bool = True, aside: bool = True, listed_id: str = "0" * 18) -> tuple[Path, Path]:
    """What a save under the tag t has between the two renames of a file system that cannot exchange folders."""
    from deepspeed.runtime.checkpoint_list import NAME, FileList

    path = Path(folder, ".t.tmp-" + "0" * 18)
    aside_path = Path(f"{path}-aside")
    for each, is_there, which in ((path, new, "new"), (aside_path, aside, "old")):
        if is_there:
            each.mkdir()
            (each / "which").write_text(which)
    if new:
        (path / NAME).write_text(FileList(listed_id, 1, 1).text())
    return path, aside_path


def test_what_was_moved_aside_is_put_back():
    """A kill between the two renames of a file system that cannot exchange folders."""
    from deepspeed.runtime.checkpoint_folder import put_back

    for has_new in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            left_by_a_save(folder, new=has_new)
            Path(folder, ".u.tmp-" + "0" * 18).mkdir()  # another tag's
            put_back(os.path.join(folder, "t"))
            assert Path(folder, "t", "which").read_text() == ("new" if has_new else "old")
            assert sorted(os.listdir(folder)) == [".u.tmp-" + "0" * 18, "t"]


def test_a_complete_folder_is_put_in_its_empty_place():
    """What stood there is gone, and what was to stand there is all that is left."""
    from deepspeed.runtime import checkpoint_folder

    for settle in (checkpoint_folder.settle_dead, lambda folder: checkpoint_folder.put_back(os.path.join(folder, "t"))):
        with tempfile.TemporaryDirectory() as folder:
            left_by_a_save(folder, aside=False)
            settle(folder)
            assert os.listdir(folder) == ["t"] and Path(folder, "t", "which").read_text() == "new"
        for listed_id, is_torn in (("1" * 18, False), ("0" * 18, True)):  # replaced earlier, and removed since; not complete
            with tempfile.TemporaryDirectory() as folder:
                path, _ = left_by_a_save(folder, aside=False, listed_id=listed_id)
                if is_torn:
                    (path / LIST).write_text((path / LIST).read_text()[:-9])
                settle(folder)
                assert os.listdir(folder) == [], listed_id


def test_what_a_living_save_moved_aside_is_left_alone():
    from shoal import durable

    from deepspeed.runtime.checkpoint_folder import put_back, settle_dead

    for is_in_place in (False, True):  # after the first of the two renames, and after the second
        with tempfile.TemporaryDirectory() as folder:
            path, aside = left_by_a_save(folder)
            lock = durable.lock(str(path))
            if is_in_place:
                path.rename(Path(folder, "t"))
            before = sorted(os.listdir(folder))
            settle_dead(folder)
            put_back(os.path.join(folder, "t"))
            assert sorted(os.listdir(folder)) == before and aside.is_dir()
            os.close(lock)  # killed
            settle_dead(folder)
            assert os.listdir(folder) == ["t"] and Path(folder, "t", "which").read_text() == "new"


def small(layers: int, stage: int, width: int = 4, schedule: str | None = None, seen: int = 2, client: bool = False):
    """Linear layers, named by numbers, with a buffer."""
    import deepspeed

    torch.manual_seed(layers)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0}}
    if not client:
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-2}}
    if schedule is not None:
        config["scheduler"] = {"type": schedule, "params": {"warmup_num_steps": 5}}
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    model.register_buffer("seen", torch.zeros(seen))
    own = torch.optim.NAdam(model.parameters(), lr=1e-2) if client else None
    return deepspeed.initialize(model=model, config=config, optimizer=own)[0]


def train_small(engine, steps: int) -> None:
    for _ in range(steps):
        engine.backward(engine(torch.ones(2, engine.module[0].in_features)).square().mean())
        engine.step()


def all_of(engine) -> list:
    """All that a load may change."""
    kinds = ["weight", "exp_avg"] if engine._shoal.client is not None else ["weight", "first_moment", "second_moment"]
    states = [engine._shoal.read_state(name, kind).tolist() for name, _ in engine.module.named_parameters() for kind in kinds]
    groups = [{key: value for key, value in group.items() if key != "params"} for group in engine.basic_optimizer.param_groups]
    schedule = engine.lr_scheduler.state_dict() if engine.lr_scheduler is not None else None
    steps = [engine.global_steps, engine.micro_steps, engine._shoal.core.progress().applied_steps]
    return [states, engine.module.seen.tolist(), repr(groups), schedule, steps]


class Picky:
    """A schedule of the user's that takes half of a foreign state and then fails."""

    def __init__(self, groups: list):
        self.groups, self.count = groups, 0

    def step(self) -> None:
        self.count += 1

    def state_dict(self) -> dict:
        return {"count": self.count, "picky": True}

    def load_state_dict(self, state: dict) -> None:
        self.count, self.groups[0]["lr"] = state.get("count", -1), 7.0
        self.groups[0]["lr"] = 1e-2 if state["picky"] else 7.0


def misfits(folder: str, stage: int) -> dict:
    """What is said of checkpoints that do not fit, and whether they changed anything."""
    found = {}
    for tag, saving in (("3 layers", small(3, stage)), ("wide", small(2, stage, width=5)), ("seen", small(2, stage, seen=3)),
                        ("schedule", small(2, stage, schedule="WarmupLR"))):  # fmt: skip
        train_small(saving, 2)
        saving.save_checkpoint(folder, tag=tag)

    def attempt(case: str, engine, tag: str, **options) -> None:
        before = all_of(engine)
        found[case] = message(lambda: engine.load_checkpoint(folder, tag=tag, **options))
        found[f"{case}, changed"] = all_of(engine) != before
        train_small(engine, 1)

    engine = small(2, stage)
    train_small(engine, 1)
    attempt("more", engine, "3 layers")
    attempt("other shapes", engine, "wide", load_module_strict=False)
    attempt("another buffer", engine, "seen", load_module_strict=False)
    engine.lr_scheduler = Picky(engine.basic_optimizer.param_groups)
    attempt("another schedule", engine, "schedule")
    engine.lr_scheduler = None
    if stage > 0:
        client = small(2, stage, client=True)
        train_small(client, 1)
        attempt("of the client's optimizer", client, "wide")
    engine.load_checkpoint(folder, tag="3 layers", load_module_strict=False)
    loaded = small(3, stage)
    loaded.load_checkpoint(folder, tag="3 layers")
    found["the rest loads"] = all_of(engine)[0] == all_of(loaded)[0][: len(all_of(engine)[0])] and engine.global_steps == 2
    return found


def test_a_load_that_raises_changes_nothing():
    for stage in (0, 2, 3):
        with tempfile.TemporaryDirectory() as folder:
            for found in run(__file__, "misfits", 2, folder=folder, stage=stage):
                for case, wanted in (
                    ("more", "has values for ['2.bias', '2.weight'] (2 in all), which the model does not have"),
                    ("other shapes", "0.weight is (5, 5) in"),
                    ("another buffer", "seen is (3,) in"),
                    ("another schedule", "picky"),
                    *([("of the client's optimizer", "0.weight is (5, 5) in")] if stage > 0 else []),
                ):
                    assert wanted in found[case] and not found[f"{case}, changed"], (stage, case, found)
                assert found["the rest loads"], (stage, found)


def broken_writes(folder: str) -> list:
    engine = small(2, 2)
    train_small(engine, 1)
    engine.save_checkpoint(folder, tag="t")
    written = engine._shoal.write_part

    def write_part(name: str, kind: str, value: torch.Tensor) -> None:
        if kind != "weight":
            raise RuntimeError("the disk is full")
        written(name, kind, value)

    engine._shoal.write_part = write_part
    calls = (lambda: engine.load_checkpoint(folder), lambda: train_small(engine, 1), lambda: engine.save_checkpoint(folder))
    return [message(call) for call in calls]


def test_an_engine_with_half_a_checkpoint_refuses_to_go_on():
    with tempfile.TemporaryDirectory() as folder:
        for first, *others in run(__file__, "broken_writes", 2, folder=folder):
            assert first == "the disk is full", first
            assert all("load_checkpoint failed while it wrote the states of" in said for said in others), others


def accumulating(folder: str, stage: int) -> dict:
    """A run that saves between micro-steps goes on as one that does not; and one that resumes begins at the last step."""

    def micro_steps(engine, first: int, last: int, saves: bool = False) -> None:
        for micro_step in range(first, last):
            engine.backward(engine(tokens(micro_step, int(os.environ["RANK"]))))
            if saves:
                engine.save_checkpoint(folder, tag=f"{micro_step} before")
            engine.step()
            if saves:
                engine.save_checkpoint(folder, tag=f"{micro_step} after")

    straight, saving, resumed = make(stage, 3), make(stage, 3), make(stage, 3)
    micro_steps(straight, 0, 9)
    micro_steps(saving, 0, 9, saves=True)
    found = {"same": weights(straight) == weights(saving)}
    # Saved in the third micro-step of the second step, before its update, and after the first of the third.
    for tag, step in (("5 before", 1), ("6 after", 2)):
        resumed.load_checkpoint(folder, tag=tag)
        found[tag] = [resumed.global_steps, resumed.micro_steps]
        micro_steps(resumed, 3 * step, 9)
        found[f"{tag}, same"] = weights(resumed) == weights(straight)
    listed = [json.loads(Path(folder, tag, LIST).read_text())["accumulated"] for tag in ("5 before", "6 after", "8 after")]
    found["accumulated"] = listed
    resumed.backward(resumed(tokens(0, int(os.environ["RANK"]))))
    found["load"] = message(lambda: resumed.load_checkpoint(folder, tag="5 before"))
    return found


def accumulating_alone(folder: str) -> dict:
    """The same of shoal.Engine.save, with what it writes beside the core's files."""
    import shoal

    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 3,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
    }

    def begin():
        torch.manual_seed(0)
        model = Net(width=6, depth=1)
        model.register_buffer("seen", torch.zeros(2))
        return shoal.initialize(model, config)

    def micro_steps(engine, first: int, last: int, saves: bool = False) -> None:
        for micro_step in range(first, last):
            engine.backward(engine(tokens(micro_step, int(os.environ["RANK"]))))
            if saves:
                engine.save(folder, step=micro_step, extra={"shoal.accumulated": "of an earlier one"})
            engine.step()

    def states(engine) -> list:
        return [engine.read_state(name, "weight").tolist() for name, _ in engine.module.named_parameters()]

    straight, saving, resumed = begin(), begin(), begin()
    micro_steps(straight, 0, 9)
    micro_steps(saving, 0, 9, saves=True)
    found = {"same": states(straight) == states(saving)}
    found["accumulated"] = resumed.load(os.path.join(folder, "step-00000004")).extra["shoal.accumulated"]
    micro_steps(resumed, 3, 9)
    found["resumed"] = states(resumed) == states(straight)
    path = next(Path(folder, "step-00000004").glob("beside-*")) / "rank-00000.pt"
    chance = random.Random(6)
    found["flips"] = []
    for _ in range(10):
        place = chance.randrange(path.stat().st_size), chance.randrange(8)
        in_turn(resumed.world, lambda: flip(path, *place))
        found["flips"].append(message(lambda: resumed.load(path.parent.parent)))
        in_turn(resumed.world, lambda: flip(path, *place))
    loss = resumed(tokens(0, 0))
    found["pass"] = message(lambda: resumed.save(folder, step=99))
    resumed.backward(loss)
    return found


def test_saves_of_the_engine_between_micro_steps():
    with tempfile.TemporaryDirectory() as folder:
        for found in run(__file__, "accumulating_alone", 2, folder=folder):
            assert found["same"] and found["resumed"] and found["accumulated"] == "2", found
            assert "[save] a pass is open: its forward ran and its backward did not" in found["pass"], found
            assert all("rank-00000.pt cannot be read: " in said for said in found["flips"]), found["flips"]


def test_saves_between_micro_steps():
    for stage in (0, 3):
        with tempfile.TemporaryDirectory() as folder:
            for found in run(__file__, "accumulating", 2, folder=folder, stage=stage):
                assert found["same"] and found["5 before, same"] and found["6 after, same"], found
                assert found["5 before"] == [1, 3] and found["6 after"] == [2, 6] and found["accumulated"] == [3, 1, 0], found
                assert "1 micro-steps are accumulated and wait for their update" in found["load"], found


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))

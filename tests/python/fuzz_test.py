"""Variants of what people and programs may get wrong, by a seed: hostfiles, and the values in files of a checkpoint in DeepSpeed's
layout. Each is read, or refused in a sentence. What C++ reads: tests/fuzz.

    fuzz_test.py [TEST] ...                       a part of them
    FUZZ_SECONDS=600 FUZZ_SEED=7 fuzz_test.py     for so long, each
"""

from __future__ import annotations

import copy
import itertools
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import torch

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, tokens
from ranks import main, message, run

WORDS = ["0", "-1", "1024", "1025", "9" * 30, "slots=", "slots=4", "slots=0x4", "@", ":", ",", "#", "\t", "\x00", "\x1b[2J", "é", "٤", "a" * 5000]
VALUES = [None, -1, 2**70, 1.5, float("nan"), "x", b"x", [], {}, (), True, [[]], {"a": None}, torch.zeros(0), torch.ones(3, dtype=torch.int64), torch.full((2,), float("nan"))]


def rounds(at_least: int) -> Iterator[int]:
    end = time.monotonic() + float(os.environ.get("FUZZ_SECONDS", "0"))
    for turn in itertools.count():
        if turn >= at_least and time.monotonic() >= end:
            return
        yield turn


def seed() -> int:
    return int(os.environ.get("FUZZ_SEED", "1"))


def mutated(text: str, chance: random.Random) -> str:
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(text))
        length = chance.randint(0, 12)
        text = chance.choice([text[:at] + chance.choice(WORDS) + text[at:], text[:at] + text[at + length :], text[: at + length] + text[at:],
                              text[:at] + chance.choice(WORDS) + text[at + length :]])  # fmt: skip
    return text


def said_by(call: Callable[[], Any]) -> str:
    """"" if it is read; what is said if it is refused. Anything else comes out."""
    try:
        call()
    except SystemExit as refusal:
        return str(refusal)
    return ""


def test_hostfiles_are_read_or_refused():
    from deepspeed.launcher import hosts

    chance = random.Random(seed())
    files = ["worker-0 slots=4\nworker-1 slots=4\n", "# a comment\n\n10.0.0.1 slots=1 # one\n", "a slots=2"]
    specs = ["worker-0@worker-1:0,2", "worker-0:1", "worker-1"]
    for turn in rounds(3000):
        text = mutated(chance.choice(files), chance)
        spec = mutated(chance.choice(specs), chance)
        found: dict = {}
        said = [said_by(lambda: found.update(hosts.parse_hostfile(text.splitlines()))), said_by(lambda: hosts.parse_spec(spec))]
        said.append(said_by(lambda: hosts.select(dict(found), spec, "")))
        for each in filter(None, said):
            case = f"turn {turn}, seed {seed()}: {text!r}, {spec!r}: {each!r}"
            assert each.startswith("deepspeed: ") and each.endswith("."), case
            assert len(each) < 6000 and each.isprintable(), case
        for slots in found.values():
            assert slots == list(range(len(slots))) and 0 < len(slots) <= hosts.MOST_SLOTS, (text, slots)


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Of every value in a tree of dicts and lists."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def change(values: dict, chance: random.Random) -> str:
    path = chance.choice(list(places(values)))
    owner = values
    for key in path[:-1]:
        owner = owner[key]
    if chance.random() < 0.3:
        del owner[path[-1]]
        return f"without {path}"
    owner[path[-1]] = chance.choice(VALUES)
    return f"{path} = {owner[path[-1]]!r}"


def odd_checkpoints(folder: str, stage: int, turns: int) -> list:
    import deepspeed
    import shoal

    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}},
        "zero_optimization": {"stage": stage},
    }

    def make() -> Any:
        torch.manual_seed(0)
        return deepspeed.initialize(model=Net(width=6, depth=1), config=config)[0]

    engine = make()
    engine.backward(engine(tokens(0, 0)))
    engine.step()
    engine.save_checkpoint(folder)
    tag = Path(folder, Path(folder, "latest").read_text())
    (tag / "shoal_files.json").unlink()
    files = sorted(tag.glob("*.pt"))
    right = {path: torch.load(path, weights_only=False) for path in files}
    chance = random.Random(seed() + stage)
    found = []
    for turn in rounds(turns):
        path = chance.choice(files)
        values = copy.deepcopy(right[path])
        what = change(values, chance)
        torch.save(values, path)
        other = engine
        try:
            other.load_checkpoint(folder)
            said = ""
        except shoal.Error as error:
            said = str(error)
            if "Resume from" in said or "refuses" in said or "failed half-way" in said:
                engine = make()
        except Exception as error:  # noqa: BLE001  that is what is looked for
            said = f"!{type(error).__name__}: {error}"
            engine = make()
        if said and not (said.startswith("[") and said.isprintable() and len(said) < 3000):
            found.append([turn, path.name, what[:300], said[:1500]])
        torch.save(right[path], path)
    return found


def test_values_in_checkpoints_are_read_or_refused():
    for stage in (0, 2, 3):
        with tempfile.TemporaryDirectory() as folder:
            (found,) = run(__file__, "odd_checkpoints", 1, folder=folder, stage=stage, turns=40)
            assert not found, f"seed {seed()}: " + "\n".join(map(str, found[:8]))


def without(folder: str) -> list[str]:
    """What is said of a load from files without a key that every save writes, or with another thing in its place."""
    import deepspeed

    torch.manual_seed(0)
    config = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}, "zero_optimization": {"stage": 2}}
    engine = deepspeed.initialize(model=Net(width=6, depth=1), config=config)[0]
    engine.save_checkpoint(folder, tag="one")
    Path(folder, "one", "shoal_files.json").unlink()
    (path,) = Path(folder, "one").glob("*optim_states.pt")
    right = torch.load(path, weights_only=False)
    found = []
    for values in ({}, {"optimizer_state_dict": {}}, right | {"optimizer_state_dict": right["optimizer_state_dict"] | {"zero_stage": None}}):
        torch.save(values, path)
        found.append(message(lambda: engine.load_checkpoint(folder)))
    torch.save(right, path)
    engine.load_checkpoint(folder)
    return found


def test_a_file_without_what_a_save_writes_is_refused_in_a_sentence():
    with tempfile.TemporaryDirectory() as folder:
        ((nothing, no_stage, stage_of_none),) = run(__file__, "without", 1, folder=folder)
        start, end = f"[load_checkpoint] {folder}/one does not hold what a save writes (", "). Take another checkpoint."
        for said in (nothing, no_stage, stage_of_none):
            assert said.startswith(start) and said.endswith(end), said
        assert "it has no 'optimizer_state_dict'" in nothing and "it has no 'zero_stage'" in no_stage, (nothing, no_stage)
        assert "TypeError: int() argument must be" in stage_of_none, stage_of_none


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))

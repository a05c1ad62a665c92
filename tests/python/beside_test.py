"""shoal's engine.save and engine.load with what the core has not: buffers of a module, states of a torch optimizer."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, train_steps
from ranks import main, message, run

WIDTH = 6


class Layer(nn.Module):
    def __init__(self, statistics: bool):
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.BatchNorm1d(WIDTH, track_running_stats=statistics)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.norm(self.linear(x)))


class Normed(nn.Module):
    """Statistics of the samples that a rank has seen, and a buffer that no state dict has."""

    def __init__(self, statistics: bool = True):
        super().__init__()
        self.layers = nn.ModuleList(Layer(statistics) for _ in range(2))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return (x * torch.arange(WIDTH)).square().mean()


def config(stage: int, **others) -> dict:
    zero = {"stage": stage, "stage3_param_persistence_threshold": 0}
    optimizer = {"type": "AdamW", "params": {"lr": 1e-2}}
    return {"train_micro_batch_size_per_gpu": 4, "zero_optimization": zero, "optimizer": optimizer, **others}


def samples(step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + int(os.environ["RANK"]))
    return torch.randn(4, WIDTH, generator=generator)


def steps(engine, first: int, last: int) -> list[float]:
    """Losses of training, and after each step that of evaluation, which reads the statistics."""
    found = []
    for step in range(first, last):
        loss = engine(samples(step))
        engine.backward(loss)
        engine.step()
        engine.module.eval()
        with torch.no_grad():
            found += [loss.item(), engine(samples(99)).item()]
        engine.module.train()
    return found


def buffers_of(model: nn.Module) -> dict:
    return {name: value.tolist() for name, value in model.named_buffers()}


def begin(seed: int, stage: int = 3, statistics: bool = True):
    import shoal

    torch.manual_seed(seed)
    return shoal.initialize(Normed(statistics), config(stage))


def save_and_load(folder: str, stage: int) -> dict:
    engine = begin(0, stage)
    steps(engine, 0, 2)
    engine.module.scratch.fill_(5)
    path = engine.save(folder, step=2, extra={"mine": "kept"})
    facts = {"saved": buffers_of(engine.module), "straight": steps(engine, 2, 4), "changed": buffers_of(engine.module)}
    loaded = engine.load(folder)
    torch.set_default_dtype(torch.float64)  # no number of ours may depend on it
    again = engine.save(os.path.join(folder, "again"), step=2, extra=loaded.extra)
    torch.set_default_dtype(torch.float32)
    facts["again"] = os.path.isdir(again)
    facts |= {"loaded": buffers_of(engine.module), "back": steps(engine, 2, 4), "mine": loaded.extra["mine"]}
    engine.destroy()
    engine = begin(1, stage)
    engine.load(path)
    return facts | {"anew": buffers_of(engine.module), "resumed": steps(engine, 2, 4)}


def load_alone(folder: str) -> dict:
    engine = begin(2, stage=0)
    engine.load(folder)
    return buffers_of(engine.module)


def test_buffers_are_saved_and_resume_to_the_bit():
    for stage in (0, 3):
        with tempfile.TemporaryDirectory() as folder:
            ranks = run(__file__, "save_and_load", 2, folder=folder, stage=stage)
            for facts in ranks:
                assert facts["saved"] == facts["loaded"] != facts["changed"], facts
                assert facts["straight"] == facts["back"] == facts["resumed"] and facts["mine"] == "kept" and facts["again"], facts
                assert facts["anew"] == facts["saved"] | {"scratch": [0, 0, 0]}, facts
            first, second = (facts["saved"]["layers.0.norm.running_mean"] for facts in ranks)
            assert first != second, "each rank has statistics of its own"
            alone = run(__file__, "load_alone", 1, folder=folder)[0]
            assert alone == ranks[0]["saved"] | {"scratch": [0, 0, 0]}, alone
            assert sorted(os.listdir(folder)) == ["again", "latest", "step-00000002"], os.listdir(folder)


def without_buffers(folder: str) -> dict:
    """A checkpoint without any, as `shoal train` writes them, into a model that has some; and one of other buffers."""
    plain = begin(0, statistics=False)
    path = plain.save(folder, step=1, extra={"model_config": "{}"})
    facts = {"files": sorted(os.listdir(path))}
    plain.destroy()
    engine = begin(1)
    steps(engine, 0, 1)
    before = buffers_of(engine.module)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        engine.load(folder)
    facts |= {"kept": before == buffers_of(engine.module), "heard": [str(each.message) for each in heard]}
    engine.save(folder, step=3)
    engine.destroy()
    return facts | {"fewer here": message(lambda: begin(0, statistics=False).load(folder))}


def test_checkpoints_without_buffers_load_and_say_so():
    with tempfile.TemporaryDirectory() as folder:
        first, second = run(__file__, "without_buffers", 2, folder=folder)
    for facts in (first, second):
        assert facts["files"] == ["manifest.json", "rank-00000.bin", "rank-00001.bin"] and facts["kept"], facts
        assert "6 buffers are not as the model's" in facts["fewer here"], facts
        assert "absent here" in facts["fewer here"], facts
    assert len(first["heard"]) == 1 and "has no buffers" in first["heard"][0] and not second["heard"], (first, second)


def killed_saves(folder: str) -> dict:
    """What a kill leaves: the folder outside a complete checkpoint, or outside none."""
    engine = begin(0)
    steps(engine, 0, 1)
    path = engine.save(folder, step=1)
    saved = buffers_of(engine.module)
    (inside,) = Path(path).glob("beside-*")
    outside = Path(folder, f".{Path(path).name}.{inside.name}")
    inside.rename(outside)  # killed after the manifest stood
    Path(folder, ".step-00000009.beside-00").mkdir()  # killed before there was one, a while ago
    os.utime(Path(folder, ".step-00000009.beside-00"), (0, 0))
    steps(engine, 1, 2)
    engine.load(folder)
    facts = {"read outside": buffers_of(engine.module) == saved}
    engine.save(folder, step=1)  # again: another id
    again = [each.name for each in Path(path).glob("beside-*")]
    facts["replaced"] = len(again) == 1 and again[0] != inside.name
    engine.save(folder, step=2, keep_last=2)
    facts["left"] = sorted(os.listdir(folder))
    (file,) = Path(folder, "step-00000002").glob("beside-*/rank-00000.pt")
    content = bytearray(file.read_bytes())
    mean = engine.module.layers[0].norm.running_mean.numpy().tobytes()
    content[content.index(mean)] ^= 1
    file.write_bytes(content)
    return facts | {"damaged": message(lambda: engine.load(folder))}


def test_killed_saves_leave_nothing_that_is_lost_or_stays():
    with tempfile.TemporaryDirectory() as folder:
        facts = run(__file__, "killed_saves", 1, folder=folder)[0]
    assert facts["read outside"] and facts["replaced"], facts
    assert facts["left"] == ["latest", "step-00000001", "step-00000002"], facts
    assert "rank-00000.pt cannot be read" in facts["damaged"], facts
    assert "another checksum" in facts["damaged"], facts


def fail_on_one_rank(folder: str) -> str:
    def full(*values):
        raise OSError(28, "No space left on device")

    engine = begin(0)
    if os.environ["RANK"] == "1":
        torch.save = full
    return message(lambda: engine.save(folder, step=1))


def test_a_rank_that_cannot_write_stops_the_save_on_all():
    with tempfile.TemporaryDirectory() as folder:
        first, second = run(__file__, "fail_on_one_rank", 2, folder=folder)
        assert first == second and "rank 1 could not write" in first and "No space left" in first, (first, second)
        assert os.listdir(folder) == [], os.listdir(folder)


def load_damaged(folder: str) -> dict:
    """Rank 1's file, where rank 0's is whole."""
    engine = begin(0)
    path = engine.save(folder, step=1)
    steps(engine, 0, 1)
    before = [engine.read_state(name, "weight").tolist() for name, _ in engine.module.named_parameters()]
    if os.environ["RANK"] == "1":
        (file,) = Path(path).glob("beside-*/rank-00001.pt")
        file.write_bytes(file.read_bytes()[:100])
    facts = {"said": message(lambda: engine.load(folder))}
    facts["kept"] = before == [engine.read_state(name, "weight").tolist() for name, _ in engine.module.named_parameters()]
    return facts


def test_a_rank_that_cannot_read_stops_the_load_before_anything_changes():
    with tempfile.TemporaryDirectory() as folder:
        first, second = run(__file__, "load_damaged", 2, folder=folder)
    for facts in (first, second):
        assert "rank 1 cannot take" in facts["said"] and "rank-00001.pt cannot be read" in facts["said"], facts
        assert facts["kept"], facts


def make(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    params = list(model.parameters())
    if kind == "nadam":
        return torch.optim.NAdam(params, lr=1e-2)
    return torch.optim.Adam([{"params": params[:3]}, {"params": params[3:], "betas": (0.5, 0.9), "lr": 1e-3}], lr=1e-2)


def with_optimizer(kind: str, stage: int, seed: int = 0):
    import shoal

    torch.manual_seed(seed)
    model = Net()
    return shoal.initialize(model, config(stage), optimizer=make(kind, model))


def states_of(engine) -> dict:
    names = ["blocks.0.up.weight", "blocks.2.down.bias", "scale"]
    keys = list(engine.client.keys)
    found = {f"{name} {key}": engine.read_state(name, key).tolist() for name in names for key in keys}
    return found | {"lr": [group["lr"] for group in engine.client.optimizer.param_groups]}


def save_states(folder: str, stage: int, kind: str) -> dict:
    engine = with_optimizer(kind, stage)
    train_steps(engine, 0, 2)
    engine.client.optimizer.param_groups[0]["lr"] = 5e-3  # a schedule of the user's
    engine.save(folder, step=2)
    facts = {"saved": states_of(engine), "straight": train_steps(engine, 2, 4)}
    engine.load(folder)
    facts["back"] = train_steps(engine, 2, 4)
    engine.destroy()
    engine = with_optimizer(kind, stage, seed=1)
    engine.load(folder)
    return facts | {"resumed": train_steps(engine, 2, 4)}


def load_states(folder: str, stage: int, kind: str) -> dict:
    engine = with_optimizer(kind, stage, seed=1)
    engine.load(folder)
    return states_of(engine)


def test_states_of_a_torch_optimizer_resume_to_the_bit_and_on_other_ranks():
    for stage, kind in ((3, "nadam"), (0, "groups")):
        with tempfile.TemporaryDirectory() as folder:
            ranks = run(__file__, "save_states", 2, folder=folder, stage=stage, kind=kind)
            for facts in ranks:
                assert facts["straight"] == facts["back"] == facts["resumed"], (kind, facts)
            for world, other in ((1, 3), (3, 1)):
                for states in run(__file__, "load_states", world, folder=folder, stage=other, kind=kind):
                    assert states == ranks[0]["saved"], (kind, world, other)


def wrong_optimizers(folder: str) -> dict:
    import shoal

    facts = {}
    engine = with_optimizer("nadam", 3)
    saved = engine.save(folder, step=1)
    train_steps(engine, 0, 1)
    if os.environ["RANK"] == "0":
        next(iter(engine.client.optimizer.state.values()))["seen"] = ["a list"]
    facts["a list"] = message(lambda: engine.save(folder, step=3))
    without = shoal.initialize(Net(), config(3)).save(folder, step=2)
    of_config = shoal.initialize(Net(), config(3, optimizer={"type": "SGD"}))
    facts["an optimizer of the config"] = message(lambda: of_config.load(saved))
    facts["another optimizer"] = message(lambda: with_optimizer("groups", 3).load(saved))
    facts["no optimizer in it"] = message(lambda: with_optimizer("nadam", 3).load(without))
    return facts


def test_states_of_another_optimizer_are_refused():
    with tempfile.TemporaryDirectory() as folder:
        facts, other = run(__file__, "wrong_optimizers", 2, folder=folder)
    assert "rank 0 could not write" in other["a list"], other
    assert "it has states of torch's NAdam" in facts["an optimizer of the config"], facts
    assert "saved with NAdam over 1 groups, and this engine has Adam over 2" in facts["another optimizer"], facts
    assert "has no states of NAdam" in facts["no optimizer in it"], facts
    assert "keeps a state seen that" in facts["a list"], facts


if __name__ == "__main__":
    main(globals(), imports=("shoal",))

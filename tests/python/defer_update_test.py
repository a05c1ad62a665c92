"""shoal.defer_update on and off: the same bits, and whoever reads through the engine right after step() reads the new ones."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, tokens
from ranks import main, run

STEPS = 3
READERS = ("gathered", "state", "consolidated", "evaluated", "made whole")


def values(tensor: torch.Tensor) -> list[float]:
    return tensor.detach().flatten().tolist()


def read(engine, model: Net, weight: torch.nn.Parameter, reader: str) -> list[float]:
    """The weight, or what hangs on it, by one of the doors that the engine has."""
    import shoal
    from shoal import state

    if reader == "gathered":
        with shoal.gathered(weight):
            return values(weight)
    if reader == "state":
        return values(state.read_param(weight, "weight"))
    if reader == "consolidated":
        whole = state.consolidate(engine)
        return values(whole["blocks.2.down.weight"]) if whole else []
    if reader == "evaluated":
        with torch.no_grad():
            return [model(tokens(99, 0)).item()]
    engine.make_whole()
    return values(weight)


def train(stage: int, defers: str, reader: str, accumulation: int) -> dict:
    """Losses, and after each step what the reader finds. The block that is read is the last one to be updated."""
    import shoal

    torch.manual_seed(0)
    model = Net()
    engine = shoal.initialize(model, {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": 0.5,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "weight_decay": 0.01}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "shoal": {"defer_update": defers},
    })  # fmt: skip
    weight = model.blocks[2].down.weight
    found: dict = {"losses": [], "read": [], "past the engine": []}
    for step in range(STEPS):
        for micro in range(accumulation):
            loss = engine(tokens(accumulation * step + micro, int(os.environ["RANK"])))
            engine.backward(loss)
            result = engine.step()
            found["losses"].append(loss.item())
        found["losses"].append(result.grad_norm)
        if stage == 0:
            found["past the engine"].append(values(weight))
        if reader != "made whole" or step + 1 == STEPS:
            found["read"].append(read(engine, model, weight, reader))
    if reader != "made whole":
        engine.destroy()
    return found


def both(stage: int, reader: str, accumulation: int) -> list[dict]:
    return [train(stage, defers, reader, accumulation) for defers in ("on", "off")]


def all_readers(stage: int) -> dict:
    return {reader: both(stage, reader, 1) for reader in READERS}


def test_reads_after_a_step_are_of_that_step():
    for world, stage in ((1, 0), (1, 2), (2, 0), (2, 3)):
        for rank, found in enumerate(run(__file__, "all_readers", world, stage=stage)):
            for reader, (on, off) in found.items():
                place = (world, stage, reader, rank)
                assert on["losses"] == off["losses"], (place, on["losses"], off["losses"])
                assert on["read"] == off["read"], f"{place}: old weights were read"
                if rank == 0 and reader != "made whole":
                    first, second, third = off["read"]
                    assert first and first != second != third, f"{place}: a step changed nothing"


def test_accumulated_steps_are_deferred_too():
    for on, off in run(__file__, "both", 2, stage=3, reader="gathered", accumulation=2):
        assert on["losses"] == off["losses"] and on["read"] == off["read"], (on, off)


def test_updates_really_wait():
    """A whole weight that is read past the engine is old right after step(), as docs/config.md says: there is something to defer."""
    for on, off in run(__file__, "both", 2, stage=0, reader="gathered", accumulation=1):
        assert off["past the engine"] == off["read"], "without it step() updates"
        assert all(past != read for past, read in zip(on["past the engine"], on["read"])), "nothing was deferred"


def resume(folder: str) -> list[list]:
    """Saved right after step(), and loaded: by each setting what the other one saved."""
    import shoal

    runs = []
    for defers, other in (("on", "off"), ("off", "on")):
        losses = []
        for setting in (defers, other):
            torch.manual_seed(0)
            engine = shoal.initialize(Net(), {
                "train_micro_batch_size_per_gpu": 2,
                "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
                "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
                "shoal": {"defer_update": setting},
            })  # fmt: skip
            if setting == other:
                engine.load(f"{folder}/{defers}")
            for step in range(0 if setting == defers else 2, 2 if setting == defers else 4):
                loss = engine(tokens(step, int(os.environ["RANK"])))
                engine.backward(loss)
                engine.step()
                losses.append(loss.item())
            if setting == defers:
                engine.save(f"{folder}/{defers}", step=2)
            engine.destroy()
        runs.append(losses)
    return runs


def test_a_save_right_after_a_step_has_it():
    with tempfile.TemporaryDirectory() as folder:
        for on, off in run(__file__, "resume", 2, folder=folder):
            assert len(on) == 4 and on == off, (on, off)


if __name__ == "__main__":
    main(globals(), imports=("shoal",))

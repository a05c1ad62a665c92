"""Checkpoints in DeepSpeed's layout are pickles: what would run code while it is read is refused by name, unless it is trusted."""

from __future__ import annotations

import argparse
import builtins
import os
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from models import Net, tokens
from ranks import main, message, run

TRUST = "SHOAL_TRUST_CHECKPOINTS"


class Planted:
    """Calls a function when it is read."""

    def __init__(self, call, *arguments):
        self.found = call, arguments

    def __reduce__(self):
        return self.found


def make(stage: int, precision: str):
    import deepspeed

    torch.manual_seed(0)
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 5}},
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
    }
    if precision != "fp32":
        config[precision] = {"enabled": True}
    return deepspeed.initialize(model=Net(width=6, depth=1), config=config)[0]


def plants(folder: str, stage: int, precision: str) -> list:
    """What is said of a load after something was planted into a file: by the file, with the list of the save and without."""
    engine = make(stage, precision)
    engine.backward(engine(tokens(0, engine.global_rank)))
    engine.step()
    engine.save_checkpoint(folder, client_state={"epoch": 3, "seen": {"a", "b"}, "best": 0.5, "note": ("x", None)})
    other = make(stage, precision)
    assert other.load_checkpoint(folder)[1]["seen"] == {"a", "b"}, "what is plain is read"
    tag = Path(folder, Path(folder, "latest").read_text())
    found = []
    for path in sorted(tag.glob("*.pt")):
        whole = path.read_bytes()
        for listed in (True, False):
            for call, argument in ((os.mkdir, f"{folder}/ran"), (builtins.eval, f"__import__('os').mkdir('{folder}/ran')")):
                engine._shoal.world.barrier()
                if engine.global_rank == 0:
                    values = torch.load(path, weights_only=False)
                    torch.save(values | {"planted": Planted(call, argument)}, path)
                    if not listed:
                        (tag / "shoal_files.json").rename(tag / "aside")
                engine._shoal.world.barrier()
                found.append([path.name, listed, message(lambda: other.load_checkpoint(folder))])
                engine._shoal.world.barrier()
                if engine.global_rank == 0:
                    path.write_bytes(whole)
                    if not listed:
                        (tag / "aside").rename(tag / "shoal_files.json")
    engine._shoal.world.barrier()
    found.append(["ran", os.path.exists(f"{folder}/ran"), ""])
    return found


def test_a_planted_pickle_runs_no_code():
    for stage, precision in ((0, "fp32"), (2, "fp16"), (3, "bf16")):
        with tempfile.TemporaryDirectory() as folder:
            for found in run(__file__, "plants", 2, folder=folder, stage=stage, precision=precision):
                *loads, ran = found
                assert ran == ["ran", False, ""], found
                assert len(loads) >= 4
                for name, listed, said in loads:
                    assert name in said, (name, said)
                    if not listed:
                        assert "holds an object of " in said and TRUST in said, said
                        assert ".mkdir," in said or " eval," in said, said


def of_the_users(folder: str) -> list[str]:
    engine = make(2, "fp32")
    engine.save_checkpoint(folder, client_state={"curriculum": argparse.Namespace(difficulty=7)})
    said = [message(lambda: engine.load_checkpoint(folder))]
    with torch.serialization.safe_globals([argparse.Namespace]):
        assert engine.load_checkpoint(folder)[1]["curriculum"] == argparse.Namespace(difficulty=7)
    os.environ[TRUST] = "1"
    assert engine.load_checkpoint(folder)[1]["curriculum"] == argparse.Namespace(difficulty=7)
    del os.environ[TRUST]
    return said


def test_a_class_of_the_users_is_read_once_it_is_allowed():
    with tempfile.TemporaryDirectory() as folder:
        for (said,) in run(__file__, "of_the_users", 1, folder=folder):
            assert "holds an object of argparse.Namespace, and to read" in said, said
            assert "torch.serialization.add_safe_globals" in said and f"{TRUST}=1" in said, said


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))

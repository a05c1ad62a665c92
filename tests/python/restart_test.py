"""The Python door when ranks die and are started again: a loop that saves goes on from its newest checkpoint, at another number
of ranks too, with the bits of one in which nobody died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
from ranks import OWN_ENVIRONMENT, Skipped, free_port, main, run, whole

WIDTH, LEAVES, STEPS = 8, 4, 5


def train(folder: str, dies_after: int = 0) -> dict:
    """The loop of docs/reliability.md. Rank 1 kills itself in the midst of the step after that one."""
    import shoal

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5), nn.Linear(WIDTH, 1))
    engine = shoal.initialize(
        model,
        {
            "train_batch_size": LEAVES,
            "train_micro_batch_size_per_gpu": 1,
            "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
            "zero_optimization": {"stage": 3},
            "gradient_clipping": 0.5,
            "shoal": {"leaf_seed": 5},
        },
    )
    rank, ranks = engine.world.rank, engine.world.size
    begun = engine.load(folder).step if any(Path(folder).glob("step-*")) else 0
    for step in range(begun, STEPS):
        for micro_step in range(LEAVES // ranks):
            leaf = micro_step * ranks + rank
            x = torch.full((1, WIDTH), 0.1 * step + leaf)
            loss = engine(x).square().mean()
            if rank == 1 and dies_after > 0 and step == dies_after:
                os.kill(os.getpid(), signal.SIGKILL)
            engine.backward(loss)
            engine.step()
        engine.save(folder, step + 1, keep_last=2)
    kinds = ("weight", "first_moment", "second_moment")
    states = {f"{name} {kind}": engine.read_state(name, kind).flatten().tolist() for name in ("0.weight", "2.bias") for kind in kinds}
    return {"begun": begun, "states": states}


def expected() -> dict:
    with tempfile.TemporaryDirectory() as folder:
        return run(__file__, "train", 1, folder=folder)[0]


def test_another_number_of_ranks_goes_on_where_one_died():
    alone = expected()
    assert alone["begun"] == 0 and any(alone["states"]["2.bias first_moment"]), alone
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(__file__, "train", 2, folder=folder, dies_after=3)
        except AssertionError as error:
            assert "-9" in str(error), error
        else:
            raise AssertionError("nobody died")
        for each in run(__file__, "train", 4, folder=folder):
            assert each == {"begun": 3, "states": alone["states"]}, each


def test_torchrun_starts_it_again():
    if not whole():
        raise Skipped("torchrun imports torch in each of five processes; make grids runs it")
    alone = expected()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1",
                   "--master-port", str(free_port()), __file__, "--rank", folder]  # fmt: skip
        done = subprocess.run(command, env=os.environ | OWN_ENVIRONMENT, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        for rank in range(2):
            said = json.loads(Path(folder, f"{rank}.json").read_text())
            assert said == {"begun": 3, "states": alone["states"]}, said


if __name__ == "__main__":
    if "--rank" in sys.argv:
        first_start = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        told = train(sys.argv[-1], dies_after=3 if first_start else 0)
        Path(sys.argv[-1], f"{os.environ['RANK']}.json").write_text(json.dumps(told))
    else:
        main(globals())

"""shoal.leaf_seed: what forwards draw is the same at every number of ranks, after a resume and in checkpointed blocks."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(Path(__file__).parent))
from ranks import main, run

WIDTH = 8
LEAVES = 4
STEPS = 3


class Model(nn.Module):
    def __init__(self, checkpointed: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Dropout(0.5)) for _ in range(2))
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return x.square().mean() if self.training else x.sum()


def draw(leaf_seed: int = 5, way: str = "plain", steps: tuple[int, int] = (0, STEPS), folder: str = "", lr: float = 0.0) -> dict:
    """Losses by step and leaf, and what the user draws outside forwards, on this rank."""
    import deepspeed

    torch.manual_seed(0)
    model = Model(way == "checkpointed")
    config = {
        "train_batch_size": LEAVES,
        "train_micro_batch_size_per_gpu": 1,
        "optimizer": {"type": "SGD", "params": {"lr": lr}},
        "zero_optimization": {"stage": 2},
        "shoal": {"leaf_seed": leaf_seed},
    }
    engine, *_ = deepspeed.initialize(model=model, config=config)
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    first, last = steps
    if first > 0:
        engine.load_checkpoint(folder)
    torch.manual_seed(100)
    losses, outside = {}, []
    for step in range(first, last):
        for micro_step in range(LEAVES // ranks):
            outside.append(torch.rand(()).item())
            x = torch.ones(1, WIDTH)
            loss = engine(x)
            key = f"{step} {micro_step * ranks + rank}"
            losses[key] = [loss.item()]
            if way == "twice":
                second = engine(x)
                losses[key].append(second.item())
                loss = loss + second
            engine.backward(loss)
            engine.step()
            if way == "evaluated":
                engine.eval()
                with torch.no_grad():
                    engine(x)
                engine.train()
    if folder and first == 0:
        engine.save_checkpoint(folder)
    engine.destroy()
    return {"losses": losses, "outside": outside}


def draw_all(cases: list[dict]) -> list[dict]:
    return [draw(**case) for case in cases]


def drawn(world: int, *cases: dict) -> list[dict]:
    """Of each case, the losses of all ranks, and what rank 0 drew outside."""
    found = run(__file__, "draw_all", world, cases=list(cases))
    return [
        {"losses": {key: value for rank in found for key, value in rank[i]["losses"].items()}, "outside": found[0][i]["outside"]}
        for i in range(len(cases))
    ]


def test_forwards_draw_by_leaf() -> None:
    one, another, twice, unseeded = drawn(1, {}, {"leaf_seed": 6}, {"way": "twice"}, {"leaf_seed": -1})
    expected = one["losses"]
    assert len(expected) == STEPS * LEAVES
    assert len({tuple(each) for each in expected.values()}) == STEPS * LEAVES, "each leaf draws its own"
    assert another["losses"] != expected
    for leaf, (first, second) in twice["losses"].items():
        assert [first] == expected[leaf] and second != first, "a second forward of a leaf draws others"
    generator = torch.Generator().manual_seed(100)
    outside = [torch.rand((), generator=generator).item() for _ in range(STEPS * LEAVES)]
    assert one["outside"] == outside, "what is drawn outside forwards does not notice"
    assert unseeded["outside"] != outside, "without the key forwards draw from it"

    with tempfile.TemporaryDirectory() as folder:
        at_two = drawn(2, {}, {"way": "twice"}, {"steps": [0, 2], "folder": folder}, {"steps": [2, 3], "folder": folder})
    assert at_two[0]["losses"] == expected
    assert at_two[1]["losses"] == twice["losses"]
    assert at_two[2]["losses"] | at_two[3]["losses"] == expected, "a run that goes on draws what it would have drawn"
    assert drawn(4, {})[0]["losses"] == expected


def test_evaluations_and_checkpointed_blocks_change_nothing() -> None:
    plain, evaluated, checkpointed = drawn(2, *({"way": way, "lr": 0.1} for way in ("plain", "evaluated", "checkpointed")))
    assert evaluated["losses"] == plain["losses"]
    assert checkpointed["losses"] == plain["losses"]


if __name__ == "__main__":
    main(globals())

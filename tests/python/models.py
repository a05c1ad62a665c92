"""Small models and data for the tests, made on the spot."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

VOCABULARY = 50


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    """A stack of blocks with a tied head. `recompute`: None, "reentrant" or "other"."""

    def __init__(self, width: int = 16, depth: int = 3, recompute: str | None = None, twice: bool = False):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.tensor(1.5))  # no dimension
        self.recompute = recompute
        self.twice = twice

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) * self.scale
        for block in [*self.blocks, *(self.blocks[:1] if self.twice else [])]:
            if self.recompute is None or not self.training:
                x = block(x)
            else:
                x = checkpoint(block, x, use_reentrant=self.recompute == "reentrant")
        logits = self.head(self.norm(x))
        return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def tokens(step: int, rank: int, rows: int = 2, length: int = 8) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, VOCABULARY, (rows, length), generator=generator)


def largest_difference(a: list[float], b: list[float]) -> float:
    """Of two runs by two libraries, relative to the numbers, or to 1 where they are smaller.

    The tests allow 1e-5. Both sides run fp32 by the same formulas, but in another order: the mean over ranks, the norm (in fp64
    here, in fp32 there), sums of a gradient that comes in parts, and products of matrices where a library picks another kernel.
    Each is a rounding, 6e-8 of a number; an optimizer that divides by a gradient's magnitude makes a weight of that, and some
    steps make 1e-6 of it in a loss. A mean, a clip or a gradient that is wrong is 1e-3 and more. What is the same arithmetic on
    both sides, such as two stages, or the first forward of one model, is compared to the bit instead."""
    assert len(a) == len(b), f"{len(a)} numbers against {len(b)}"
    return max(abs(x - y) / max(1.0, abs(y)) for x, y in zip(a, b))


def train_steps(engine, first: int, last: int) -> list[float]:
    """The losses of steps first to last - 1 on this rank's tokens."""
    losses = []
    for step in range(first, last):
        loss = engine(tokens(step, int(os.environ["RANK"])))
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    return losses

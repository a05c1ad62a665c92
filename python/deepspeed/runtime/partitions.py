"""How DeepSpeed cuts parameters over ranks in its checkpoints: arithmetic only.

Stages 1 and 2: a group's parameters one after the other, padded to a multiple of 2 * world, in equal slices.
Stage 3: each parameter alone, ceil(numel / world) elements a rank, the last ones padded with zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator, Sequence


@dataclass(frozen=True)
class Part:
    """Elements of a parameter in a rank's slice."""

    name: str
    begin: int  # in the parameter
    numel: int
    at: int  # in the slice


def padding_of(total: int, world: int) -> int:
    return -total % (2 * world)


def slice_numel(total: int, world: int) -> int:
    return (total + padding_of(total, world)) // world


def group_parts(params: Sequence[tuple[str, int]], rank: int, world: int) -> Iterator[Part]:
    """What a rank's slice of a group of (name, numel) holds, at stages 1 and 2."""
    size = slice_numel(sum(numel for _, numel in params), world)
    first, last = rank * size, (rank + 1) * size
    offset = 0
    for name, numel in params:
        begin, end = max(first, offset), min(last, offset + numel)
        if begin < end:
            yield Part(name, begin - offset, end - begin, begin - first)
        offset += numel


def lone_numel(numel: int, world: int) -> int:
    """A rank's share of a parameter at stage 3, padding counted."""
    return -(-numel // world)


def sub_groups(params: Sequence[tuple[str, int]], world: int, limit: float) -> list[list[tuple[str, int]]]:
    """A group at stage 3, cut where the shares add up to the limit."""
    found: list[list[tuple[str, int]]] = []
    current: list[tuple[str, int]] = []
    total = 0
    for name, numel in params:
        current.append((name, numel))
        total += lone_numel(numel, world)
        if total >= limit:
            found.append(current)
            current, total = [], 0
    return [*found, current] if current else found

"""Sharded parameters whole for a while: shoal.gathered."""

from __future__ import annotations

from typing import Any, Iterable

import torch

from shoal import _core
from shoal.construction import find_shard
from shoal.owners import owner_of
from shoal.world import world

# Parameters that are gathered now, by id: a gather inside another leaves them alone, without a word to other ranks.
_gathered_now: set[int] = set()


class gathered:
    """`with gathered(params):` has the parameters whole inside. Every rank enters and leaves it.

    params: one parameter or any number; None and ordinary tensors among them are passed over.
    written_by: the rank whose values all ranks take at the end; None: what was written inside is dropped.
    """

    def __init__(self, params: Any, written_by: int | None = None, enabled: bool = True):
        self.params = _distinct(params) if enabled else []
        self.written_by = written_by
        self._mine: list[torch.Tensor] = []
        self._open: list[tuple[Any, int]] = []  # engines and their gathers
        self._lone: _core.GatheredShards | None = None

    @property
    def opened(self) -> list[torch.Tensor]:
        """Of the parameters those that are whole by this gather, while it lasts."""
        return list(self._mine)

    def __enter__(self) -> None:
        by_engine: dict[int, tuple[Any, list[str]]] = {}
        lone = []
        for param in self.params:
            if id(param) in _gathered_now:
                continue
            owner = owner_of(param)
            if owner is not None:
                engine, name = owner
                by_engine.setdefault(id(engine), (engine, []))[1].append(name)
            elif find_shard(param):
                lone.append(param)
            else:
                continue
            self._mine.append(param)
        ranks = [engine.world.size for engine, _ in by_engine.values()] + ([world().size] if lone else [])
        if self.written_by is not None and not all(0 <= self.written_by < size for size in ranks):
            self._mine = []
            raise _core.Error(f"[gathered] rank {self.written_by} is to write, and there are {min(ranks)}. Give one from 0 on, or None.")
        for engine, names in by_engine.values():
            self._open.append((engine.core, engine.core.begin_gathered(names)))
        if lone:
            self._lone = _core.GatheredShards(lone, world())
        _gathered_now.update(id(param) for param in self._mine)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        _gathered_now.difference_update(id(param) for param in self._mine)
        written_by = self.written_by if kind is None else None
        for core, number in reversed(self._open):
            core.finish_gathered(number, written_by)
        if self._lone is not None:
            self._lone.finish(written_by)
        self._mine, self._open, self._lone = [], [], None


def is_gathered(param: torch.Tensor) -> bool:
    """Whether a gather for the user has the parameter whole now."""
    return id(param) in _gathered_now


def is_sharded(param: torch.Tensor) -> bool:
    """Whether the parameter's data is sharded and not whole here now."""
    if id(param) in _gathered_now:
        return False
    owner = owner_of(param)
    return owner[0].is_sharded(param) if owner else find_shard(param)


def _distinct(params: Any) -> list[torch.Tensor]:
    if isinstance(params, torch.Tensor):
        params = [params]
    found: dict[int, torch.Tensor] = {}
    for param in params if isinstance(params, Iterable) else []:
        if isinstance(param, torch.Tensor):
            found.setdefault(id(param), param)
    return list(found.values())

"""Sharded parameters whole for a while: shoal.gathered."""

from __future__ import annotations

import json
from typing import Any, Iterable

import torch

from shoal import _core
from shoal.construction import find_shard
from shoal.marks import mark
from shoal.owners import owner_of
from shoal.world import world

# Parameters that are gathered now, by id: a gather inside another leaves them alone, without a word to other ranks.
_gathered_now: set[int] = set()



class gathered:
    """`with gathered(params):` has the parameters whole inside. Every rank enters and leaves it.

    params: one parameter or any number; None and ordinary tensors among them are passed over.
    written_by: the rank whose values all ranks take at the end, of what some rank has written; None: what was written inside is
    dropped. The master of a 16-bit weight is what was written; a weight that nobody wrote keeps the master that it has.
    """

    def __init__(self, params: Any, written_by: int | None = None, enabled: bool = True):
        self.params = _distinct(params) if enabled else []
        self.written_by = written_by
        self._mine: list[torch.Tensor] = []
        self._open: list[_OfEngine] = []
        self._lone: _core.GatheredShards | None = None

    @property
    def opened(self) -> list[torch.Tensor]:
        """Of the parameters those that are whole by this gather, while it lasts."""
        return list(self._mine)

    def __enter__(self) -> None:
        by_engine: dict[int, tuple[Any, dict[str, torch.Tensor]]] = {}
        lone = []
        for param in self.params:
            if id(param) in _gathered_now:
                continue
            owner = owner_of(param)
            if owner is not None:
                engine, name = owner
                by_engine.setdefault(id(engine), (engine, {}))[1][name] = param
            elif find_shard(param):
                lone.append(param)
            else:
                continue
            self._mine.append(param)
        ranks = [engine.world.size for engine, _ in by_engine.values()] + ([world().size] if lone else [])
        if self.written_by is not None and not all(0 <= self.written_by < size for size in ranks):
            self._mine = []
            raise _core.Error(f"[gathered] rank {self.written_by} is to write, and there are {min(ranks)}. Give one from 0 on, or None.")
        for engine, params in by_engine.values():
            self._open.append(_OfEngine(engine, params, marked=self.written_by is not None))
        if lone:
            self._lone = _core.GatheredShards(lone, world())
        _gathered_now.update(id(param) for param in self._mine)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        _gathered_now.difference_update(id(param) for param in self._mine)
        written_by = self.written_by if kind is None else None
        for each in reversed(self._open):
            each.finish(written_by)
        if self._lone is not None:
            self._lone.finish(written_by)
        self._mine, self._open, self._lone = [], [], None


class _OfEngine:
    """What of a gather is one engine's."""

    def __init__(self, engine: Any, params: dict[str, torch.Tensor], marked: bool):
        """marked: so that what is written inside is found."""
        self._engine, self._core, self._params = engine, engine.core, params
        self._number = self._core.begin_gathered(list(params))
        self._marks = {name: mark(param) for name, param in params.items()} if marked else {}
        self._own = {name: param.data for name, param in params.items()}  # the engine's memory
        self._forms = {name: _form(param) for name, param in params.items()}
        self._unwritten = engine.unwritten(params)  # before it: of the others a step still has to hear

    def finish(self, written_by: int | None) -> None:
        try:
            self._finish(written_by)
        finally:
            self._own = {}
            if written_by is not None:
                self._engine.forget_writes(self._unwritten)

    def _finish(self, written_by: int | None) -> None:
        if written_by is None:
            return self._core.finish_gathered(self._number, None)
        moved = {name: _is_elsewhere(param, self._own[name]) for name, param in self._params.items()}
        other = {name: _form(param) for name, param in self._params.items() if _form(param) != self._forms[name]}
        mine = {name: moved[name] for name, param in self._params.items() if moved[name] or mark(param) != self._marks[name]}
        of_ranks, others = zip(*(json.loads(text) for text in _core.gather_texts(self._engine.world, json.dumps([mine, other]))))
        for rank, changed in enumerate(others):
            for name, form in changed.items():
                self._core.finish_gathered(self._number, None)
                raise _core.Error(
                    f"[gathered] rank {rank} put {form} in place of {name}, which is {self._forms[name]}. A parameter keeps its shape, "
                    "dtype and device while an engine has it."
                )
        written = sorted({name for each in of_ranks for name in each})
        if len(written) == len(self._params) and not any(any(each.values()) for each in of_ranks):
            return self._core.finish_gathered(self._number, written_by)
        # The others keep their masters: what was written is gathered once more, alone.
        writes = self._engine.world.rank == written_by
        values = {name: self._params[name].detach().clone() for name in written} if writes else {}
        for name in (each for each, is_moved in moved.items() if is_moved):
            self._params[name].data = self._own[name]
        self._core.finish_gathered(self._number, None)
        if not written:
            return
        number = self._core.begin_gathered(written)
        with torch.no_grad():
            for name, value in values.items():
                self._params[name].copy_(value)
        self._core.finish_gathered(number, written_by)


def _is_elsewhere(param: torch.Tensor, own: torch.Tensor) -> bool:
    """By `param.data = tensor`: at another place or, transposed, of other strides."""
    return param.data_ptr() != own.data_ptr() or param.stride() != own.stride()


def _form(param: torch.Tensor) -> str:
    return f"a {param.dtype} tensor of shape {tuple(param.shape)} on {param.device}".replace("torch.", "")


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

"""Which engine holds a parameter: a parameter belongs to one engine at a time.

Engines say here that they live. What is built below them (init, gathered, reads on demand) asks here, and so need not know them.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

# The engines that hold parameters now.
_engines: weakref.WeakSet[Any] = weakref.WeakSet()


def add(engine: Any) -> None:
    """engine: has `names`, the names of its parameters by their ids."""
    _engines.add(engine)


def remove(engine: Any) -> None:
    _engines.discard(engine)


def any_lives() -> bool:
    return len(_engines) > 0


def owner_of(param: torch.Tensor) -> tuple[Any, str] | None:
    """The shoal.Engine that holds the parameter, and its name there."""
    for engine in _engines:
        name = engine.names.get(id(param))
        if name is not None:
            return engine, name
    return None

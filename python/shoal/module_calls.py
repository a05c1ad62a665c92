"""Module.zero_grad(), while engines live: on a model of an engine it drops the gradients that the engine keeps, as it drops those of
torch. On all others it does what it did."""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
from torch import nn

from shoal import _core

_Find = Callable[[torch.Tensor], "tuple[Any, str] | None"]


def watch(find: _Find) -> None:
    """From here on. find: the engine that holds a parameter, and its name there."""
    if not hasattr(nn.Module.zero_grad, "shoal_watches"):
        nn.Module.zero_grad = _watched(nn.Module.zero_grad, find)


def unwatch() -> None:
    nn.Module.zero_grad = getattr(nn.Module.zero_grad, "shoal_watches", nn.Module.zero_grad)


def _watched(function: Callable, find: _Find) -> Callable:
    @functools.wraps(function)
    def zero_grad(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        function(self, *args, **kwargs)
        params = {id(param) for param in self.parameters()}
        engines = {id(found[0]): found[0] for found in map(find, self.parameters()) if found is not None}
        for engine in engines.values():
            _drop(engine, params)

    zero_grad.shoal_watches = function
    return zero_grad


def _drop(engine: Any, params: set[int]) -> None:
    rest = [name for name, param in engine.trained if id(param) not in params]
    if not rest:
        engine.front.zero_grad()
    elif engine.core.accumulated > 0:
        raise _core.Error(
            f"[zero_grad] the module is a part of an engine's model, without {rest[0]} and {len(rest) - 1} more: the engine's gradients are "
            "dropped together. Call zero_grad() of the engine or of the whole model."
        )

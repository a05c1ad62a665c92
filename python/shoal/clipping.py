"""torch.nn.utils.clip_grad_norm_ and its like, while engines live: on parameters of an engine they raise, since those have no
.grad and nothing would be clipped. On all others they do what they did. A name imported before is torch's own."""

from __future__ import annotations

import functools
import types
from typing import Any, Callable

import torch
from torch.nn import utils
from torch.nn.utils import clip_grad

from shoal import _core

_NAMES = ("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm", "clip_grads_with_norm_")  # the last where torch has it
_Find = Callable[[torch.Tensor], "tuple[Any, str] | None"]


def watch(find: _Find) -> None:
    """From here on. find: the engine that holds a parameter, and its name there."""
    for module in (utils, clip_grad):
        for name in _NAMES:
            function = getattr(module, name, None)
            if function is not None and not hasattr(function, "shoal_watches"):
                setattr(module, name, _watched(function, find))


def unwatch() -> None:
    for module in (utils, clip_grad):
        for name in _NAMES:
            function = getattr(module, name, None)
            if hasattr(function, "shoal_watches"):
                setattr(module, name, function.shoal_watches)


def _watched(function: Callable, find: _Find) -> Callable:
    @functools.wraps(function)
    def call(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(parameters, torch.Tensor):
            given = list(parameters)
            _refuse(function.__name__, given, find)
            parameters = (each for each in given) if isinstance(parameters, types.GeneratorType) else given
        else:
            _refuse(function.__name__, [parameters], find)
        return function(parameters, *args, **kwargs)

    call.shoal_watches = function
    return call


def _refuse(function: str, params: list[Any], find: _Find) -> None:
    for param in params:
        found = find(param) if isinstance(param, torch.Tensor) and param.requires_grad else None
        if found is not None:
            raise _core.Error(
                f"[{function}] {found[1]} is an engine's, which keeps its gradient: p.grad is None, and nothing would be clipped. Set "
                '"gradient_clipping" in the config, and read the norm by engine.get_global_grad_norm().'
            )

"""What the user calls of a torch optimizer whose parameters an engine holds: it reaches the engine, or is refused."""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

import torch

from shoal import _core


def redirect(optimizer: torch.optim.Optimizer, engine: Any) -> None:
    """zero_grad() and step() of an optimizer that is the engine's: the first drops the engine's gradients, the second is its own.
    engine: that which the user has, with zero_grad() and is_stepping."""
    target = weakref.ref(engine)
    before = vars(optimizer).get("step")  # of a schedule of torch, which counts calls

    def zero_grad(self: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        type(self).zero_grad(self, set_to_none)
        if target() is not None:
            target().zero_grad(set_to_none)

    @functools.wraps(before or type(optimizer).step)
    def step(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        if target() is not None and not target().is_stepping:
            raise _core.Error(f"[{type(self).__name__}] is an engine's, which updates by itself. Call engine.step().")
        return before(*args, **kwargs) if before is not None else type(self).step(self, *args, **kwargs)

    step.before = before
    optimizer.zero_grad = types.MethodType(zero_grad, optimizer)
    optimizer.step = types.MethodType(step, optimizer)


def restore(optimizer: torch.optim.Optimizer) -> None:
    """The optimizer's own methods again, when the engine is destroyed."""
    vars(optimizer).pop("zero_grad", None)
    if not hasattr(vars(optimizer).get("step"), "before"):
        return
    before = vars(optimizer).pop("step").before
    if before is not None:
        optimizer.step = before

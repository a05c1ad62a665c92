"""Whether a model can be an engine's."""

from __future__ import annotations

import gc

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from shoal import _core, demand, hooks
from shoal.owners import owner_of


def check_model(model: nn.Module) -> None:
    """Raises unless it is a model with parameters that no engine holds."""
    if not isinstance(model, nn.Module):
        raise _core.Error(f"[initialize] model is {model!r}, and no torch.nn.Module. Pass the model that is trained.")
    if next(model.parameters(), None) is None:
        raise _core.Error(f"[initialize] {type(model).__name__} has no parameters. Pass the model that is trained.")
    lazy = next((name for name, param in model.named_parameters() if nn.parameter.is_lazy(param)), None)
    if lazy is not None:
        raise _core.Error(f"[initialize] {lazy} has no shape yet: it is of a lazy module. Call the model once on a batch first.")
    for name, param in model.named_parameters():
        if is_traceable_wrapper_subclass(param):
            raise _core.Error(
                f"[initialize] {name} is a {type(param.data).__name__}, which holds other tensors and has no memory of its own. Pass a model of "
                "plain parameters (of a DTensor: full_tensor())."
            )
    if _held(model) is not None:
        gc.collect()  # an engine that nobody has any more may wait for it
    held = _held(model)
    if held is not None:
        raise _core.Error(
            f"[initialize] another engine holds {held}. A parameter belongs to one engine at a time: call destroy() of that engine "
            "first, or use it."
        )
    hooks.forget_dropped(model)
    demand.unwatch(model)


def check_units(modules: list[tuple[str, nn.Module]]) -> None:
    """Raises unless all of them can be units. modules: with their names, as find_units gives them."""
    for path, module in modules:
        if any(isinstance(each, torch.jit.ScriptModule) for each in hooks.called(module)):
            what = path or f"the model, {type(module).__name__},"
            raise _core.Error(
                f"[initialize] {what} is of torch.jit.script or torch.jit.trace: such a module cannot be a unit, for which the engine "
                "gathers weights when it is called. Pass the module as it was before, and compile with engine.compile(); what is "
                "inside a block may be scripted."
            )


def _held(model: nn.Module) -> str | None:
    return next((name for name, param in model.named_parameters() if owner_of(param) is not None), None)

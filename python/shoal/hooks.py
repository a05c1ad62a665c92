"""Hooks on the modules that are units. They hand over to C++ at once; what happens there is in src/engine."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


class UnitHook:
    """What a copy of the module gets is dead: its parameters are not the engine's."""

    __slots__ = ("call", "unit")

    def __init__(self, call: Any, unit: int):
        self.call = call
        self.unit = unit

    def __deepcopy__(self, memo: dict) -> "UnitHook":
        return type(self)(None, self.unit)

    def __reduce__(self) -> tuple:
        return type(self), (None, self.unit)


class BeforeForward(UnitHook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if self.call is not None:
            self.call(self.unit, args, kwargs)


class AfterForward(UnitHook):
    __slots__ = ()

    def __call__(self, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        if self.call is not None:
            self.call(self.unit, output)


def attach(module: nn.Module, unit: int, core: Any) -> list[RemovableHandle]:
    """Reports each forward of `module` as a use of the unit. Ours is entered first and left last."""
    return [
        module.register_forward_pre_hook(BeforeForward(core.enter, unit), prepend=True, with_kwargs=True),
        module.register_forward_hook(AfterForward(core.leave, unit), with_kwargs=True, always_call=True),
    ]

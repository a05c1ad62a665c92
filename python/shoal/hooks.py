"""Hooks on the modules that are units. They hand over to C++ at once; what happens there is in src/engine."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle


class OpenUses:
    """The uses of an engine's units that are open now, innermost last, and units that were entered on demand in them."""

    __slots__ = ("core", "units", "inputs")

    def __init__(self, core: Any):
        self.core = core
        self.units: list[int] = []
        self.inputs: list[tuple | None] = []  # of a use by its module's call; None: on demand

    def enter(self, unit: int, args: tuple, kwargs: dict) -> None:
        self.core.enter(unit, args, kwargs)
        self.units.append(unit)
        self.inputs.append((args, kwargs))

    def demand(self, unit: int) -> None:
        """Has a unit whole until the innermost open use ends. Between passes there is none, and nothing happens."""
        if not self.units or unit in self.units:
            return
        args, kwargs = next(given for given in reversed(self.inputs) if given is not None)
        self.core.enter(unit, args, kwargs)
        self.units.append(unit)
        self.inputs.append(None)

    def leave(self, unit: int, output: Any) -> None:
        if output is None:  # what torch hands to hooks after an exception
            if unit in self.units:
                self._forget_down_to(unit)
            self.core.leave(unit, None)
            return
        while self.inputs[-1] is None:
            self.inputs.pop()
            self.core.leave(self.units.pop(), output)
        self.inputs.pop()
        self.units.pop()
        self.core.leave(unit, output)

    def _forget_down_to(self, unit: int) -> None:
        """The core forgets what is inside the use that failed by itself."""
        while True:
            self.inputs.pop()
            if self.units.pop() == unit:
                return


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


def attach(module: nn.Module, unit: int, uses: OpenUses) -> list[RemovableHandle]:
    """Reports each forward of `module` as a use of the unit. Ours is entered first and left last."""
    return [
        module.register_forward_pre_hook(BeforeForward(uses.enter, unit), prepend=True, with_kwargs=True),
        module.register_forward_hook(AfterForward(uses.leave, unit), with_kwargs=True, always_call=True),
    ]

"""Hooks on the modules that are units. They hand over to C++ at once; what happens there is in src/engine."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from shoal.leaf_seed import LeafSeed


class OpenUses:
    """The uses of an engine's units that are open now, innermost last, and units that were entered on demand in them."""

    __slots__ = ("core", "root", "leaves", "units", "inputs", "handled", "handles")

    def __init__(self, core: Any, root: int, leaves: LeafSeed | None = None):
        self.core = core
        self.root = root
        self.leaves = leaves  # told of forwards of the root, where it has to seed them
        self.handles: list[RemovableHandle] = []  # of the hooks that report to it
        self.units: list[int] = []
        self.inputs: list[tuple | None] = []  # of a use by its module's call; None: on demand
        self.handled: list[BaseException | None] = []  # that the caller was handling when the use began

    def remove(self) -> None:
        """Takes the hooks off; the core is its engine's alone then."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.core = None

    def enter(self, unit: int, args: tuple, kwargs: dict) -> None:
        while unit == self.root and unit in self.units:  # Ctrl-C ended it: torch calls no hooks then
            self._forget_down_to(unit)
            self.core.abandon(unit)
        self.core.enter(unit, args, kwargs)
        self._push(unit, (args, kwargs))
        if unit == self.root and self.leaves is not None:
            self.leaves.begin(self.core)

    def demand(self, unit: int) -> None:
        """Has a unit whole: in forward until the innermost open use ends, in backward until that is over. Between passes
        nothing happens."""
        if self.core.in_backward:
            self.core.read_outside_uses(unit, (), {})
        elif self.units and unit not in self.units:
            args, kwargs = next(given for given in reversed(self.inputs) if given is not None)
            self.core.read_outside_uses(unit, args, kwargs)
            self._push(unit, None)

    def leave(self, unit: int, output: Any) -> None:
        if unit not in self.units:  # it could not be entered
            return
        if unit == self.root and self.leaves is not None:
            self.leaves.finish()
        own = next(at for at in reversed(range(len(self.inputs))) if self.inputs[at] is not None)
        if output is None and sys.exc_info()[1] is not self.handled[own]:  # torch calls hooks after an exception too
            self._forget_down_to(unit)
            self.core.abandon(unit)
            return
        while self.inputs[-1] is None:
            self.core.leave(self._pop(), output)
        self._pop()
        self.core.leave(unit, output)

    def _push(self, unit: int, given: tuple | None) -> None:
        self.units.append(unit)
        self.inputs.append(given)
        self.handled.append(sys.exc_info()[1])

    def _pop(self) -> int:
        self.inputs.pop()
        self.handled.pop()
        return self.units.pop()

    def _forget_down_to(self, unit: int) -> None:
        """The core forgets what is inside the use that failed by itself."""
        while self._pop() != unit:
            pass


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
    handles = []
    for each in called(module):
        handles.append(each.register_forward_pre_hook(BeforeForward(uses.enter, unit), prepend=True, with_kwargs=True))
        handles.append(each.register_forward_hook(AfterForward(uses.leave, unit), with_kwargs=True, always_call=True))
    return handles


class AloneCall:
    """Of a module that has parameters of the root's unit: a call of it while no forward of the root is open, as generate() calls an
    encoder, is a use of the root's unit. What a copy of the module gets is dead."""

    __slots__ = ("uses", "is_open")

    def __init__(self, uses: OpenUses | None):
        self.uses = uses
        self.is_open = False

    def before(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        uses = self.uses
        if uses is not None and uses.core is not None and uses.root not in uses.units and not uses.core.in_backward:
            uses.enter(uses.root, args, kwargs)
            self.is_open = True

    def after(self, module: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        if self.is_open:
            self.is_open = False
            self.uses.leave(self.uses.root, output)

    def __deepcopy__(self, memo: dict) -> "AloneCall":
        return type(self)(None)

    def __reduce__(self) -> tuple:
        return type(self), (None,)


def attach_alone(modules: list[nn.Module], uses: OpenUses) -> list[RemovableHandle]:
    handles = []
    for each in modules:
        call = AloneCall(uses)
        handles.append(each.register_forward_pre_hook(call.before, prepend=True, with_kwargs=True))
        handles.append(each.register_forward_hook(call.after, with_kwargs=True, always_call=True))
    return handles


def called(module: nn.Module) -> list[nn.Module]:
    """The modules whose forwards are a unit's: its own, or those of the members of a list or a dict, which has none."""
    return [module] if has_forward(module) else [each for child in module.children() for each in called(child)]


def has_forward(module: nn.Module) -> bool:
    if isinstance(module, torch.jit.ScriptModule):
        return True
    return type(module).forward is not nn.Module.forward or "forward" in vars(module)


def forget_dropped(model: nn.Module) -> None:
    """Takes off the hooks of an engine that was dropped without destroy(), which are all that is left of it: its core went on with
    the module alone. For a model that no engine holds."""
    for module in model.modules():
        for hook in list(module._forward_pre_hooks.values()):
            if isinstance(hook, BeforeForward) and hook.call is not None:
                hook.call.__self__.remove()

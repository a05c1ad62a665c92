"""Parameters that are read outside their unit: the read enters the unit, until the use that is open then ends.

At stage 3 a module inside a unit answers for its parameters by `WatchedParameters`. A read of one by name, `block.weight`,
while the unit is released and some other unit's forward runs, has the unit gathered; so does one in backward, where a
region is repeated. Between passes nothing is: a released parameter raises when it is touched.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from shoal import gathering
from shoal.hooks import OpenUses
from shoal.owners import owner_of


class WatchedParameters(dict):
    """A module's _parameters. Copies of it are plain dicts."""

    __slots__ = ("unit", "uses", "units")

    def watch(self, unit: int, uses: OpenUses) -> "WatchedParameters":
        self.unit, self.uses, self.units = unit, uses, uses.units
        return self

    def __getitem__(self, name: str) -> Any:
        param = dict.__getitem__(self, name)
        if self.unit not in self.units and param is not None and not gathering.is_gathered(param):
            self.uses.demand(self.unit)
        return param

    def __deepcopy__(self, memo: dict) -> dict:
        return copy.deepcopy(dict(self), memo)

    def __reduce__(self) -> tuple:
        return dict, (dict(self),)


def watch(unit_module: nn.Module, unit: int, uses: OpenUses) -> None:
    for module in unit_module.modules():
        if module._parameters:
            module._parameters = WatchedParameters(module._parameters).watch(unit, uses)


def unwatch(unit_module: nn.Module) -> None:
    for module in unit_module.modules():
        if isinstance(module._parameters, WatchedParameters):
            module._parameters = dict(module._parameters)


def have_whole(param: nn.Parameter) -> None:
    """Has a parameter whole until the innermost unit that runs now is through; for one that no name leads to."""
    owner = owner_of(param)
    if owner is not None:
        engine, name = owner
        engine.uses.demand(engine.unit_of(name))

"""shoal.plan: what a model would take, before anything is allocated. The engine counts with the same functions."""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping

from torch import nn

from shoal import _core
from shoal import config as configs
from shoal.units import UnitRule, find_units, params_of_units


def plan(
    model: nn.Module,
    config: str | os.PathLike | Mapping[str, Any],
    world: int,
    *,
    units: UnitRule | Iterable[str | type] | None = None,
) -> list[_core.MemoryPlan]:
    """The bytes that one of `world` ranks would hold, at stages 0 to 3. The model may be on the meta device."""
    owner: dict[int, int] = {}
    declared = []
    for index, (unit, params) in enumerate(params_of_units(find_units(model, units))):
        own, borrowed = [], set()
        for name, param in params:
            if id(param) not in owner:
                owner[id(param)] = index
                own.append((name, list(getattr(param, "ds_shape", param.shape)), param.requires_grad))
            elif owner[id(param)] != index:
                borrowed.add(owner[id(param)])
        declared.append((unit, own, sorted(borrowed)))
    return _core.plan_stages(declared, configs.parse(config, world), world)


def plan_count(numel: int, largest: int, config: Mapping[str, Any], world: int) -> list[_core.MemoryPlan]:
    """plan for a model of which only the number of parameters is known, in units of `largest` elements."""
    sizes = [largest] * (numel // largest) + ([numel % largest] if numel % largest else [])
    declared = [(f"unit {index}", [(f"unit {index}", [size], True)], []) for index, size in enumerate(sizes)]
    return _core.plan_stages(declared, configs.parse(config, world), world)

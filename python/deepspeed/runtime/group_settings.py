"""Rates, decay and betas of an optimizer's groups, on their way to the core."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

import shoal

from deepspeed.runtime import first_states


def take(engine: Any) -> None:
    """Before a step: what the user or a schedule has written into the groups is what the step takes."""
    groups = engine.basic_optimizer.param_groups
    if engine._known_groups is not None:
        engine._known_groups.check(lambda: keeps_states(engine) and engine._shoal._live("step").progress().applied_steps > 0)
        first_states.refuse_late(engine.basic_optimizer)
    values = [(float(group["lr"]), float(group.get("weight_decay", 0.0))) for group in groups]
    values += [(0.0, 0.0)] * (len(engine._shoal.groups) - len(values))
    core = engine._shoal._live("step")
    for number, (lr, weight_decay) in enumerate(values):
        if not (math.isfinite(lr) and math.isfinite(weight_decay)):
            raise shoal.Error(
                f"[step] lr and weight_decay of the optimizer's group {number} are {lr} and {weight_decay}. Give numbers."
            )
    core.set_groups(values)
    if engine._shoal.client is None and "betas" in groups[0]:
        unlike = [tuple(group["betas"]) for group in groups if tuple(group["betas"]) != tuple(groups[0]["betas"])]
        if unlike:
            raise shoal.Error(
                f"[step] groups have betas {tuple(groups[0]['betas'])} and {unlike[0]}: the engine has one pair for all groups. "
                "Give the schedule one momentum."
            )
        core.set_betas(*(float(beta) for beta in groups[0]["betas"]))


def keeps_states(engine: Any) -> bool:
    """Whether the engine's optimizer keeps states of parameters."""
    groups = engine.basic_optimizer.param_groups
    return engine.optimizer_type != "SGD" or any(group.get("momentum") for group in groups)


def with_rest(module: nn.Module, groups: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """The groups, and one that stands still for parameters that the optimizer was not given."""
    if groups is None:
        return None
    given = {id(param) for group in groups for param in group["params"]}
    rest = [param for param in module.parameters() if param.requires_grad and id(param) not in given]
    return [*groups, {"params": rest, "lr": 0.0, "weight_decay": 0.0}] if rest else list(groups)

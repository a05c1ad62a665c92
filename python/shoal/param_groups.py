"""Parameter groups as a user gives them: torch.optim's dicts."""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import nn

from shoal import _core


def checked(groups: Any, model: nn.Module) -> list[dict[str, Any]] | None:
    """The groups, each with a list of parameters, which are all the model's."""
    known = {id(param): name for name, param in model.named_parameters()}
    places: dict[int, int] = {}
    found = []
    for number, group in enumerate(groups or []):
        if not isinstance(group, Mapping) or "params" not in group:
            raise _core.Error(f'[initialize] group {number} is {group!r:.60}. Give {{"params": [...], "lr": ..., "weight_decay": ...}}.')
        params = group["params"]
        if not isinstance(params, list):
            params = [params] if torch.is_tensor(params) else list(params)
            group = {**group, "params": params}
        found.append(group)
        foreign = [param for param in params if id(param) not in known]
        if foreign:
            raise _core.Error(
                f"[initialize] group {number} of the optimizer has {len(foreign)} of {len(params)} tensors that are no parameters of the "
                f"model, the first of shape {tuple(foreign[0].shape)}. Make the optimizer over the parameters of the model as it is now."
            )
        for param in params:
            if id(param) in places:
                raise _core.Error(
                    f"[initialize] {known[id(param)]} is in group {places[id(param)]} of the optimizer and once more in group {number}: torch "
                    "would update it twice. Give each parameter once."
                )
            places[id(param)] = number
    return found or None


_KEYS = {"params", "lr", "weight_decay", "name"}


def complete(groups: Any, model: nn.Module) -> list[dict[str, Any]] | None:
    """Groups for an optimizer of the config: nothing that it would pass over stands in them, and no trainable parameter outside."""
    found = checked(groups, model)
    given = {id(param) for group in found or [] for param in group["params"]}
    for number, group in enumerate(found or []):
        for key in sorted(group.keys() - _KEYS):
            raise _core.Error(f"[initialize] group {number} has {key!r}, and groups may differ in lr and weight_decay only. Set it in the config.")
    rest = [name for name, param in model.named_parameters() if param.requires_grad and id(param) not in given]
    if found and rest:
        raise _core.Error(
            f"[initialize] {rest[0]} is in no group ({len(rest)} parameters in all), and trainable. Freeze it (requires_grad_(False)), or give "
            'it a group, with "lr": 0 to leave it as it is.'
        )
    return found


def group_of(groups: list[dict[str, Any]] | None) -> dict[int, int]:
    """The number of each parameter's group, by the parameter's id."""
    found = {}
    for index, group in enumerate(groups or []):
        for param in group["params"]:
            found[id(param)] = index
    return found

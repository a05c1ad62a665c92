"""Parameter groups as a user gives them: torch.optim's dicts."""

from __future__ import annotations

from typing import Any, Mapping

import torch
from torch import nn

from shoal import _core


def checked(groups: Any, model: nn.Module) -> list[dict[str, Any]] | None:
    """The groups, each with a list of parameters, which are all the model's."""
    known = {id(param) for param in model.parameters()}
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
    return found or None


def group_of(groups: list[dict[str, Any]] | None) -> dict[int, int]:
    """The number of each parameter's group, by the parameter's id."""
    found = {}
    for index, group in enumerate(groups or []):
        for param in group["params"]:
            found[id(param)] = index
    return found

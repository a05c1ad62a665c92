"""Helpers around torch.save."""

from __future__ import annotations

from typing import Any

import torch


def clone_tensors_for_torch_save(item: Any, device: Any = torch.device("cpu")) -> Any:
    """The same nest of containers with tensors copied to `device`; what is tied stays tied."""
    copies: dict[int, torch.Tensor] = {}

    def clone(value: Any) -> Any:
        if torch.is_tensor(value):
            key = id(value)
            if key not in copies:
                copies[key] = value.detach().clone() if value.device == device else value.detach().to(device)
            return copies[key]
        if isinstance(value, (list, tuple)):
            return type(value)(clone(inner) for inner in value)
        if isinstance(value, dict):
            return type(value)((key, clone(inner)) for key, inner in value.items())
        return value

    return clone(item)

"""A torch optimizer that only holds parameter groups: the engine takes rates and decays from them and updates itself."""

from __future__ import annotations

from typing import Any

import torch

import shoal


# torch wraps this method so that the first call imports its compiler, which takes more than a second.
_add_param_group = getattr(torch.optim.Optimizer.add_param_group, "__wrapped__", torch.optim.Optimizer.add_param_group)


class GroupHolder(torch.optim.Optimizer):
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        _add_param_group(self, param_group)

    def step(self, closure: Any = None) -> None:
        raise shoal.Error(
            f"[{type(self).__name__}] updates through an engine only. Pass it to deepspeed.initialize and call engine.step()."
        )


def refuse_small_states(place: str, fp32_optimizer_states: bool) -> None:
    if not fp32_optimizer_states:
        raise shoal.Error(f"[{place}] fp32_optimizer_states=False is not supported: states are fp32. Leave it out.")

"""A torch optimizer that only holds parameter groups: the engine takes rates and decays from them and updates itself."""

from __future__ import annotations

from typing import Any

import torch

import shoal


class GroupHolder(torch.optim.Optimizer):
    def step(self, closure: Any = None) -> None:
        raise shoal.Error(
            f"[{type(self).__name__}] updates through an engine only. Pass it to deepspeed.initialize and call engine.step()."
        )

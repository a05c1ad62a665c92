"""Lion; see deepspeed.ops.adam."""

from __future__ import annotations

from typing import Any, Iterable

from deepspeed.ops.group_holder import GroupHolder, refuse_small_states


class FusedLion(GroupHolder):
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})


class DeepSpeedCPULion(FusedLion):
    def __init__(
        self,
        model_params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        fp32_optimizer_states: bool = True,
    ):
        refuse_small_states(type(self).__name__, fp32_optimizer_states)
        super().__init__(model_params, lr=lr, betas=betas, weight_decay=weight_decay)


__all__ = ["DeepSpeedCPULion", "FusedLion"]

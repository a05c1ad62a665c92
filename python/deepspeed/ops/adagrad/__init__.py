"""Adagrad; see deepspeed.ops.adam."""

from __future__ import annotations

from typing import Any, Iterable

from deepspeed.ops.group_holder import GroupHolder, refuse_small_states


class DeepSpeedCPUAdagrad(GroupHolder):
    def __init__(
        self,
        model_params: Iterable[Any],
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        fp32_optimizer_states: bool = True,
    ):
        refuse_small_states(type(self).__name__, fp32_optimizer_states)
        super().__init__(model_params, {"lr": lr, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad})


__all__ = ["DeepSpeedCPUAdagrad"]

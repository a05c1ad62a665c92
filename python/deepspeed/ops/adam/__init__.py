"""Adam. These hold groups; the update runs in Shoal's engine, with its own kernels."""

from __future__ import annotations

from typing import Any, Iterable

from deepspeed.ops.group_holder import GroupHolder, refuse_small_states


class FusedAdam(GroupHolder):
    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        adam_w_mode: bool = True,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        set_grad_none: bool = True,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad})
        self.adam_w_mode = adam_w_mode
        self.bias_correction = bias_correction


class DeepSpeedCPUAdam(GroupHolder):
    def __init__(
        self,
        model_params: Iterable[Any],
        lr: float = 1e-3,
        bias_correction: bool = True,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        adamw_mode: bool = True,
        fp32_optimizer_states: bool = True,
    ):
        refuse_small_states(type(self).__name__, fp32_optimizer_states)
        super().__init__(
            model_params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad}
        )
        self.adam_w_mode = adamw_mode
        self.bias_correction = bias_correction


__all__ = ["DeepSpeedCPUAdam", "FusedAdam"]

"""Adam and AdamW by Shoal's kernels; see deepspeed.ops.kernel_optimizer."""

from __future__ import annotations

from typing import Any, Iterable

import torch

from deepspeed.ops.fused_steps import FusedOptimizer
from deepspeed.ops.kernel_optimizer import KernelOptimizer


def _group(
    lr: float, bias_correction: bool, betas: tuple[float, float], eps: float, weight_decay: float, amsgrad: bool
) -> dict[str, Any]:
    """What a group has where it says nothing else. A DeepSpeed that loads our checkpoint takes all of it from there."""
    common = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    return common | {"bias_correction": bias_correction, "amsgrad": amsgrad}


class FusedAdam(FusedOptimizer):
    state_names = ("exp_avg", "exp_avg_sq")
    kept = ("adam_w_mode", "set_grad_none")

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
        super().__init__(params, _group(lr, bias_correction, betas, eps, weight_decay, amsgrad))
        self.adam_w_mode = adam_w_mode
        self.set_grad_none = set_grad_none

    @property
    def kind(self) -> str:
        return "adamw" if self.adam_w_mode else "adam"


class DeepSpeedCPUAdam(KernelOptimizer):
    state_names = ("exp_avg", "exp_avg_sq")
    kept = ("adam_w_mode", "fp32_optimizer_states")

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
        super().__init__(model_params, _group(lr, bias_correction, betas, eps, weight_decay, amsgrad))
        self.adam_w_mode = adamw_mode
        self.fp32_optimizer_states = fp32_optimizer_states

    @property
    def kind(self) -> str:
        return "adamw" if self.adam_w_mode else "adam"

    def state_dtype(self, param: torch.Tensor) -> torch.dtype:
        return torch.float32 if self.fp32_optimizer_states else param.dtype


__all__ = ["DeepSpeedCPUAdam", "FusedAdam"]

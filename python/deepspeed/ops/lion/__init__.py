"""Lion by Shoal's kernels; see deepspeed.ops.kernel_optimizer. A weight whose direction is 0 stands still, as in the paper;
DeepSpeed's CPU kernel moves it by the rate."""

from __future__ import annotations

from typing import Any, Iterable

import torch

from deepspeed.ops.fused_steps import FusedOptimizer
from deepspeed.ops.kernel_optimizer import KernelOptimizer


class FusedLion(FusedOptimizer):
    kind = "lion"
    state_names = ("exp_avg",)
    kept = ("set_grad_none",)

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        set_grad_none: bool = True,
    ):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
        self.set_grad_none = set_grad_none


class DeepSpeedCPULion(KernelOptimizer):
    kind = "lion"
    state_names = ("exp_avg",)
    kept = ("fp32_optimizer_states",)

    def __init__(
        self,
        model_params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        weight_decay: float = 0.0,
        fp32_optimizer_states: bool = True,
    ):
        super().__init__(model_params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})
        self.fp32_optimizer_states = fp32_optimizer_states

    def state_dtype(self, param: torch.Tensor) -> torch.dtype:
        return torch.float32 if self.fp32_optimizer_states else param.dtype


__all__ = ["DeepSpeedCPULion", "FusedLion"]

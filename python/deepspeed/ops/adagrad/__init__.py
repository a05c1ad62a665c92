"""Adagrad by Shoal's kernels; see deepspeed.ops.kernel_optimizer."""

from __future__ import annotations

from typing import Any, Iterable

import torch

from deepspeed.ops.kernel_optimizer import KernelOptimizer


class DeepSpeedCPUAdagrad(KernelOptimizer):
    """A sparse gradient updates the rows that it names, and decays those alone."""

    kind = "adagrad"
    state_names = ("exp_avg_sq",)
    kept = ("fp32_optimizer_states",)

    def __init__(
        self,
        model_params: Iterable[Any],
        lr: float = 1e-2,
        eps: float = 1e-10,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        fp32_optimizer_states: bool = True,
    ):
        super().__init__(model_params, {"lr": lr, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad})
        self.fp32_optimizer_states = fp32_optimizer_states

    def state_dtype(self, param: torch.Tensor) -> torch.dtype:
        return torch.float32 if self.fp32_optimizer_states else param.dtype

    def _update_rows(self, param: torch.Tensor, state: dict[str, Any], group: dict[str, Any]) -> None:
        grad = param.grad.coalesce()
        if grad.sparse_dim() != 1 or param.device.type != "cpu":
            raise RuntimeError("[DeepSpeedCPUAdagrad] a sparse gradient must be of rows, in host memory. Make it dense.")
        rows = grad.indices()[0]
        weight, total = param.detach()[rows], state["exp_avg_sq"][rows]
        self._update(weight, grad.values(), [total], int(state["step"]), group)
        param.detach()[rows] = weight
        state["exp_avg_sq"][rows] = total


__all__ = ["DeepSpeedCPUAdagrad"]

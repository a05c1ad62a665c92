"""What FusedAdam and FusedLion have in common: arguments of an earlier step(), and how gradients are cleared."""

from __future__ import annotations

from typing import Any, Callable

import torch

from deepspeed.ops.kernel_optimizer import KernelOptimizer


class FusedOptimizer(KernelOptimizer):
    """Its states have the dtype of the parameter, as DeepSpeed's have."""

    set_grad_none = True

    def state_dtype(self, param: torch.Tensor) -> torch.dtype:
        return param.dtype

    def step(
        self,
        closure: Callable[[], Any] | None = None,
        grads: Any = None,
        output_params: Any = None,
        scale: Any = None,
        grad_norms: Any = None,
        grad_scaler: Any = None,
    ) -> Any:
        if any(each is not None for each in (grads, output_params, scale, grad_norms, grad_scaler)):
            raise RuntimeError(f"[{type(self).__name__}] step() takes a closure alone. Leave the other arguments out.")
        return super().step(closure)

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        super().zero_grad(self.set_grad_none if set_to_none is None else set_to_none)

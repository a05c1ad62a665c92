"""Adam. These hold groups; the update runs in Shoal's engine, with its own kernels."""

from __future__ import annotations

from typing import Any, Iterable

from deepspeed.ops.group_holder import GroupHolder, refuse_small_states


def _group(
    lr: float, bias_correction: bool, betas: tuple[float, float], eps: float, weight_decay: float, amsgrad: bool
) -> dict[str, Any]:
    """What a group has where it says nothing else. A DeepSpeed that loads our checkpoint takes all of it from there."""
    common = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
    return common | {"bias_correction": bias_correction, "amsgrad": amsgrad}


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
        super().__init__(params, _group(lr, bias_correction, betas, eps, weight_decay, amsgrad))
        self.adam_w_mode = adam_w_mode


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
        super().__init__(model_params, _group(lr, bias_correction, betas, eps, weight_decay, amsgrad))
        self.adam_w_mode = adamw_mode


__all__ = ["DeepSpeedCPUAdam", "FusedAdam"]

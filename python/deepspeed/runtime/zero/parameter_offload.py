"""What TRL touches to take hooks off a model for generation. Shoal's hooks may stay: they cost microseconds."""

from __future__ import annotations

from typing import Any

from torch import nn


class _Coordinator:
    def is_invalid_trace(self) -> bool:
        return False

    def _invalidate_trace(self) -> None:
        """Orders of units are kept for training and evaluation apart."""


class DeepSpeedZeRoOffload:
    """The `parameter_offload` of an optimizer at stage 3, and the `optimizer` of an engine for inference."""

    def __init__(self, module: nn.Module):
        self.__dict__["module"] = module
        self.forward_hooks: list[Any] = []
        self.backward_hooks: list[Any] = []
        self.param_coordinator = _Coordinator()
        self.overflow = False

    @property
    def parameter_offload(self) -> "DeepSpeedZeRoOffload":
        return self

    def get_param_coordinator(self, training: bool = True) -> _Coordinator:
        return self.param_coordinator

    def setup_zero_stage3_hooks(self) -> None:
        """The engine's hooks were never taken off."""

    def _register_deepspeed_module(self, module: nn.Module, count: list[int] | None = None) -> None:
        """The engine's hooks were never taken off."""

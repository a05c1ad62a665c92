"""The optimizer that deepspeed.initialize returns: the groups of a torch optimizer, whose updates run in the engine."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

import shoal

from deepspeed.runtime.fp16.loss_scaler import LossScalerOfEngine
from deepspeed.utils.arguments import refuse
from deepspeed.utils.logging import warning_once


class DeepSpeedOptimizer(torch.optim.Optimizer):
    """Holds no state of its own. `param_groups` is the list of the torch optimizer inside: what a schedule writes there
    is what the next step takes."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer
        self.overflow = False
        self.engine: Any = None
        self._optimizer_step_pre_hooks: OrderedDict = OrderedDict()
        self._optimizer_step_post_hooks: OrderedDict = OrderedDict()

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, value: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = value

    @property
    def state(self) -> Any:
        return self.optimizer.state

    @property
    def defaults(self) -> dict[str, Any]:
        return self.optimizer.defaults

    @property
    def loss_scale(self) -> float:
        return self.engine.cur_scale if self.engine is not None else 1.0

    cur_scale = loss_scale

    @property
    def loss_scaler(self) -> Any:
        """The scale of fp16 with its counters, as they are now. It cannot be written."""
        return LossScalerOfEngine(self.engine)

    @property
    def dynamic_loss_scale(self) -> bool:
        return self.engine.dynamic_loss_scale()

    @property
    def scale_window(self) -> int:
        return self.loss_scaler.scale_window

    @property
    def min_loss_scale(self) -> float:
        return self.loss_scaler.min_scale

    @property
    def single_partition_of_fp32_groups(self) -> list[torch.Tensor]:
        """What this rank owns of the fp32 weights of each group, in a row: a copy. The name is DeepSpeed's at stages 1 and 2."""
        return self._own_weights("single_partition_of_fp32_groups", (1, 2))

    @property
    def fp32_partitioned_groups_flat(self) -> list[torch.Tensor]:
        """The same at stage 3."""
        return self._own_weights("fp32_partitioned_groups_flat", (3,))

    def _own_weights(self, name: str, stages: tuple[int, ...]) -> list[torch.Tensor]:
        if self.engine is None or self.engine.zero_optimization_stage() not in stages:
            raise AttributeError(f"[optimizer] has {name} at stages {stages} only.")
        return self.engine.own_weights()

    def step(self, closure: Any = None) -> None:
        """The engine updates: call engine.step()."""
        refuse("optimizer.step", "Compute the loss before engine.step().", closure=closure)
        raise shoal.Error("[optimizer.step] the optimizer is an engine's, which updates by itself. Call engine.step().")

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As the engine's: drops the gradients of a step that is not to be taken."""
        if self.engine is not None:
            self.engine.zero_grad(set_to_none)

    def add_param_group(self, group: dict[str, Any]) -> None:
        raise RuntimeError("[optimizer] groups cannot be added after initialize. Call initialize again.")

    def state_dict(self) -> dict[str, Any]:
        """The groups without their parameters; states are saved with the engine."""
        warning_once("optimizer.state_dict() has the settings and no states: those are saved by engine.save_checkpoint().")
        groups = [{key: value for key, value in group.items() if key != "params"} for group in self.param_groups]
        return {"param_groups": groups}

    def load_state_dict(self, state: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        take_settings(self.param_groups, state.get("param_groups", []))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.optimizer!r})"


class ZeROOptimizer(DeepSpeedOptimizer):
    """At stages 1 to 3."""


def take_settings(groups: list[dict[str, Any]], saved: list[dict[str, Any]]) -> None:
    """Rates and the like of saved groups; the parameters stay."""
    for group, values in zip(groups, saved):
        group.update({key: value for key, value in values.items() if key != "params"})

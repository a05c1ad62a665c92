"""DeepSpeed's five schedules. The formulas are the core's; a schedule here counts steps and writes rates into groups."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import torch

from shoal import _core, Error
from shoal import config as configs

VALID_LR_SCHEDULES = ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]


class _Schedule:
    def __init__(self, optimizer: torch.optim.Optimizer, last_batch_iteration: int = -1, **params: Any):
        self.optimizer = optimizer
        self.last_batch_iteration = last_batch_iteration
        given = {key: value for key, value in params.items() if value is not None and value != "auto"}
        config = configs.parse(
            {
                "train_micro_batch_size_per_gpu": 1,
                "optimizer": {"type": "AdamW"},
                "scheduler": {"type": type(self).__name__, "params": given},
            },
            1,
        )
        self._schedule = _core.LrSchedule(config, [float(group["lr"]) for group in optimizer.param_groups])
        self._last_lr: list[float] | None = None
        self._write()

    def step(self, last_batch_iteration: int | None = None) -> None:
        self.last_batch_iteration = self.last_batch_iteration + 1 if last_batch_iteration is None else last_batch_iteration
        self._last_lr = self._write()

    def get_lr(self) -> list[float]:
        return self._schedule.lrs(self.last_batch_iteration + 1)

    def get_last_lr(self) -> list[float]:
        assert self._last_lr is not None, "need to call step() first"
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last_batch_iteration = state["last_batch_iteration"]
        rates = self._write()
        if self.last_batch_iteration >= 0:
            self._last_lr = rates

    def _write(self) -> list[float]:
        steps = self.last_batch_iteration + 1
        rates = self._schedule.lrs(steps)
        beta1, beta2 = self._schedule.beta1(steps), self._schedule.beta2()
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate
            if beta1 is not None and "betas" in group:
                group["betas"] = (beta1, beta2 if beta2 is not None else group["betas"][1])
        return rates


class LRRangeTest(_Schedule):
    pass


class OneCycle(_Schedule):
    pass


class WarmupLR(_Schedule):
    pass


class WarmupDecayLR(_Schedule):
    pass


class WarmupCosineLR(_Schedule):
    pass


_CLASSES = {kind.__name__: kind for kind in (LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR)}


def to_check(section: Any) -> Any:
    """The section of a config as the core can check it: without what a schedule here takes beyond that."""
    if not isinstance(section, Mapping) or not isinstance(section.get("params", {}), Mapping):
        return section
    if section.get("type") not in _CLASSES and hasattr(torch.optim.lr_scheduler, str(section.get("type"))):
        return {**section, "type": "WarmupLR", "params": {}}  # torch's class checks its own
    params = {key: value for key, value in section.get("params", {}).items() if value is not None and key != "last_batch_iteration"}
    return {**section, "params": params} if "params" in section else section


def make_scheduler(optimizer: Any, basic: Any, config: dict[str, Any], client: Any) -> Any:
    """The schedule of an engine: the client's object, what its function makes, or what the config names."""
    if isinstance(client, Callable) and not hasattr(client, "step"):
        return client(basic)
    if client is not None:
        return client
    section = config.get("scheduler")
    if not section or optimizer is None or not section.get("type"):
        return None
    name, params = section["type"], section.get("params", {})
    if name in _CLASSES:
        return _CLASSES[name](optimizer, **params)
    if hasattr(torch.optim.lr_scheduler, name):
        return getattr(torch.optim.lr_scheduler, name)(basic, **params)
    raise Error(f"[config scheduler.type] {name} is not a schedule. Use one of {', '.join(_CLASSES)}.")

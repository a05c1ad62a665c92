"""DeepSpeed's five schedules. The formulas are the core's; a schedule here counts steps and writes rates into groups."""

from __future__ import annotations

from typing import Any, Callable, Mapping

import torch

from shoal import _core, Error
from shoal import config as configs

from deepspeed.runtime.config import without_auto

VALID_LR_SCHEDULES = ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]


# One value a group, or one for all.
_BY_GROUP = (
    "lr_range_test_min_lr", "warmup_min_lr", "warmup_max_lr", "cycle_min_lr", "cycle_max_lr", "cycle_min_mom", "cycle_max_mom",
)  # fmt: skip
_MOMENTA = ("cycle_min_mom", "cycle_max_mom")


class _Schedule:
    def __init__(self, optimizer: torch.optim.Optimizer, last_batch_iteration: int, **params: Any):
        self.optimizer = optimizer
        self.last_batch_iteration = last_batch_iteration
        groups = optimizer.param_groups
        given = _of_groups(type(self).__name__, params, len(groups))
        self._schedules = [
            _core.LrSchedule(_checked(type(self).__name__, each), [float(group["lr"])]) for each, group in zip(given, groups)
        ]
        self._last_lr: list[float] | None = None
        self._write()

    def step(self, last_batch_iteration: int | None = None) -> None:
        self.last_batch_iteration = self.last_batch_iteration + 1 if last_batch_iteration is None else last_batch_iteration
        self._last_lr = self._write()

    def get_lr(self) -> list[float]:
        return [schedule.lrs(self.last_batch_iteration + 1)[0] for schedule in self._schedules]

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
        rates = self.get_lr()
        for group, rate, schedule in zip(self.optimizer.param_groups, rates, self._schedules):
            group["lr"] = rate
            beta1, beta2 = schedule.beta1(self.last_batch_iteration + 1), schedule.beta2()
            if beta1 is not None and "betas" in group:
                group["betas"] = (beta1, beta2 if beta2 is not None else group["betas"][1])
        return rates


def _of_groups(name: str, params: dict[str, Any], groups: int) -> list[dict[str, Any]]:
    """The parameters of a schedule for each group."""
    found = [dict(params) for _ in range(groups)]
    for key, values in params.items():
        if key not in _BY_GROUP or not isinstance(values, (list, tuple)):
            continue
        if len(values) != groups:
            raise Error(f"[{name} {key}] has {len(values)} values for {groups} groups of parameters. Give one a group, or one for all.")
        if key in _MOMENTA and len(set(values)) > 1:
            raise Error(f"[{name} {key}] is {list(values)}: the engine has one momentum for all groups. Give one value.")
        for given, value in zip(found, values):
            given[key] = value
    return found


def _checked(name: str, params: dict[str, Any]) -> _core.Config:
    """Raises with the name of a parameter that is unknown, missing or wrong. None is a value of warmup_max_lr alone, and
    elsewhere means the default, as "auto" does."""
    given = {key: value for key, value in params.items() if value != "auto" and (value is not None or key == "warmup_max_lr")}
    scheduler = {"type": name, "params": given}
    return configs.parse({"train_micro_batch_size_per_gpu": 1, "optimizer": {"type": "AdamW"}, "scheduler": scheduler}, 1)


# Parameters are in DeepSpeed's order, with its defaults. What it requires is None here, for the core to ask for it by name.


class LRRangeTest(_Schedule):
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        lr_range_test_min_lr: float | list[float] = 1e-3,
        lr_range_test_step_size: int = 2000,
        lr_range_test_step_rate: float = 1.0,
        lr_range_test_staircase: bool = False,
        last_batch_iteration: int = -1,
    ):
        super().__init__(
            optimizer,
            last_batch_iteration,
            lr_range_test_min_lr=lr_range_test_min_lr,
            lr_range_test_step_size=lr_range_test_step_size,
            lr_range_test_step_rate=lr_range_test_step_rate,
            lr_range_test_staircase=lr_range_test_staircase,
        )

    def step(self, batch_iteration: int | None = None) -> None:
        super().step(batch_iteration)


class OneCycle(_Schedule):
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        cycle_min_lr: float | list[float] | None = None,
        cycle_max_lr: float | list[float] | None = None,
        decay_lr_rate: float = 0.0,
        cycle_first_step_size: int = 2000,
        cycle_second_step_size: int | None = None,
        cycle_first_stair_count: int = 0,
        cycle_second_stair_count: int | None = None,
        decay_step_size: int = 0,
        cycle_momentum: bool = True,
        cycle_min_mom: float | list[float] = 0.8,
        cycle_max_mom: float | list[float] = 0.9,
        decay_mom_rate: float = 0.0,
        last_batch_iteration: int = -1,
    ):
        super().__init__(
            optimizer,
            last_batch_iteration,
            cycle_min_lr=cycle_min_lr,
            cycle_max_lr=cycle_max_lr,
            decay_lr_rate=decay_lr_rate,
            cycle_first_step_size=cycle_first_step_size,
            cycle_second_step_size=cycle_second_step_size,
            cycle_first_stair_count=cycle_first_stair_count,
            cycle_second_stair_count=cycle_second_stair_count,
            decay_step_size=decay_step_size,
            cycle_momentum=cycle_momentum,
            cycle_min_mom=cycle_min_mom,
            cycle_max_mom=cycle_max_mom,
            decay_mom_rate=decay_mom_rate,
        )

    def step(self, batch_iteration: int | None = None) -> None:
        super().step(batch_iteration)


class WarmupLR(_Schedule):
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        warmup_min_lr: float | list[float] = 0.0,
        warmup_max_lr: float | list[float] | None = None,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ):
        super().__init__(
            optimizer,
            last_batch_iteration,
            warmup_min_lr=warmup_min_lr,
            warmup_max_lr=warmup_max_lr,
            warmup_num_steps=warmup_num_steps,
            warmup_type=warmup_type,
        )


class WarmupDecayLR(_Schedule):
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        total_num_steps: int | None = None,
        warmup_min_lr: float | list[float] = 0.0,
        warmup_max_lr: float | list[float] | None = 0.001,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ):
        super().__init__(
            optimizer,
            last_batch_iteration,
            total_num_steps=total_num_steps,
            warmup_min_lr=warmup_min_lr,
            warmup_max_lr=warmup_max_lr,
            warmup_num_steps=warmup_num_steps,
            warmup_type=warmup_type,
        )


class WarmupCosineLR(_Schedule):
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        total_num_steps: int | None = None,
        warmup_min_ratio: float = 0.0,
        warmup_num_steps: int = 1000,
        cos_min_ratio: float = 0.0001,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ):
        super().__init__(
            optimizer,
            last_batch_iteration,
            total_num_steps=total_num_steps,
            warmup_min_ratio=warmup_min_ratio,
            warmup_num_steps=warmup_num_steps,
            cos_min_ratio=cos_min_ratio,
            warmup_type=warmup_type,
        )


_CLASSES = {kind.__name__: kind for kind in (LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR)}


def to_check(section: Any) -> Any:
    """The section of a config as the core can check it: without what a schedule here takes beyond that."""
    if not isinstance(section, Mapping) or not isinstance(section.get("params", {}), Mapping):
        return section
    if section.get("type") not in _CLASSES and hasattr(torch.optim.lr_scheduler, str(section.get("type"))):
        return {**section, "type": "WarmupLR", "params": {}}  # torch's class checks its own
    if "params" not in section:
        return section
    params = {key: value for key, value in section["params"].items() if value is not None and key != "last_batch_iteration"}
    for key in _BY_GROUP & params.keys():
        if isinstance(params[key], (list, tuple)) and params[key]:
            params[key] = params[key][0]  # the others when the groups are known
    return {**section, "params": params}


def make_scheduler(optimizer: Any, basic: Any, config: dict[str, Any], client: Any) -> Any:
    """The schedule of an engine: the client's object, what its function makes, or what the config names."""
    if isinstance(client, Callable) and not hasattr(client, "step"):
        return client(basic)
    if client is not None:
        return client
    section = without_auto(config.get("scheduler"))
    if not section or optimizer is None or not section.get("type"):
        return None
    name, params = section["type"], section.get("params", {})
    if name in _CLASSES:
        known = {key: value for key, value in params.items() if key != "last_batch_iteration"}
        for given in _of_groups(name, known, len(optimizer.param_groups)):
            _checked(name, given)  # before Python says what a class does not take
        return _CLASSES[name](optimizer, **params)
    if hasattr(torch.optim.lr_scheduler, name):
        try:
            return getattr(torch.optim.lr_scheduler, name)(basic, **params)
        except (TypeError, ValueError) as error:
            raise Error(f"[config scheduler.params] torch.optim.lr_scheduler.{name} refuses them: {error}.") from None
    raise Error(f"[config scheduler.type] {name} is not a schedule. Use one of {', '.join(_CLASSES)}.")

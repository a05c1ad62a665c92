"""DeepSpeed's five schedules, and two of ours. The formulas are the core's; a schedule here counts steps and writes rates into groups."""

from __future__ import annotations

import math
from typing import Any, Callable, Iterable, Mapping

import torch

from shoal import _core, Error
from shoal import config as configs

from deepspeed.runtime.config_translation import without_auto
from deepspeed.utils.logging import logger

VALID_LR_SCHEDULES = ["LRRangeTest", "OneCycle", "WarmupLR", "WarmupDecayLR", "WarmupCosineLR"]


# One value a group, or one for all.
_BY_GROUP = (
    "lr_range_test_min_lr", "warmup_min_lr", "warmup_max_lr", "cycle_min_lr", "cycle_max_lr", "cycle_min_mom", "cycle_max_mom",
)  # fmt: skip
_MOMENTA = ("cycle_min_mom", "cycle_max_mom")


class ScheduleError(Error, ValueError):
    """A schedule cannot be made of what it was given."""


def get_torch_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """The optimizer itself, or the one inside."""
    for found in (optimizer, getattr(optimizer, "optimizer", None)):
        if isinstance(found, torch.optim.Optimizer):
            return found
    raise TypeError(f"[schedule] {type(optimizer).__name__} is not a torch.optim.Optimizer and has none inside. Pass one.")


def update_lr(param_groups: list[dict[str, Any]], lrs: Iterable[Any]) -> list[Any]:
    """Writes a rate into each group; one that is a tensor stays that tensor."""
    for group, rate in zip(param_groups, lrs):
        if torch.is_tensor(group["lr"]):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate
    return [group["lr"] for group in param_groups]


class _Schedule:
    """Attributes that begin without an underscore have DeepSpeed's names."""

    def __init__(self, optimizer: torch.optim.Optimizer, last_batch_iteration: int, **params: Any):
        self.optimizer = get_torch_optimizer(optimizer)
        self.last_batch_iteration = last_batch_iteration
        self._given = {key: _numbers(value) for key, value in params.items()}
        groups = self.optimizer.param_groups
        name = type(self).__name__
        self._first_lrs = [float(group["lr"]) for group in groups]
        try:
            given = _of_groups(name, self._given, len(groups))
            self._schedules = [_core.LrSchedule(_checked(name, each), [lr]) for each, lr in zip(given, self._first_lrs)]
        except ScheduleError:
            raise
        except Error as error:
            raise ScheduleError(str(error)) from None
        self._last_lr: list[Any] | None = None
        if last_batch_iteration == -1:
            self._last_lr = self._write()

    def step(self, last_batch_iteration: int | None = None) -> None:
        self.last_batch_iteration = self.last_batch_iteration + 1 if last_batch_iteration is None else last_batch_iteration
        self._last_lr = self._write()

    def get_lr(self) -> list[float]:
        return [schedule.lrs(self.last_batch_iteration + 1)[0] for schedule in self._schedules]

    def get_last_lr(self) -> list[Any]:
        assert self._last_lr is not None, "need to call step() first"
        return self._last_lr

    def state_dict(self) -> dict[str, Any]:
        return {"last_batch_iteration": self.last_batch_iteration}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.last_batch_iteration = state["last_batch_iteration"]
        rates = self._write()
        if self.last_batch_iteration >= 0:
            self._last_lr = rates

    def _write(self) -> list[Any]:
        for group, betas in zip(self.optimizer.param_groups, self._betas()):
            if betas is not None and "betas" in group:
                group["betas"] = betas
        return update_lr(self.optimizer.param_groups, self.get_lr())

    def _betas(self) -> list[tuple[float, float] | None]:
        found = [(schedule.beta1(self.last_batch_iteration + 1), schedule.beta2()) for schedule in self._schedules]
        return [None if beta1 is None else (beta1, beta2) for beta1, beta2 in found]

    def _by_group(self, key: str) -> list[Any]:
        """A parameter of each group; where it is None, the rate that the group had."""
        value = self._given[key]
        values = list(value) if isinstance(value, (list, tuple)) else [value] * len(self._first_lrs)
        return [lr if each is None else each for each, lr in zip(values, self._first_lrs)]


class _Warmup(_Schedule):
    @property
    def warmup_num_steps(self) -> int:
        return max(2, self._given["warmup_num_steps"])

    @property
    def warmup_type(self) -> str:
        return self._given["warmup_type"]

    @property
    def inverse_log_warm_up(self) -> float:
        return 1.0 / math.log(self.warmup_num_steps)


def _numbers(value: Any) -> Any:
    """Rates that are tensors, as numbers; all else as it is."""
    if isinstance(value, (list, tuple)):
        return [_numbers(each) for each in value]
    return value.item() if torch.is_tensor(value) and value.numel() == 1 else value


def _of_groups(name: str, params: dict[str, Any], groups: int) -> list[dict[str, Any]]:
    """The parameters of a schedule for each group."""
    found = [dict(params) for _ in range(groups)]
    for key, values in params.items():
        if key not in _BY_GROUP or not isinstance(values, (list, tuple)):
            continue
        if len(values) != groups:
            raise ScheduleError(f"[{name} {key}] has {len(values)} values for {groups} groups of parameters. Give one a group, or one for all.")
        for given, value in zip(found, values):
            given[key] = value
    return found


def _refuse_unlike_momenta(name: str, params: Mapping[str, Any]) -> None:
    for key in _MOMENTA:
        values = params.get(key)
        if isinstance(values, (list, tuple)) and len(set(values)) > 1:
            raise Error(f"[{name} {key}] is {list(values)}: the engine has one momentum for all groups. Give one value.")


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
        self.min_lr = self._by_group("lr_range_test_min_lr")
        self.step_size, self.step_rate = lr_range_test_step_size, lr_range_test_step_rate
        self.staircase = lr_range_test_staircase

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
        self.min_lrs, self.max_lrs = self._by_group("cycle_min_lr"), self._by_group("cycle_max_lr")
        self.first_step_size = float(cycle_first_step_size)
        self.second_step_size = self.first_step_size if cycle_second_step_size is None else float(cycle_second_step_size)
        self.total_size = self.first_step_size + self.second_step_size
        self.step_ratio = self.first_step_size / self.total_size
        self.first_stair_count = cycle_first_stair_count
        self.second_stair_count = cycle_first_stair_count if cycle_second_stair_count is None else cycle_second_stair_count
        self.decay_lr_rate, self.decay_mom_rate, self.decay_step_size = decay_lr_rate, decay_mom_rate, decay_step_size
        self.cycle_momentum = bool(cycle_momentum) and "betas" in self.optimizer.defaults
        if cycle_momentum and not self.cycle_momentum:
            logger.warning(
                "[OneCycle] cycle_momentum has no effect: %s has no betas.", type(self.optimizer).__name__
            )
        if self.cycle_momentum:
            self.min_moms = [(beta1, 0.99) for beta1 in self._by_group("cycle_min_mom")]
            self.max_moms = [(beta1, 0.99) for beta1 in self._by_group("cycle_max_mom")]

    def get_mom(self) -> list[tuple[float, float] | None] | None:
        """The betas of each group for the next step; None where momenta are left alone."""
        return self._betas() if self.cycle_momentum else None

    def step(self, batch_iteration: int | None = None) -> None:
        super().step(batch_iteration)


class WarmupLR(_Warmup):
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        warmup_min_lr: float | list[float] = 0.0,
        warmup_max_lr: float | list[float] | None = None,
        warmup_num_steps: int = 1000,
        warmup_type: str = "log",
        last_batch_iteration: int = -1,
    ):
        self._begin(
            optimizer,
            last_batch_iteration,
            warmup_min_lr=warmup_min_lr,
            warmup_max_lr=warmup_max_lr,
            warmup_num_steps=warmup_num_steps,
            warmup_type=warmup_type,
        )

    def _begin(self, optimizer: torch.optim.Optimizer, last_batch_iteration: int, **params: Any) -> None:
        _Schedule.__init__(self, optimizer, last_batch_iteration, **params)
        self.min_lrs, self.max_lrs = self._by_group("warmup_min_lr"), self._by_group("warmup_max_lr")
        self.delta_lrs = [high - low for high, low in zip(self.max_lrs, self.min_lrs)]


class WarmupDecayLR(WarmupLR):
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
        self.total_num_steps = total_num_steps
        self._begin(
            optimizer,
            last_batch_iteration,
            total_num_steps=total_num_steps,
            warmup_min_lr=warmup_min_lr,
            warmup_max_lr=warmup_max_lr,
            warmup_num_steps=warmup_num_steps,
            warmup_type=warmup_type,
        )


class WarmupCosineLR(_Warmup):
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
        self.total_num_steps = total_num_steps
        self.warmup_min_ratio, self.cos_min_ratio = warmup_min_ratio, cos_min_ratio
        self.org_lrs = list(self._first_lrs)
        given = _of_groups(type(self).__name__, self._given, 1)[0]
        self._ratio = _core.LrSchedule(_checked(type(self).__name__, given), [1.0])

    def get_lr_ratio(self) -> float:
        """What the rate of every group is multiplied by."""
        return self._ratio.lrs(self.last_batch_iteration + 1)[0]


class _NotDeepSpeeds(_Schedule):
    """A schedule that DeepSpeed does not have; docs/config.md lists what each takes."""

    def __init__(self, optimizer: torch.optim.Optimizer, last_batch_iteration: int = -1, **params: Any):
        super().__init__(optimizer, last_batch_iteration, **params)


class WarmupStableDecayLR(_NotDeepSpeeds):
    pass


class WarmupCosineRestartsLR(_NotDeepSpeeds):
    pass


_CLASSES = {
    kind.__name__: kind
    for kind in (LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR, WarmupStableDecayLR, WarmupCosineRestartsLR)
}


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
    if client is not None and not hasattr(client, "step"):
        raise Error(f"[initialize] lr_scheduler is {client!r:.60}. Pass a schedule, or a function that makes one of an optimizer.")
    if client is not None:
        return client
    section = without_auto(config.get("scheduler"))
    if not section or optimizer is None or not section.get("type"):
        return None
    name, params = section["type"], section.get("params", {})
    if name in _CLASSES:
        known = {key: value for key, value in params.items() if key != "last_batch_iteration"}
        _refuse_unlike_momenta(name, known)
        for given in _of_groups(name, known, len(optimizer.param_groups)):
            _checked(name, given)  # before Python says what a class does not take
        return _CLASSES[name](optimizer, **params)
    if hasattr(torch.optim.lr_scheduler, name):
        try:
            return getattr(torch.optim.lr_scheduler, name)(basic, **params)
        except (TypeError, ValueError) as error:
            raise Error(f"[config scheduler.params] torch.optim.lr_scheduler.{name} refuses them: {error}.") from None
    raise Error(f"[config scheduler.type] {name} is not a schedule. Use one of {', '.join(_CLASSES)}.")

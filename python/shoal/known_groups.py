"""The groups of a torch optimizer as initialize found them. Every step asks whether they still are: what was written into them
since, and cannot be taken, is an error. DeepSpeedEngine and ClientOptimizer call it."""

from __future__ import annotations

import operator
from typing import Any, Callable, Iterable, Mapping

import torch

from shoal import _core

# What an update may be told anew at each step, and what changes nothing of it.
_TAKEN = ("params", "lr", "weight_decay", "betas")
_HOW_IT_RUNS = ("foreach", "fused", "capturable", "differentiable")


class KnownGroups:
    """Which parameters stand in which group and, of an optimizer whose update is the engine's, the settings."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: Mapping[int, str],
        runs_itself: bool,
        rest: Iterable[torch.Tensor] = (),
    ):
        """names: of the model's parameters, by id. runs_itself: then all settings are its own. rest: parameters in no group,
        which one added group may take, all of them."""
        self.optimizer = optimizer
        self._names = names
        self._params = [list(group["params"]) for group in optimizer.param_groups]
        keys = [key for key in optimizer.defaults if key not in (*_TAKEN, *_HOW_IT_RUNS)]
        self._keys = [] if runs_itself else keys
        self._settings = [{key: group[key] for key in self._keys if key in group} for group in optimizer.param_groups]
        self._rest = list(rest)

    def check(self, has_states: Callable[[], bool] = lambda: False) -> None:
        """Raises if something was written that cannot be taken. has_states: whether steps have been taken, and left states."""
        groups = self.optimizer.param_groups
        if len(groups) == len(self._params) + 1 and self._rest and _same(groups[-1]["params"], self._rest):
            if has_states():
                self._refuse_late()
            self._params.append(list(groups[-1]["params"]))
            self._settings.append(self._settings[0])
            self._rest = []
        if len(groups) != len(self._params) or not all(map(_same, self._params, (group["params"] for group in groups))):
            self._refuse_params(groups)
        for number, (group, settings) in enumerate(zip(groups, self._settings)):
            for key, value in settings.items():
                now = group.get(key)
                if now is not value and now != value:
                    self._refuse_setting(number, key, value, now)

    def members(self) -> list[list[str]]:
        """The names of each group's parameters."""
        return [[self._names[id(param)] for param in params if id(param) in self._names] for params in self._params]

    def _refuse_params(self, groups: list[dict[str, Any]]) -> None:
        before = {id(param): number for number, params in enumerate(self._params) for param in params}
        now = {id(param): number for number, group in enumerate(groups) for param in group["params"]}
        moved = next((key for key in {**before, **now} if before.get(key) != now.get(key)), None)
        name = self._names.get(moved, "a tensor that the model has not") if moved is not None else "an empty group"
        raise _core.Error(
            f"[step] {name} is in {_place(now.get(moved))} of the optimizer's groups now and was in {_place(before.get(moved))} at "
            "initialize. Groups keep their parameters under an engine: destroy it and call initialize again."
        )

    def _refuse_late(self) -> None:
        raise _core.Error(
            f"[step] a group was added to {type(self.optimizer).__name__} after the first step: its parameters would begin with the states "
            "and the count of steps of the others. Add it before the first step, or give it to initialize with lr 0 and weight_decay 0 until "
            "it trains, or destroy the engine and call initialize again."
        )

    def _refuse_setting(self, number: int, key: str, before: Any, now: Any) -> None:
        kind = type(self.optimizer).__name__
        cycled = " For torch's OneCycleLR and CyclicLR: make the schedule before initialize, or with cycle_momentum=False."
        raise _core.Error(
            f"[step] {key} of the optimizer's group {number} is {now!r} now and was {before!r} at initialize, and the engine's {kind} "
            f"takes lr, weight_decay and betas anew, nothing else. Leave {key} as it was (load_checkpoint writes what was saved: "
            f"initialize with that), or pass an optimizer of a class of your own, `class Own({_full_name(self.optimizer)}): pass`: such "
            "a one runs itself, with all its settings."
            + (cycled if key == "momentum" else "")
        )


def _place(number: int | None) -> str:
    return "none" if number is None else f"number {number}"


def _full_name(optimizer: torch.optim.Optimizer) -> str:
    kind = type(optimizer)
    return f"torch.optim.{kind.__name__}" if kind.__module__.startswith("torch.optim") else kind.__name__


def _same(these: list[torch.Tensor], those: list[torch.Tensor]) -> bool:
    """The same parameters, in any order."""
    if len(these) != len(those):
        return False
    return all(map(operator.is_, these, those)) or {id(each) for each in these} == {id(each) for each in those}

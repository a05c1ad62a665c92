"""Checkpoints of stage 0, where nothing is cut over ranks: the states of the optimizer are in the model's file, whole.

What "optimizer" is there follows from the optimizer that DeepSpeed makes:
    fp32                      the optimizer's own state dict, parameter by parameter; the weights are the module's
    16 bits                   the same as "optimizer_state_dict", the fp32 weights as "fp32_groups", and the loss scale
    16 bits with FusedAdam    a group's parameters in one flat each, in both; the fp32 weights are "fp32_groups_flat"
DeepSpeed writes no names: parameters are in the order of the optimizer's groups. Written here are the names too, as
"param_shapes", and what no group holds, as "beside_groups".
"""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import torch

import shoal

from deepspeed.ops.adam import FusedAdam
from deepspeed.runtime.checkpoint_save import Writer, state_names
from deepspeed.runtime.checkpoint_saved import Saved
from deepspeed.runtime.fp16.loss_scaler import LossScaler

_SCALE_KEYS = ("cur_scale", "cur_iter", "last_overflow_iter", "scale_factor", "scale_window")


class PlainWriter(Writer):
    """Writer, for stage 0. Every rank reads, and rank 0 alone keeps and writes."""

    states_in_model = True

    def __init__(self, engine: Any, folder: str, exclude_frozen: bool = False):
        super().__init__(engine, folder, exclude_frozen)
        self.beside = [name for group in self.groups[len(self.held) :] for name, _ in group]
        trained = [self.params[name].dtype for group in self.groups for name, _ in group]
        self.has_masters = any(dtype != torch.float32 for dtype in trained)
        self.flat = self.has_masters and isinstance(engine.basic_optimizer, FusedAdam)

    def _optimizer_part(self) -> dict[str, Any]:
        step = self.shoal.core.progress().applied_steps
        groups = [group | {"params": numbers} for group, numbers in zip(self._group_settings(step), self._numbers())]
        trained = self._trained_numbers()
        states: dict[int, dict[str, Any]] = {number: {"step": self._step_as_kept(step)} for own in trained for number in own}
        for name, kind in state_names(self.engine).items():
            for numbers, values in zip(trained, self._read(kind)):
                for number, value in zip(numbers, values):
                    states[number] |= {name: value} if value is not None else {}
        result = {"state": states, "param_groups": groups}
        result = self._with_masters(result) if self.has_masters else result
        beside = {name: self._read_beside(name) for name in self.beside}
        return result | {"beside_groups": beside} if beside else result

    def _numbers(self) -> list[list[int]]:
        """Of each group the numbers of its parameters. Of frozen ones too in fp32, where torch counts them; DeepSpeed's
        optimizers of 16 bits do not have them."""
        if self.flat:
            return [[index] for index in range(len(self.held))]
        found, first = [], 0
        for own, trained in zip(self.owners, self.held):
            count = len(trained if self.has_masters else own["params"])
            found.append(list(range(first, first + count)))
            first += count
        return found

    def _trained_numbers(self) -> list[list[int]]:
        if self.has_masters:
            return self._numbers()
        return [trained_of(self.engine, own["params"], numbers) for own, numbers in zip(self.owners, self._numbers())]

    def _read(self, kind: str) -> list[list[Any]]:
        """A state by groups, of each parameter or in one flat; None for what the optimizer keeps no such state of."""
        found = []
        for group in self.held:
            values = [self._read_one(name, kind) for name, _ in group]
            if self.flat:
                kept = [value.flatten() for value in values if value is not None]
                values = [torch.cat([torch.empty(0, device="cpu"), *kept])]
            found.append(values)
        return found

    def _read_one(self, name: str, kind: str) -> Any:
        """Every rank calls it; what is one number for all elements is written as that."""
        value = self.shoal.read_state(name, kind)
        if self.rank != 0 or value is None:
            return None
        form = self.shoal.client.keys[kind] if self.shoal.client is not None and kind != "weight" else None
        if form is None or form.elementwise:
            return value
        number = form.from_values(value.flatten())
        return number.cpu() if torch.is_tensor(number) else number

    def _read_beside(self, name: str) -> dict[str, torch.Tensor]:
        kinds = {"weight": "weight"} | state_names(self.engine)
        found = {key: self._read_one(name, kind) for key, kind in kinds.items()}
        return {key: value for key, value in found.items() if value is not None}

    def _with_masters(self, inner: dict[str, Any]) -> dict[str, Any]:
        scaler = self._loss_scaler()
        values = {"optimizer_state_dict": inner, "clip_grad": self.engine.gradient_clipping(), "loss_scaler": scaler}
        values |= {"dynamic_loss_scale": scaler.dynamic, "cur_iter": 0}
        values |= {key: getattr(scaler, key) for key in _SCALE_KEYS if hasattr(scaler, key)}
        weights = self._read("weight")
        return values | ({"fp32_groups_flat": [flat for (flat,) in weights]} if self.flat else {"fp32_groups": weights})


def trained_of(engine: Any, params: list[torch.nn.Parameter], numbers: list[int]) -> list[int]:
    names = engine._shoal.names
    return [number for number, param in zip(numbers, params, strict=True) if param.requires_grad and id(param) in names]


class PlainSaved(Saved):
    """Saved, for a checkpoint of stage 0 with states of an optimizer."""

    def __init__(self, folder: str, models: list[Any] | None = None):
        super().__init__(folder, models)
        self.shards, self.shard_files, self.stage = [], [], 0  # files of ranks are of an earlier save
        self.optimizer: dict[str, Any] = self.models[0]["optimizer"]
        self.flat = "fp32_groups_flat" in self.optimizer
        self.has_masters = self.flat or "fp32_groups" in self.optimizer
        # Of each group, the numbers of what was trained. Ours has a state of each such, if only the step.
        states = self.inner(0)["state"]
        self.numbers = [[number for number in group["params"] if number in states] for group in self.inner(0)["param_groups"]]

    @property
    def has_states(self) -> bool:
        return True

    def take_names(self, engine: Any) -> None:
        """A DeepSpeed's own has no names; the engine's groups, which must be those that it was saved with, have them."""
        if self.shapes:
            return
        params = dict(engine.module.named_parameters())
        groups = [(group["params"], named) for group, named in zip(engine.basic_optimizer.param_groups, engine.named_groups())]
        groups = [(own, named) for own, named in groups if own]  # DeepSpeed drops those without parameters
        shapes = [OrderedDict((name, params[name].shape) for name, _ in named) for _, named in groups]
        numbers = [list(group["params"]) for group in self.inner(0)["param_groups"]]
        if not self.has_masters and list(map(len, numbers)) == [len(own) for own, _ in groups]:
            numbers = [trained_of(engine, own, every) for (own, _), every in zip(groups, numbers)]
        here = [self._sizes(group) for group in shapes]
        saved = [self._saved_sizes(index, own) for index, own in enumerate(numbers)]
        if len(here) != len(saved) or any(not _agree(*pair) for pair in zip(saved, here)):
            raise shoal.Error(f"[load_checkpoint] {self.folder} was saved by a DeepSpeed at stage 0, which writes no names, and "
                              f"its groups are not those of this optimizer: they hold {_counts(saved)}, and these "
                              f"{_counts(here)}, or in another order. Load it with the groups that it was saved with, or take "
                              "the weights alone with load_optimizer_states=False.")
        self.shapes, self.numbers = shapes, numbers

    def _sizes(self, shapes: OrderedDict) -> list[tuple[int, ...]]:
        if self.flat:
            return [(sum(torch.Size(shape).numel() for shape in shapes.values()),)]
        return [tuple(shape) for shape in shapes.values()]

    def _saved_sizes(self, group: int, numbers: list[int]) -> list[tuple[int, ...] | None]:
        """The shapes in a group's file, None where it has nothing that shows it."""
        if self.has_masters:
            return [tuple(value.shape) for value in self._masters(group)]
        states = [self.inner(0)["state"].get(number, {}).values() for number in numbers]
        shown = [[value for value in own if torch.is_tensor(value) and value.dim() > 0] for own in states]
        return [tuple(values[0].shape) if values else None for values in shown]

    def inner(self, rank: int) -> dict[str, Any]:
        return self.optimizer.get("optimizer_state_dict", self.optimizer)

    def common(self) -> dict[str, Any]:
        return {
            "zero_stage": 0,
            "loss_scaler": self.optimizer.get("loss_scaler") or LossScaler(1.0, torch.float32),
            "dynamic_loss_scale": self.optimizer.get("dynamic_loss_scale", False),
            "overflow": False,
            "ds_version": self.models[0].get("ds_version"),
        }

    def scaler(self) -> Any:
        if "loss_scaler" in self.optimizer:
            return self.optimizer["loss_scaler"]
        kept = {key: self.optimizer[key] for key in _SCALE_KEYS if key in self.optimizer}
        return SimpleNamespace(**kept) if "cur_scale" in kept else None

    def step(self) -> Any:
        """The highest: DeepSpeed's FusedAdam counts in the state of the last parameter of a group alone."""
        counts = [state["step"] for state in self.inner(0)["state"].values() if "step" in state]
        return max(counts, key=float) if counts else super().applied_steps()

    def applied_steps(self) -> int:
        """As the optimizer counted: DeepSpeed's of 16 bits count an empty step that makes their states."""
        return int(self.models[0].get("applied_steps", self.step()))

    def wholes(self, name: str | None, meta: bool = False) -> dict[str, torch.Tensor]:
        if name is None and not self.shapes:
            return self.module()
        found: dict[str, torch.Tensor] = {}
        for index, (shapes, numbers) in enumerate(zip(self.shapes, self.numbers)):
            values = self._weights(index) if name is None else [self._state(number, name) for number in numbers]
            if self.flat and values[0] is not None:
                self._split_group(shapes, values[0], found)
            elif not self.flat:
                pairs = zip(shapes.items(), values, strict=True)
                found |= {param: _shaped(value, shape) for (param, shape), value in pairs if value is not None}
        for param, states in self.optimizer.get("beside_groups", {}).items():
            if (name or "weight") in states:
                found[param] = _shaped(states[name or "weight"], self._shape_of(param))
        return found

    def _shape_of(self, param: str) -> torch.Size:
        return next(shapes[param] for shapes in self.shapes if param in shapes)

    def _weights(self, group: int) -> list[torch.Tensor | None]:
        if self.has_masters:
            return self._masters(group)
        return [self.models[0]["module"].get(name) for name in self.shapes[group]]

    def _masters(self, group: int) -> list[torch.Tensor]:
        values = self.optimizer["fp32_groups_flat"][group : group + 1] if self.flat else self.optimizer["fp32_groups"][group]
        return [value.detach() for value in values]

    def _state(self, number: int, name: str) -> Any:
        return self.inner(0)["state"].get(number, {}).get(name)


def _agree(saved: list, here: list) -> bool:
    return len(saved) == len(here) and all(size is None or size == own for size, own in zip(saved, here))


def _counts(groups: list[list]) -> str:
    return ", ".join(f"{len(group)} of {sum(torch.Size(size).numel() for size in group if size)} elements" for group in groups)


def _shaped(value: Any, shape: torch.Size) -> torch.Tensor:
    """A state in its parameter's shape; what is one number stands in every element."""
    value = torch.as_tensor(value, device="cpu")
    return value.reshape(shape) if value.numel() == torch.Size(shape).numel() else value.reshape(()).expand(shape)

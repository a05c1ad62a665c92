"""A torch optimizer of the user's on the shards: it sees this rank's part of each fp32 master as a parameter of its own.

Only what updates elements one by one can run so. `probe` finds that out by trying; DeepSpeedEngine and shoal.initialize
call it. The masters are the engine's: they are read before the optimizer's step and written back after it.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any, Iterable

import torch
from torch import nn

from shoal import _core
from shoal.config import optimizer_names
from shoal.known_groups import KnownGroups

# What is tried: a matrix and its flat parts, a small one and one past the sizes at which second moments are factored; with gradients
# from below to above what is clipped; over the first steps, in which some change their rule.
_SHAPES = (((4, 6), (11, 13)), ((160, 160), (12345, 13255)))
_SCALES = (1.0, 1e4, 1e-4)
_STEPS = 12


class ClientOptimizer:
    """The optimizer's parameter groups keep the model's parameters; during a step they hold the parts."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        core: _core.Engine,
        index_of: dict[int, int],
        device: torch.device,
        names: dict[int, str],
    ):
        """index_of: of a parameter's id in core.params(). device: where the optimizer runs and keeps its states. names: of the
        model's parameters, by id."""
        self.optimizer = optimizer
        self.known = KnownGroups(optimizer, names, runs_itself=True)
        self.device = device
        self.keys = probe(optimizer, device)
        by_index = {param: (begin, numel) for param, begin, numel in core.kept_parts()}
        owned = {param: (begin, numel) for param, begin, numel in core.owned_parts()}
        self._parts: list[list[_Part]] = []
        for group in optimizer.param_groups:
            indices = [index_of[id(param)] for param in group["params"] if id(param) in index_of]
            kept = [index for index in indices if index in by_index]
            parts = [_Part(index, *by_index[index], owned.get(index), device) for index in kept]
            self._parts.append(parts)
        self._by_index = {part.index: part for parts in self._parts for part in parts}
        self._take_first_states(optimizer, index_of)

    def update(self, core: _core.Engine, grad_scale: float) -> None:
        """The optimizer's step. Called by the engine, when gradients are reduced and finite."""
        for part in self._by_index.values():
            part.param.data = core.read_weight(part.index, part.begin, part.numel).to(self.device)
            part.param.grad = core.read_gradient(part.index, part.begin, part.numel).to(self.device).mul_(grad_scale)
        with self._on_parts():
            self.optimizer.step()
        for part in self._by_index.values():
            core.write_weight(part.index, part.begin, part.param)
            part.param.grad = None
            part.param.data = torch.empty(0, device=self.device)  # the engine's master is the value

    def owned_runs(self, key: str, index: int) -> list[tuple[int, torch.Tensor]]:
        """What this rank owns of a state, as (begin, fp32 values); a state that is one number stands in every element."""
        part = self._by_index.get(index)
        value = self.optimizer.state.get(part.param, {}).get(key) if part is not None else None
        if value is None or part.owned is None:
            return []
        begin, numel = part.owned
        value = torch.as_tensor(value, dtype=torch.float32, device="cpu")
        if value.numel() == part.numel:
            return [(begin, value.flatten()[begin - part.begin : begin - part.begin + numel].clone())]
        return [(begin, value.reshape(1).expand(numel).clone())]

    def write(self, key: str, index: int, whole: torch.Tensor) -> None:
        """Writes what this rank keeps of a state, from the whole of it."""
        part = self._by_index.get(index)
        if part is None:
            return
        mine = whole.detach().flatten()[part.begin : part.begin + part.numel]
        kind = self.keys.get(key)
        if kind is None:
            raise _core.Error(
                f"[optimizer state {key}] is not one of {type(self.optimizer).__name__}'s: {', '.join(self.keys)}."
            )
        self.optimizer.state[part.param][key] = kind.from_values(mine)

    def set_step(self, steps: int) -> None:
        """After a restore: how many steps each part has taken."""
        kind = self.keys.get("step")
        for part in self._by_index.values():
            if kind is not None and part.param in self.optimizer.state:
                self.optimizer.state[part.param]["step"] = kind.from_values(torch.tensor([float(steps)], device="cpu"))

    def owned_states(self, names: list[str]) -> dict[str, Any]:
        """All that this rank owns, for write_states on any number of ranks. names: of the engine's parameters."""
        pieces = []
        for part in self._by_index.values():
            state = self.optimizer.state.get(part.param)
            if not state or part.owned is None:
                continue
            begin, numel = part.owned
            values = {}
            for key, value in state.items():
                if value is None:
                    continue
                if key not in self.keys:
                    raise _core.Error(
                        f"[save] {type(self.optimizer).__name__} keeps a state {key} that it did not have when it was tried, or "
                        "that is no tensor and no number. Such a state cannot be saved."
                    )
                values[key] = self.keys[key].in_host_memory(value, begin - part.begin, numel)
            pieces.append({"name": names[part.index], "begin": begin, "numel": numel, "values": values})
        return {"type": type(self.optimizer).__name__, "groups": self._settings(), "members": self.known.members(), "pieces": pieces}

    def _settings(self) -> list[dict[str, Any]]:
        """Of the groups, what weights_only reads back."""
        plain = (int, float, str, torch.Tensor, type(None))
        return [
            {
                key: value
                for key, value in group.items()
                if key != "params" and (isinstance(value, plain) or _is_row_of(value, plain))
            }
            for group in self.optimizer.param_groups
        ]

    def write_states(self, saved: Iterable[dict[str, Any]], names: list[str], place: str) -> None:
        """Takes what the ranks of any world gave by owned_states. Reads no further than it must."""
        wanted = {names[part.index]: part for part in self._by_index.values()}
        missing = {name: part.numel for name, part in wanted.items()}
        for index, states in enumerate(saved):
            if index == 0:
                self.check_settings(states, place)
                self.take_states()
                for group, values in zip(self.optimizer.param_groups, states["groups"]):
                    group.update(values)
            for piece in states["pieces"]:
                part = wanted.get(piece["name"])
                if part is not None:
                    missing[piece["name"]] -= self._take_piece(part, piece, place)
            if not any(missing.values()):
                return
        torn = sorted(name for name, numel in missing.items() if 0 < numel < wanted[name].numel)
        if torn:
            raise _core.Error(f"[{place}] states of {torn[0]} are missing in part. Take another checkpoint.")

    def check_settings(self, states: dict[str, Any], place: str) -> None:
        """Raises unless they are of such an optimizer."""
        name, groups = type(self.optimizer).__name__, self.optimizer.param_groups
        if states["type"] != name or len(states["groups"]) != len(groups):
            raise _core.Error(
                f"[{place}] it was saved with {states['type']} over {len(states['groups'])} groups, and this engine has {name} "
                f"over {len(groups)}. Use the optimizer of the run that saved it."
            )
        here = {name: group for group, names in enumerate(self.known.members()) for name in names}
        for group, names in enumerate(states.get("members", [])):
            for name in names:
                if here.get(name, group) != group and states["groups"][here[name]] != states["groups"][group]:
                    raise _core.Error(
                        f"[{place}] {name} was in group {group} of the optimizer when it was saved and is in group {here[name]} now, and "
                        "the two have other settings. Use the groups of the run that saved it."
                    )

    def _take_piece(self, part: "_Part", piece: dict[str, Any], place: str) -> int:
        """How many elements of the part were in it."""
        begin = max(part.begin, piece["begin"])
        end = min(part.begin + part.numel, piece["begin"] + piece["numel"])
        if begin >= end:
            return 0
        state = self.optimizer.state[part.param]
        for key, value in piece["values"].items():
            form = self.keys.get(key)
            if form is None:
                raise _core.Error(f"[{place}] {key} is no state of {type(self.optimizer).__name__}: {', '.join(self.keys)}.")
            if not form.elementwise:
                state[key] = value.to(form.like.device, form.like.dtype, copy=True) if torch.is_tensor(value) else value
                continue
            if key not in state:
                state[key] = torch.zeros(part.numel, device=form.like.device, dtype=form.like.dtype)
            state[key][begin - part.begin : end - part.begin] = value[begin - piece["begin"] : end - piece["begin"]]
        return end - begin

    def take_states(self) -> dict:
        """All states of the parts, which the optimizer has no more."""
        return {part.param: self.optimizer.state.pop(part.param, None) for part in self._by_index.values()}

    def put_states(self, states: dict) -> None:
        self.optimizer.state.update({param: state for param, state in states.items() if state is not None})

    def _take_first_states(self, optimizer: torch.optim.Optimizer, index_of: dict[int, int]) -> None:
        """States that the optimizer made for the model's parameters before there were parts."""
        for group, parts in zip(optimizer.param_groups, self._parts):
            by_index = {part.index: part for part in parts}
            for param in group["params"]:
                state = optimizer.state.pop(param, None)
                part = by_index.get(index_of.get(id(param), -1))
                if not state or part is None:
                    continue
                for key, value in state.items():
                    if torch.is_tensor(value) and value.dim() > 0:
                        if value.numel() != param.numel():
                            raise _core.Error(
                                f"[optimizer] {type(optimizer).__name__} holds a state {key} of {value.numel()} elements for "
                                f"a parameter of {param.numel()}. Make the optimizer after the model is whole, or pass a "
                                "function that makes it."
                            )
                        mine = value.detach().flatten()[part.begin : part.begin + part.numel]
                        state[key] = mine.to(self.device, torch.float32, copy=True)
                optimizer.state[part.param] = state

    def _on_parts(self) -> "_Swapped":
        return _Swapped(self.optimizer, [[part.param for part in parts] for parts in self._parts])


class _Part:
    """This rank's elements [begin, begin + numel) of a parameter."""

    def __init__(self, index: int, begin: int, numel: int, owned: tuple[int, int] | None, device: torch.device):
        self.index, self.begin, self.numel, self.owned = index, begin, numel, owned
        self.param = nn.Parameter(torch.empty(0, device=device))


class _Swapped:
    """The optimizer's groups with other parameters in them, inside."""

    def __init__(self, optimizer: torch.optim.Optimizer, params: list[list[nn.Parameter]]):
        self.groups, self.params = optimizer.param_groups, params

    def __enter__(self) -> None:
        self.kept = [group["params"] for group in self.groups]
        for group, params in zip(self.groups, self.params):
            group["params"] = params

    def __exit__(self, *error: Any) -> None:
        for group, params in zip(self.groups, self.kept):
            group["params"] = params


class StateForm:
    """What a state of the optimizer is: a tensor as large as the parameter, a tensor of one number, or a number."""

    def __init__(self, value: Any, numel: int):
        self.elementwise = torch.is_tensor(value) and value.numel() == numel and value.dim() > 0
        self.like = value if torch.is_tensor(value) else type(value)

    def from_values(self, values: torch.Tensor) -> Any:
        if self.elementwise:
            return values.to(self.like.device, self.like.dtype, copy=True)
        if torch.is_tensor(self.like):
            return values[0].to(self.like.device, self.like.dtype, copy=True).reshape(self.like.shape)
        return self.like(values[0].item())

    def in_host_memory(self, value: Any, begin: int, numel: int) -> Any:
        """What is saved of a state: of an elementwise one these elements."""
        if self.elementwise:
            return value.detach().flatten()[begin : begin + numel].to("cpu", copy=True)
        return value.detach().to("cpu", copy=True) if torch.is_tensor(value) else value


def _is_row_of(value: Any, kinds: tuple) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(each, kinds) for each in value)


def probe(optimizer: torch.optim.Optimizer, device: torch.device) -> dict[str, StateForm]:
    """The optimizer's states by name. Raises if a matrix and the same matrix in two flat parts are updated differently, or not at all."""
    forms: dict[str, StateForm] = {}
    reason: str | None
    for group in optimizer.param_groups:
        options = {key: copy.deepcopy(value) for key, value in group.items() if key != "params"}
        if "lr" in options:
            options["lr"] = 0.1  # a schedule may have set it to 0, with which everything is equal
        try:
            reason, states = _compare(optimizer, options, device)
        except Exception as error:  # noqa: BLE001
            reason, states = f"does not take flat parts ({(str(error).splitlines() or [''])[0][:120]})", {}
        if reason is not None:
            raise _core.Error(
                f"[optimizer] {type(optimizer).__name__} {reason}, so it cannot run on shards. Use an optimizer that updates "
                f"elements one by one: {optimizer_names('and')} run in the engine, others of that kind as they are."
            )
        for key, value in states.items():
            if torch.is_tensor(value) or isinstance(value, (int, float)):
                forms[key] = StateForm(value, _SHAPES[0][1][0])
    return forms


def _compare(optimizer: torch.optim.Optimizer, options: dict, device: torch.device) -> tuple[str | None, dict]:
    """Why it cannot run on parts, if so, and the states of the first part."""
    moved, first_states = False, {}
    for whole_shape, cuts in _SHAPES:
        for scale in _SCALES:
            begin, whole, _ = _try(optimizer, options, [whole_shape], device, scale)
            _, cut, states = _try(optimizer, options, [(numel,) for numel in cuts], device, scale)
            if not torch.allclose(whole, cut, rtol=1e-5, atol=1e-7):
                return "updates a matrix and its parts differently", {}
            moved = moved or not torch.equal(begin, whole)
            first_states = first_states or states
    if not moved:
        return "does not move the parameters that stand in its groups (it steps over others, or holds another optimizer)", {}
    return None, first_states


def _try(
    optimizer: torch.optim.Optimizer, options: dict, shapes: list[tuple[int, ...]], device: torch.device, scale: float
) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """Some steps on parameters of these shapes, each with a copy of the optimizer as each rank has one: all values in a row, before and
    after, and the states of the first."""
    generator = torch.Generator("cpu").manual_seed(0)
    numels = [torch.Size(shape).numel() for shape in shapes]
    first = torch.randn(sum(numels), generator=generator, device="cpu").to(device)
    params = [nn.Parameter(values.clone().reshape(shape)) for values, shape in zip(first.split(numels), shapes)]
    twins = [_twin(optimizer, options, param) for param in params]
    for _ in range(_STEPS):
        grads = torch.randn(sum(numels), generator=generator, device="cpu").mul_(scale).to(device)
        for param, grad, twin in zip(params, grads.split(numels), twins):
            param.grad = grad.clone().reshape(param.shape)
            twin.step()
    values = torch.cat([param.detach().flatten() for param in params])
    return first, values, dict(twins[0].state.get(params[0], {}))


def _twin(optimizer: torch.optim.Optimizer, options: dict, param: nn.Parameter) -> torch.optim.Optimizer:
    twin = object.__new__(type(optimizer))
    # What the optimizer keeps on itself is copied, since the trial changes it; parameters are large, and stay.
    memo: dict[int, Any] = {id(param): param for group in optimizer.param_groups for param in group["params"]}
    memo[id(optimizer)] = twin
    for key, value in optimizer.__dict__.items():
        if key.endswith("_hooks"):
            twin.__dict__[key] = type(value)()
        elif key not in ("step", "zero_grad", "state", "param_groups"):
            twin.__dict__[key] = copy.deepcopy(value, memo)
    twin.state = defaultdict(dict)
    twin.param_groups = [copy.deepcopy(options) | {"params": [param]}]
    for known in list(optimizer.state.values())[:1]:  # some make their states in the constructor
        twin.state[param] = {key: _like(value, param) for key, value in known.items()}
    return twin


def _like(value: Any, param: nn.Parameter) -> Any:
    if not torch.is_tensor(value):
        return copy.deepcopy(value)
    return value.detach().clone() if value.dim() == 0 else torch.full_like(param, 0.0, requires_grad=False)

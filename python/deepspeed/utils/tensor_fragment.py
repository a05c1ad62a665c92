"""safe_get_* and safe_set_*: the fp32 state of one parameter, whole. Every rank calls them, between passes: after backward,
before step() too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable

import torch

from shoal import Error, _core, state


@dataclass
class fragment_address:
    """A run of elements; DeepSpeed's checkpoints hold it by this name."""

    numel: int
    start: int


def safe_get_full_fp32_param(param: torch.nn.Parameter) -> torch.Tensor | None:
    """None of a frozen one, as in DeepSpeed: it has no fp32 state."""
    return state.read_param(param, "weight") if param.requires_grad else None


def safe_get_full_optimizer_state(param: torch.nn.Parameter, optim_state_key: str) -> torch.Tensor | None:
    return state.read_param(param, _kind(param, optim_state_key))


def safe_get_full_grad(param: torch.nn.Parameter) -> torch.Tensor | None:
    return state.read_grad(param)


def safe_set_full_grad(param: torch.nn.Parameter, value: torch.Tensor) -> None:
    """After the backward that ends a step, before step(): its norm, clipping and update are of what was set. A frozen
    parameter has no gradient to set."""
    if param.requires_grad:
        state.write_grad(param, value)


def safe_update_full_grad_vectorized(
    param_list: list[torch.nn.Parameter], update_func: Callable[[torch.Tensor, torch.nn.Parameter], torch.Tensor]
) -> None:
    for param in param_list:
        grad = state.read_grad(param) if param.requires_grad else None
        if grad is not None:
            state.write_grad(param, update_func(grad, param))


def safe_set_full_fp32_param(param: torch.nn.Parameter, value: torch.Tensor) -> None:
    state.write_param(param, "weight", value)


def safe_set_full_optimizer_state(param: torch.nn.Parameter, value: torch.Tensor, optim_state_key: str) -> None:
    state.write_param(param, _kind(param, optim_state_key), value)


# What this rank owns, in a row. DeepSpeed has these at stage 3 only, and cuts elsewhere. Setting is for every rank.


def safe_get_local_fp32_param(param: torch.nn.Parameter) -> torch.Tensor | None:
    return state.read_own(param, "weight") if param.requires_grad else None


def safe_get_local_optimizer_state(param: torch.nn.Parameter, optim_state_key: str) -> torch.Tensor | None:
    return state.read_own(param, _kind(param, optim_state_key)) if param.requires_grad else None


def safe_get_local_grad(param: torch.nn.Parameter) -> torch.Tensor | None:
    return state.read_own(param, "gradient") if param.requires_grad else None


def safe_set_local_fp32_param(param: torch.nn.Parameter, value: torch.Tensor) -> None:
    state.write_own(param, "weight", value)


def safe_set_local_optimizer_state(param: torch.nn.Parameter, value: torch.Tensor, optim_state_key: str) -> None:
    state.write_own(param, _kind(param, optim_state_key), value)


def safe_set_local_grad(param: torch.nn.Parameter, value: torch.Tensor) -> None:
    if param.requires_grad:
        state.write_own_grad(param, value)


_MOMENTS = ("first_moment", "second_moment")
_KINDS = {name: kind for optimizer in _core.optimizers() for name, kind in zip(optimizer.state_names, _MOMENTS)}
_KINDS["fp32_param"] = "weight"


def _kind(param: torch.nn.Parameter, key: str) -> str:
    names = state.client_state_names(param)
    if names is not None and key in names:
        return key
    if names is None and key in _KINDS:
        return _KINDS[key]
    raise Error(f"[optimizer state {key}] is not known. Use one of {', '.join(sorted(names or _KINDS))}.")

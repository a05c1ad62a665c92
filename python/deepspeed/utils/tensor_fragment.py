"""safe_get_* and safe_set_*: the fp32 state of one parameter, whole. Every rank calls them, between steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from shoal import Error, state


@dataclass
class fragment_address:
    """A run of elements; DeepSpeed's checkpoints hold it by this name."""

    numel: int
    start: int


def safe_get_full_fp32_param(param: torch.nn.Parameter) -> torch.Tensor | None:
    return state.read_param(param, "weight")


def safe_get_full_optimizer_state(param: torch.nn.Parameter, optim_state_key: str) -> torch.Tensor | None:
    return state.read_param(param, _kind(param, optim_state_key))


def safe_get_full_grad(param: torch.nn.Parameter) -> torch.Tensor | None:
    return state.read_grad(param)


def safe_set_full_fp32_param(param: torch.nn.Parameter, value: torch.Tensor) -> None:
    state.write_param(param, "weight", value)


def safe_set_full_optimizer_state(param: torch.nn.Parameter, value: torch.Tensor, optim_state_key: str) -> None:
    state.write_param(param, _kind(param, optim_state_key), value)


_KINDS = {
    "exp_avg": "first_moment",
    "exp_avg_sq": "second_moment",
    "momentum_buffer": "first_moment",
    "sum": "first_moment",
    "fp32_param": "weight",
}


def _kind(param: torch.nn.Parameter, key: str) -> str:
    names = state.client_state_names(param)
    if names is not None and key in names:
        return key
    if names is None and key in _KINDS:
        return _KINDS[key]
    raise Error(f"[optimizer state {key}] is not known. Use one of {', '.join(sorted(names or _KINDS))}.")

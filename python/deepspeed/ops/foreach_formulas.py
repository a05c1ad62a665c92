"""The updates by torch's foreach functions, for parameters on a GPU that no engine holds. The formulas are those of
src/kernels/update.h, in fp32; only their roundings differ."""

from __future__ import annotations

import math
from typing import Any

import torch

_Row = list[torch.Tensor]


def update(kind: str, params: _Row, states: list[_Row], step: int, group: dict[str, Any]) -> None:
    """One step of parameters of one group that have taken as many steps. states: a row for each name of a state."""
    grads = [param.grad.detach().float() for param in params]
    weights = [param.detach().float() for param in params]
    wide = [[state.float() for state in row] for row in states]
    _FORMULAS[kind](weights, grads, wide, step, group)
    for rows, results in zip([params, *states], [weights, *wide]):
        for kept, result in zip(rows, results):
            if kept.data_ptr() != result.data_ptr():
                kept.detach().copy_(result)


def _fp32(betas: Any) -> tuple[float, float]:
    """As the kernels take them: 1 - 0.999 is 1.3e-5 of itself away from 1 - 0.999f."""
    beta1, beta2 = (torch.tensor(float(beta), dtype=torch.float32, device="cpu").item() for beta in betas)
    return beta1, beta2


def _adam(weights: _Row, grads: _Row, states: list[_Row], step: int, group: dict[str, Any], decoupled: bool) -> None:
    (firsts, seconds), (beta1, beta2) = states, _fp32(group["betas"])
    rate, decay = float(group["lr"]), float(group["weight_decay"])
    if decoupled:
        torch._foreach_mul_(weights, 1 - rate * decay)
    elif decay:
        grads = torch._foreach_add(grads, weights, alpha=decay)
    torch._foreach_lerp_(firsts, grads, 1 - beta1)
    torch._foreach_mul_(seconds, beta2)
    torch._foreach_addcmul_(seconds, grads, grads, 1 - beta2)
    corrects = group.get("bias_correction", True)
    bias1, bias2 = (1 - beta1**step, 1 - beta2**step) if corrects else (1.0, 1.0)
    roots = torch._foreach_sqrt(seconds)
    torch._foreach_div_(roots, math.sqrt(bias2))
    torch._foreach_add_(roots, float(group["eps"]))
    torch._foreach_addcdiv_(weights, firsts, roots, -rate / bias1)


def _adamw_step(weights: _Row, grads: _Row, states: list[_Row], step: int, group: dict[str, Any]) -> None:
    _adam(weights, grads, states, step, group, decoupled=True)


def _adam_step(weights: _Row, grads: _Row, states: list[_Row], step: int, group: dict[str, Any]) -> None:
    _adam(weights, grads, states, step, group, decoupled=False)


def _adagrad_step(weights: _Row, grads: _Row, states: list[_Row], step: int, group: dict[str, Any]) -> None:
    grads = torch._foreach_add(grads, weights, alpha=float(group["weight_decay"]))
    torch._foreach_addcmul_(states[0], grads, grads, 1)
    roots = torch._foreach_sqrt(states[0])
    torch._foreach_add_(roots, float(group["eps"]))
    torch._foreach_addcdiv_(weights, grads, roots, -float(group["lr"]))


def _lion_step(weights: _Row, grads: _Row, states: list[_Row], step: int, group: dict[str, Any]) -> None:
    beta1, beta2 = _fp32(group["betas"])
    rate = float(group["lr"])
    directions = torch._foreach_mul(states[0], beta1)
    torch._foreach_add_(directions, grads, alpha=1 - beta1)
    torch._foreach_mul_(weights, 1 - rate * float(group["weight_decay"]))
    torch._foreach_add_(weights, torch._foreach_sign(directions), alpha=-rate)
    torch._foreach_mul_(states[0], beta2)
    torch._foreach_add_(states[0], grads, alpha=1 - beta2)


_FORMULAS = {"adamw": _adamw_step, "adam": _adam_step, "adagrad": _adagrad_step, "lion": _lion_step}

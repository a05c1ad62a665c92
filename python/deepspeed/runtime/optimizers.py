"""Optimizers of the client and of the config as Shoal's: which class means what, and what it takes."""

from __future__ import annotations

from typing import Any, Iterable

import torch

from shoal import Error

from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.group_holder import GroupHolder
from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

_KNOWN = (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad)


def section_of(optimizer: torch.optim.Optimizer) -> dict[str, Any] | None:
    """The config section that means what a torch optimizer does; None if none does, and it must run itself."""
    groups = optimizer.param_groups
    if not isinstance(optimizer, GroupHolder) and type(optimizer) not in _KNOWN:
        return None  # a subclass may do anything
    shared = {key: groups[0][key] for key in ("betas", "eps", "momentum", "dampening", "nesterov") if key in groups[0]}
    for refused in (*_unknown_options(groups), *(key for key in shared if _differ(groups, key))):
        if isinstance(optimizer, GroupHolder):
            raise Error(
                f"[optimizer] {type(optimizer).__name__} has no {refused}, and groups may differ in lr and weight_decay only. "
                "Use the class of torch.optim."
            )
        return None
    params: dict[str, Any] = {"lr": float(groups[0]["lr"]), "weight_decay": float(groups[0].get("weight_decay", 0.0))}
    if "betas" in shared:
        params["betas"] = [float(beta) for beta in shared["betas"]]
    if isinstance(optimizer, (DeepSpeedCPUAdam, FusedAdam, torch.optim.AdamW, torch.optim.Adam)):
        decoupled = getattr(optimizer, "adam_w_mode", isinstance(optimizer, torch.optim.AdamW))
        if type(optimizer) is torch.optim.Adam and groups[0].get("decoupled_weight_decay"):
            decoupled = True
        params["eps"] = float(shared["eps"])
        if getattr(optimizer, "bias_correction", True) is False:
            params["bias_correction"] = False
        return {"type": "AdamW" if decoupled else "Adam", "params": params | ({} if decoupled else {"adam_w_mode": False})}
    if isinstance(optimizer, torch.optim.SGD):
        return {"type": "SGD", "params": _sgd(params, shared)}
    if isinstance(optimizer, (DeepSpeedCPUAdagrad, torch.optim.Adagrad)):
        return {"type": "Adagrad", "params": params | {"eps": float(shared["eps"])}}
    if isinstance(optimizer, (DeepSpeedCPULion, FusedLion)):
        return {"type": "Lion", "params": params}
    return None


def from_config(section: dict[str, Any], params: Iterable[Any]) -> torch.optim.Optimizer:
    """A torch optimizer to hold the groups of an optimizer that the config names."""
    given = {key: value for key, value in section.get("params", {}).items() if value != "auto"}
    kind = str(section.get("type", "")).lower()
    taken = ("lr", "betas", "eps", "weight_decay", "momentum", "dampening", "nesterov")
    options = {key: value for key, value in given.items() if key in taken}
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    if kind in ("adam", "adamw"):
        decoupled = kind == "adamw" or given.get("adam_w_mode", True)
        if given.get("torch_adam"):  # torch's classes, with torch's defaults
            return (torch.optim.AdamW if decoupled else torch.optim.Adam)(params, **options)
        options.setdefault("weight_decay", 0.0)
        return FusedAdam(params, adam_w_mode=decoupled, bias_correction=given.get("bias_correction", True), **options)
    if kind == "sgd":
        return torch.optim.SGD(params, **options)
    if kind == "adagrad":
        return DeepSpeedCPUAdagrad(params, **options)
    if kind == "lion":
        return FusedLion(params, **options)
    raise Error(f"[config optimizer.type] {section.get('type')} is not supported. Use AdamW, Adam, SGD, Adagrad or Lion.")


def _sgd(params: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    for key in ("momentum", "dampening"):
        if shared.get(key):
            params[key] = float(shared[key])
    if shared.get("nesterov"):
        params["nesterov"] = True
    return params


def _unknown_options(groups: list[dict[str, Any]]) -> list[str]:
    """What the core's formulas do not have."""
    keys = ("amsgrad", "maximize", "lr_decay", "initial_accumulator_value")
    return [key for key in keys if any(group.get(key) for group in groups)]


def _differ(groups: list[dict[str, Any]], key: str) -> bool:
    return any(group[key] != groups[0][key] for group in groups)

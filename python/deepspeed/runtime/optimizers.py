"""Optimizers of the client and of the config as Shoal's: which class means what, and what it takes."""

from __future__ import annotations

import difflib
import inspect
import json
from typing import Any, Iterable, Mapping

import torch

from shoal import Error, _core

from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam
from deepspeed.ops.kernel_optimizer import KernelOptimizer
from deepspeed.ops.lion import FusedLion
from deepspeed.utils.logging import warning_once

# Of a section with torch_adam: what torch's class has and the core has not.
_TORCH_ONLY = ("amsgrad", "maximize", "capturable", "differentiable")
# What all groups must have alike.
_SHARED = ("betas", "eps", "momentum", "dampening", "nesterov", "bias_correction", "decoupled_weight_decay")
# Classes of torch whose formula is the core's optimizer of that name, and whose settings section_of knows, each of them. A class of
# another row's name runs itself: it may have settings that the core has not.
_KNOWN = (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad)
_ROWS = {optimizer.name.lower(): optimizer for optimizer in _core.optimizers()}
_CLASSES = {"adagrad": DeepSpeedCPUAdagrad, "lion": FusedLion}  # DeepSpeed's own, by the type of a config


class NoParametersError(Error, ValueError):
    """torch's own is a ValueError."""


class HeldOptimizer(KernelOptimizer):
    """Holds the groups of an optimizer of the core that neither torch nor DeepSpeed has a class of. Settings are those of the
    section, the rest the core's defaults."""

    def __init__(self, params: Iterable[Any], section: Mapping[str, Any]):
        self.kind = str(section["type"]).lower()
        row = _ROWS[self.kind]
        self.state_names = tuple(row.state_names)
        given = {"type": row.name, "params": section.get("params") or {}}
        whole = json.loads(_core.Config.from_text(json.dumps({"train_batch_size": 1, "optimizer": given})).to_json())
        effective = {key: tuple(value) if isinstance(value, list) else value for key, value in whole["optimizer"]["params"].items()}
        settings = {key: value for key, value in effective.items() if row.takes(key)}
        self.shared = tuple(key for key in settings if key not in ("lr", "weight_decay"))  # all groups have them alike
        super().__init__(params, settings)


def section_of(optimizer: torch.optim.Optimizer, schedule: Any = None) -> dict[str, Any] | None:
    """The config section that means what a torch optimizer does; None if none does, and it must run itself. schedule: what
    writes into its groups."""
    groups = optimizer.param_groups
    if not isinstance(optimizer, KernelOptimizer) and type(optimizer) not in _KNOWN:
        return None  # a subclass may do anything
    if "momentum" in groups[0] and (getattr(schedule, "cycle_momentum", False) or "max_momentum" in groups[0]):
        return None  # torch's OneCycleLR and CyclicLR write it at each step; the core's is one for the run
    shared = {key: groups[0][key] for key in getattr(optimizer, "shared", _SHARED) if key in groups[0]}
    for refused in (*_unknown_options(groups), *(key for key in shared if _differ(groups, key))):
        if isinstance(optimizer, KernelOptimizer):
            raise Error(
                f"[optimizer] {type(optimizer).__name__} has no {refused}, and groups may differ in lr and weight_decay only. "
                "Use the class of torch.optim."
            )
        return None
    params: dict[str, Any] = {"lr": float(groups[0]["lr"]), "weight_decay": float(groups[0].get("weight_decay", 0.0))}
    if not getattr(optimizer, "fp32_optimizer_states", True):
        params["fp32_optimizer_states"] = False  # of the masters' dtype, as the core reads it
    if "betas" in shared:
        params["betas"] = [float(beta) for beta in shared["betas"]]
    if isinstance(optimizer, (DeepSpeedCPUAdam, FusedAdam, torch.optim.AdamW, torch.optim.Adam)):
        decoupled = getattr(optimizer, "adam_w_mode", isinstance(optimizer, torch.optim.AdamW))
        if type(optimizer) is torch.optim.Adam and groups[0].get("decoupled_weight_decay"):
            decoupled = True
        params["eps"] = float(shared["eps"])
        if shared.get("bias_correction", True) is False:
            params["bias_correction"] = False
        return {"type": "AdamW" if decoupled else "Adam", "params": params | ({} if decoupled else {"adam_w_mode": False})}
    if isinstance(optimizer, torch.optim.SGD):
        return {"type": "SGD", "params": _sgd(params, shared)}
    row = _ROWS.get(getattr(optimizer, "kind", type(optimizer).__name__.lower()))
    if row is None:
        return None
    others = {key: _plain(value) for key, value in shared.items() if row.takes(key)}
    return {"type": row.name, "params": others | params}


def to_check(section: Any) -> Any:
    """The section of a config as the core can check it: what a class of torch takes beyond that, the class checks. Beside type and
    params DeepSpeed reads nothing."""
    if isinstance(section, Mapping):
        for key in [key for key in section if _is_passed_over(key)]:
            warning_once(
                f"[config optimizer.{key}] has no effect, in DeepSpeed either: settings are read in optimizer.params. Move it there."
            )
        section = {key: value for key, value in section.items() if not _is_passed_over(key)}
    kind = _torch_class(section)
    if kind is None:
        return section
    given = section.get("params") or {}
    if _is_adam(section):
        return {**section, "params": {key: value for key, value in given.items() if key not in _TORCH_ONLY}}
    return {**section, "type": "SGD", "params": {}}


def choose(
    optimizer: Any, section: Any, module: torch.nn.Module, model_parameters: Any, origin: str
) -> torch.optim.Optimizer | None:
    """The optimizer that was passed in, or made by a function that was, or that a section of the config names; None: of none.
    model_parameters: what it is made over; None: the module's."""
    params = list(model_parameters) if model_parameters is not None else None
    if params is not None and not params and not isinstance(optimizer, torch.optim.Optimizer) and (optimizer or section):
        raise NoParametersError("[initialize] model_parameters is empty: nothing would be trained. Leave it out to train the whole model.")
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        made = optimizer(params or list(module.parameters())) if callable(optimizer) else optimizer
        if not isinstance(made, torch.optim.Optimizer):
            raise Error(
                f"[initialize] optimizer is {made!r:.60}. Pass an optimizer of torch, or a function that makes one of parameters."
            )
        return made
    if optimizer is not None:
        return optimizer
    if not section:
        return None
    if params is None:
        params = [param for param in module.parameters() if param.requires_grad]
    if not params:
        raise Error(
            "[initialize] every parameter of the model is frozen, and the config has an optimizer. Leave it out for inference."
        )
    return from_config(section, params, origin)


def from_config(section: Mapping[str, Any], params: Iterable[Any], origin: str = "config") -> torch.optim.Optimizer:
    """A torch optimizer to hold the groups of an optimizer that the config names, or to run itself. The core has checked the
    section. origin: what to call the config."""
    given = dict(section.get("params") or {})
    kind = str(section.get("type", "")).lower()
    if isinstance(given.get("betas"), list):
        given["betas"] = tuple(given["betas"])
    torch_class = _torch_class(section)
    if torch_class is not None:
        return _make(torch_class, params, _for_torch(given) if _is_adam(section) else given, origin)
    taken = ("lr", "betas", "eps", "weight_decay", "momentum", "dampening", "nesterov")
    options = {key: value for key, value in given.items() if key in taken}
    if kind == "sgd":
        return torch.optim.SGD(params, **options)
    if kind in ("adam", "adamw"):
        decoupled = given.get("adam_w_mode", True)
        made = FusedAdam(params, adam_w_mode=decoupled, bias_correction=given.get("bias_correction", True), **options)
    elif kind in _ROWS:
        made = _CLASSES[kind](params, **options) if kind in _CLASSES else HeldOptimizer(params, section)
    else:
        names = ", ".join(row.name for row in _ROWS.values())
        raise Error(f"[{origin} optimizer.type] is not given. Use {names} or a class of torch.optim.")
    made.fp32_optimizer_states = bool(given.get("fp32_optimizer_states", True))  # for section_of
    return made


def _is_passed_over(key: str) -> bool:
    """What is nearly one of the two is a mistake, which the core tells."""
    known = ("type", "params", "legacy_fusion", "torch_adam")
    return key not in known and not difflib.get_close_matches(str(key), known, 1, 0.7)


def _is_adam(section: Mapping[str, Any]) -> bool:
    return str(section.get("type")).lower() in ("adam", "adamw")


def _torch_class(section: Any) -> type[torch.optim.Optimizer] | None:
    """The class of torch that a section asks for: by its name, where the engine has no such update, or by torch_adam."""
    if not isinstance(section, Mapping) or not isinstance(section.get("params") or {}, Mapping):
        return None
    given, name = section.get("params") or {}, str(section.get("type"))
    if _is_adam(section):
        decoupled = name.lower() == "adamw" or given.get("adam_w_mode", True)
        return (torch.optim.AdamW if decoupled else torch.optim.Adam) if given.get("torch_adam", False) in (True, 1) else None
    kind = getattr(torch.optim, name, None)
    if name.lower() in (*_ROWS, "muon"):  # the engine's; Muon of a config is DeepSpeed's own
        return None
    return kind if isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer) else None


def _for_torch(given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a section with torch_adam, without those that the core has found to change nothing."""
    without_effect = {"torch_adam", "adam_w_mode", "set_grad_none", "fp32_optimizer_states", "max_grad_norm"}
    if given.get("bias_correction"):
        without_effect.add("bias_correction")
    return {key: value for key, value in given.items() if key not in without_effect}


def _make(kind: type[torch.optim.Optimizer], params: Iterable[Any], options: dict[str, Any], origin: str) -> torch.optim.Optimizer:
    known = [name for name in inspect.signature(kind).parameters if name != "params"]
    for key in options:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            remedy = f'Did you mean "{near[0]}"?' if near else f"It takes {', '.join(known)}."
            raise Error(f"[{origin} optimizer.params.{key}] torch.optim.{kind.__name__} does not take this. {remedy}")
    try:
        return kind(params, **options)
    except (TypeError, ValueError) as error:
        raise Error(f"[{origin} optimizer.params] torch.optim.{kind.__name__} refuses them: {error}.") from None


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, list, tuple)) else float(value)


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

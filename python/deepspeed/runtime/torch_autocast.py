"""The section torch_autocast: weights stay fp32, and the engine's forward runs under torch.autocast.

In float16 the loss is scaled as DeepSpeed does it, with the settings of torch.amp.GradScaler and none of the section fp16.

Casts of weights are not cached: a copy that outlives its layer would keep a whole model of 16-bit weights on every rank.
Gradients travel as the config says elsewhere (communication_data_type), and not in the dtype of the casts."""

from __future__ import annotations

import contextlib
from typing import Any, Mapping

import torch

from deepspeed.runtime.config_errors import DeepSpeedConfigError
from deepspeed.utils.logging import warning_once

# torch.amp.GradScaler's settings as keys of the section fp16. It has no least scale; below this one nothing is left of a loss.
GRAD_SCALER = {"loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 2000, "hysteresis": 1, "min_loss_scale": 2.0**-24}

_DTYPES = {
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "torch.bfloat16": torch.bfloat16,
    "fp16": torch.float16,
    "float16": torch.float16,
    "torch.float16": torch.float16,
    "half": torch.float16,
}


def autocast_dtype(config: Mapping[str, Any]) -> torch.dtype | None:
    """The dtype of the casts; None: the section is absent or off. Raises where it asks for what there is not."""
    section = config.get("torch_autocast")
    if not isinstance(section, Mapping) or section.get("enabled", False) in (False, 0, "auto"):
        return None
    if section["enabled"] not in (True, 1):
        raise DeepSpeedConfigError(f"[config torch_autocast.enabled] {section['enabled']!r} is neither true nor false. Give one.")
    foreign = sorted(section.keys() - {"enabled", "dtype", "lower_precision_safe_modules"})
    if foreign:
        raise DeepSpeedConfigError(f"[config torch_autocast.{foreign[0]}] is no key of this section: enabled, dtype, lower_precision_safe_modules.")
    word = section.get("dtype", "auto")
    dtype = torch.bfloat16 if word == "auto" else _DTYPES.get(str(word).lower())
    if dtype is None:
        raise DeepSpeedConfigError(f'[config torch_autocast.dtype] {word!r} is not known. Give "bfloat16" or "float16".')
    if section.get("lower_precision_safe_modules") not in (None, "auto"):
        warning_once(
            "[config torch_autocast.lower_precision_safe_modules] has no effect: it names modules whose gradients travel in 16 "
            "bits. communication_data_type does that for all."
        )
    return dtype


def scales_loss(config: Mapping[str, Any]) -> bool:
    """Whether the casts need a loss scale that the weights' dtype does not bring along."""
    fp16 = config.get("fp16")
    has_scale = isinstance(fp16, Mapping) and fp16.get("enabled") in (True, 1)
    return autocast_dtype(config) is torch.float16 and not has_scale


def scale_loss(config: dict[str, Any]) -> None:
    """Asks the core for it."""
    config["fp16"] = {"enabled": False, **GRAD_SCALER}
    config["shoal"] = {**(config.get("shoal") or {}), "scale_loss": True}


def autocast(dtype: torch.dtype | None, device: torch.device) -> contextlib.AbstractContextManager:
    if dtype is None:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype=dtype, cache_enabled=False)

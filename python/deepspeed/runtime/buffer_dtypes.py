"""data_types.buffer_dtype and keep_in_fp32_modules: the dtypes of a model's buffers. Without them buffers keep their own."""

from __future__ import annotations

import re
from typing import Any, Mapping

import torch
from torch import nn

from deepspeed.runtime.config_errors import DeepSpeedConfigError

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_DTYPES = {
    "fp32": torch.float32, "float32": torch.float32, "float": torch.float32, "torch.float32": torch.float32,
    "bf16": torch.bfloat16, "bfloat16": torch.bfloat16, "torch.bfloat16": torch.bfloat16,
    "fp16": torch.float16, "float16": torch.float16, "half": torch.float16, "torch.float16": torch.float16,
}  # fmt: skip


def cast_buffers(module: nn.Module, config: Mapping[str, Any], training: torch.dtype) -> None:
    """training: the dtype of the weights. Buffers that are named to stay fp32 are brought there in 16-bit training."""
    section = config.get("data_types")
    section = section if isinstance(section, Mapping) else {}
    wanted = _wanted(section.get("buffer_dtype"))
    kept = _patterns(module, section.get("keep_in_fp32_modules", "auto"), training)
    for name, buffer in module.named_buffers():
        if buffer.dtype not in _FLOATS:
            continue
        dtype = torch.float32 if kept is not None and kept.search(name) else wanted
        if dtype is not None and buffer.dtype != dtype:
            buffer.data = buffer.data.to(dtype)


def _wanted(word: Any) -> torch.dtype | None:
    if word is None or word == "auto":
        return None
    found = _DTYPES.get(str(word).lower())
    if found is None:
        raise DeepSpeedConfigError(f"[config data_types.buffer_dtype] {word!r} is not known. Give fp32, bf16 or fp16.")
    return found


def _patterns(module: nn.Module, setting: Any, training: torch.dtype) -> re.Pattern[str] | None:
    """Names of buffers that stay fp32; * stands for any letters, and a pattern may match anywhere in a name. "auto": those
    that classes of transformers list, in _keep_in_fp32_modules for fp16 and in _keep_in_fp32_modules_strict for both."""
    if training == torch.float32:
        return None
    found: set[str] = set()
    if setting == "auto" or setting is None:
        for prefix, each in module.named_modules():
            listed = set(getattr(each, "_keep_in_fp32_modules_strict", None) or [])
            if training == torch.float16:
                listed |= set(getattr(each, "_keep_in_fp32_modules", None) or [])
            inside = rf"^{re.escape(prefix)}\..*" if prefix else ""
            found |= {inside + name.replace("*", ".*") for name in listed}
    else:
        found = {name.replace("*", ".*") for name in ([setting] if isinstance(setting, str) else setting)}
    return re.compile("|".join(sorted(found))) if found else None

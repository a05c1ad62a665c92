"""The section flops_profiler as an object."""

from __future__ import annotations

from typing import Any, Mapping

from deepspeed.runtime.config_utils import DeepSpeedConfigObject

_DEFAULTS = {
    "enabled": False,
    "recompute_fwd_factor": 0.0,
    "profile_step": 1,
    "module_depth": -1,
    "top_modules": 1,
    "detailed": True,
    "output_file": None,
}


class DeepSpeedFlopsProfilerConfig(DeepSpeedConfigObject):
    def __init__(self, param_dict: Mapping[str, Any]):
        section = param_dict.get("flops_profiler", {})
        self.__dict__.update({key: section.get(key, value) for key, value in _DEFAULTS.items()})

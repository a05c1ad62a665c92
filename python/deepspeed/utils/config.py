"""The section timers as an object."""

from __future__ import annotations

from typing import Any, Mapping

from deepspeed.runtime.config_utils import DeepSpeedConfigModel, Field


class DeepSpeedThroughputTimerConfig(DeepSpeedConfigModel):
    enabled = Field(True)
    synchronized = Field(True)


def get_timers_config(param_dict: Mapping[str, Any]) -> DeepSpeedThroughputTimerConfig:
    return DeepSpeedThroughputTimerConfig(**((param_dict.get("timers") or {}).get("throughput") or {}))

"""The section comms_logger as an object."""

from __future__ import annotations

from typing import Any, Mapping

from deepspeed.runtime.config_utils import DeepSpeedConfigModel, Field


class CommsLoggerConfig(DeepSpeedConfigModel):
    enabled = Field(False)
    prof_all = Field(True)
    prof_ops = Field([])
    verbose = Field(False)
    debug = Field(False)


class DeepSpeedCommsConfig:
    def __init__(self, ds_config: Mapping[str, Any]):
        section = ds_config.get("comms_logger")
        self.comms_logger_enabled = bool(section) and CommsLoggerConfig(**section).enabled
        if section:
            self.comms_logger = CommsLoggerConfig(**section)

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
        self.comms_logger_enabled = "comms_logger" in ds_config
        if self.comms_logger_enabled:
            self.comms_logger = CommsLoggerConfig(**ds_config["comms_logger"])

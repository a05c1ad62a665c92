"""The sections of the monitors as objects."""

from __future__ import annotations

from typing import Any, Mapping

from deepspeed.runtime.config_utils import DeepSpeedConfigModel, Field


class TensorBoardConfig(DeepSpeedConfigModel):
    enabled = Field(False)
    output_path = Field("")
    job_name = Field("DeepSpeedJobName")


class WandbConfig(DeepSpeedConfigModel):
    enabled = Field(False)
    group = Field(None, str)
    team = Field(None, str)
    project = Field("deepspeed")


class CSVConfig(DeepSpeedConfigModel):
    enabled = Field(False)
    output_path = Field("")
    job_name = Field("DeepSpeedJobName")


class CometConfig(DeepSpeedConfigModel):
    enabled = Field(False)
    samples_log_interval = Field(100)
    project = Field(None, str)
    workspace = Field(None, str)
    api_key = Field(None, str)
    experiment_name = Field(None, str)
    experiment_key = Field(None, str)
    online = Field(None, bool)
    mode = Field(None, str)


class DeepSpeedMonitorConfig(DeepSpeedConfigModel):
    tensorboard = Field(TensorBoardConfig, TensorBoardConfig)
    comet = Field(CometConfig, CometConfig)
    wandb = Field(WandbConfig, WandbConfig)
    csv_monitor = Field(CSVConfig, CSVConfig)

    @property
    def enabled(self) -> bool:
        return any(section.enabled for section in (self.tensorboard, self.comet, self.wandb, self.csv_monitor))


def get_monitor_config(param_dict: Mapping[str, Any]) -> DeepSpeedMonitorConfig:
    return DeepSpeedMonitorConfig(**{key: param_dict.get(key, {}) for key in DeepSpeedMonitorConfig.model_fields})

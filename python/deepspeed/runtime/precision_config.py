"""The sections fp16 and bf16 as objects."""

from __future__ import annotations

from typing import Any, Mapping

from deepspeed.runtime.config_utils import DeepSpeedConfigModel, Field

FP16, BFLOAT16, BFLOAT16_OLD = "fp16", "bf16", "bfloat16"


class DeepSpeedFP16Config(DeepSpeedConfigModel):
    enabled = Field(False)
    auto_cast = Field(False)
    loss_scale = Field(0.0, least=0)
    initial_scale_power = Field(16)
    loss_scale_window = Field(1000)
    hysteresis = Field(2)
    consecutive_hysteresis = Field(False)
    min_loss_scale = Field(1)
    fp16_master_weights_and_grads = Field(False)

    def initial_dynamic_scale(self) -> int:
        return 2**self.initial_scale_power

    def dynamic_loss_scale_args(self) -> dict[str, Any]:
        return {
            "init_scale": self.initial_dynamic_scale(),
            "scale_window": self.loss_scale_window,
            "delayed_shift": self.hysteresis,
            "consecutive_hysteresis": self.consecutive_hysteresis,
            "min_scale": self.min_loss_scale,
        }


class DeepSpeedBF16Config(DeepSpeedConfigModel):
    enabled = Field(False)
    immediate_grad_update = Field(False)
    check_grad_overflow = Field(True)
    bf16_master_weights_and_grads = Field(False)
    bf16_optimizer_states = Field(False)


def get_float16_config(param_dict: Mapping[str, Any]) -> DeepSpeedFP16Config:
    return DeepSpeedFP16Config(**param_dict.get(FP16, {}))


def get_bfloat16_config(param_dict: Mapping[str, Any]) -> DeepSpeedBF16Config:
    """Keys of the loss scale, which people copy from fp16, are passed over."""
    section = param_dict.get(BFLOAT16) or param_dict.get(BFLOAT16_OLD) or {}
    return DeepSpeedBF16Config(**{key: section[key] for key in section if key not in DeepSpeedFP16Config.model_fields or key == "enabled"})

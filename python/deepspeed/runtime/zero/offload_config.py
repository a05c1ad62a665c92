"""The sections offload_param and offload_optimizer as objects."""

from __future__ import annotations

import enum
from pathlib import Path

from deepspeed.runtime.config_utils import DeepSpeedConfigModel, Field, pp_int


class OffloadDeviceEnum(str, enum.Enum):
    none = "none"
    cpu = "cpu"
    nvme = "nvme"


class OffloadStateTypeEnum(str, enum.Enum):
    optim_states = "optim_states"
    hp_params = "hp_params"
    lp_params = "lp_params"
    lp_grads = "lp_grads"
    contiguous_grad_buffer = "contiguous_grad_buffer"


class DeepSpeedZeroOffloadParamConfig(DeepSpeedConfigModel):
    device = Field("none", OffloadDeviceEnum)
    nvme_path = Field(None, Path)
    buffer_count = Field(5, least=0)
    buffer_size = Field(pp_int(1e8), int, least=0)
    max_in_cpu = Field(pp_int(1e9), int, least=0)
    pin_memory = Field(True)
    ratio = Field(1.0, least=0, most=1)  # Shoal's own


class DeepSpeedZeroOffloadOptimizerConfig(DeepSpeedConfigModel):
    device = Field("none", OffloadDeviceEnum)
    nvme_path = Field(None, Path)
    buffer_count = Field(4, least=0)
    pin_memory = Field(True)
    pipeline_read = Field(False)
    pipeline_write = Field(False)
    fast_init = Field(False)
    ratio = Field(1.0, least=0, most=1)
    super_offload = Field(False)
    cpuadam_cores_perc = Field(0.8, least=0, most=1)

    @property
    def pipeline(self) -> bool:
        return self.pipeline_read or self.pipeline_write

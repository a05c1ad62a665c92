"""The section zero_optimization as an object, and stages by name."""

from __future__ import annotations

import enum
import math
import sys
from typing import Any, Mapping

from deepspeed.runtime.config_utils import DeepSpeedConfigModel, Field, pp_int
from deepspeed.runtime.zero.leaf_module_config import DeepSpeedZeroLeafModuleConfig
from deepspeed.runtime.zero.offload_config import (
    DeepSpeedZeroOffloadOptimizerConfig,
    DeepSpeedZeroOffloadParamConfig,
    OffloadDeviceEnum,
)

ZERO_OPTIMIZATION = "zero_optimization"


class ZeroStageEnum(int, enum.Enum):
    disabled = 0
    optimizer_states = 1
    gradients = 2
    weights = 3
    max_stage = 3


class DeepSpeedZeroConfig(DeepSpeedConfigModel):
    stage = Field(0, ZeroStageEnum)
    contiguous_gradients = Field(True)
    reduce_scatter = Field(True)
    reduce_bucket_size = Field(pp_int(5e8), int, least=1)
    use_multi_rank_bucket_allreduce = Field(True)
    allgather_partitions = Field(True)
    allgather_bucket_size = Field(pp_int(5e8), int, least=0)
    overlap_comm = Field(None, bool, "comm_overlap")
    compute_grad_norm = Field(True)
    load_from_fp32_weights = Field(True)
    elastic_checkpoint = Field(False)
    offload_param = Field(None, DeepSpeedZeroOffloadParamConfig)
    offload_optimizer = Field(None, DeepSpeedZeroOffloadOptimizerConfig)
    zenflow = Field(None)
    sub_group_size = Field(pp_int(1e9), int, least=0)
    cpu_offload_param = Field(None, bool)
    cpu_offload_use_pin_memory = Field(None, bool)
    cpu_offload = Field(None, bool)
    prefetch_bucket_size = Field(pp_int(5e7), int, "stage3_prefetch_bucket_size", least=0)
    param_persistence_threshold = Field(pp_int(1e5), int, "stage3_param_persistence_threshold", least=0)
    model_persistence_threshold = Field(pp_int(sys.maxsize, "sys.maxsize"), int, "stage3_model_persistence_threshold", least=0)
    max_live_parameters = Field(pp_int(1e9), int, "stage3_max_live_parameters", least=0)
    max_reuse_distance = Field(pp_int(1e9), int, "stage3_max_reuse_distance", least=0)
    gather_16bit_weights_on_model_save = Field(False, alias="stage3_gather_16bit_weights_on_model_save")
    module_granularity_threshold = Field(pp_int(0), int, "stage3_module_granularity_threshold")
    use_all_reduce_for_fetch_params = Field(False, alias="stage3_use_all_reduce_for_fetch_params")
    allgather_sequential = Field(False, alias="stage3_allgather_sequential")
    stage3_gather_fp16_weights_on_model_save = Field(False)
    ignore_unused_parameters = Field(True)
    legacy_stage1 = Field(False)
    round_robin_gradients = Field(False)
    parameter_alignment = Field(False)
    zero_hpz_partition_size = Field(1, least=0)
    zero_quantized_weights = Field(False)
    zero_quantized_nontrainable_weights = Field(False)
    zero_quantized_gradients = Field(False)
    zeropp_loco_param = Field(None)
    mics_shard_size = Field(-1)
    mics_hierarchical_params_gather = Field(False)
    memory_efficient_linear = Field(True)
    pipeline_loading_checkpoint = Field(False)
    override_module_apply = Field(True)
    log_trace_cache_warnings = Field(False)
    enable_sanity_checks = Field(False)
    save_muon_momentum_buffer_in_memory = Field(False)
    leaf_module = Field(DeepSpeedZeroLeafModuleConfig, DeepSpeedZeroLeafModuleConfig, nullable=True)

    def settle(self) -> None:
        """Deprecated fields fill those that took their place, and overlap_comm follows the stage."""
        if self.overlap_comm is None:
            self.overlap_comm = self.stage == ZeroStageEnum.weights
        if self.cpu_offload and self.offload_optimizer is None:
            self.offload_optimizer = DeepSpeedZeroOffloadOptimizerConfig(device=OffloadDeviceEnum.cpu)
        if self.cpu_offload_param and self.offload_param is None:
            self.offload_param = DeepSpeedZeroOffloadParamConfig(device=OffloadDeviceEnum.cpu)
        if self.stage3_gather_fp16_weights_on_model_save:
            self.gather_16bit_weights_on_model_save = True


def get_zero_config(param_dict: Mapping[str, Any]) -> DeepSpeedZeroConfig:
    """true and false are stages 1 and 0; sizes with a fraction, which Hugging Face writes, are rounded down."""
    section = param_dict.get(ZERO_OPTIMIZATION, {})
    if isinstance(section, bool):
        return DeepSpeedZeroConfig(stage=int(section))
    sizes = {key: int(value) for key, value in section.items() if isinstance(value, float) and math.isfinite(value)}
    return DeepSpeedZeroConfig(**{**section, **sizes})

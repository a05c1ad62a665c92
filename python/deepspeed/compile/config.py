"""The section compile as an object."""

from __future__ import annotations

from deepspeed.runtime.config_utils import DeepSpeedConfigModel, Field


class CompileConfig(DeepSpeedConfigModel):
    deepcompile = Field(False)
    autoep_non_moe = Field(False)
    free_activation = Field(False)
    free_activation_threshold = Field(10 * 1024 * 1024)
    offload_activation = Field(False)
    offload_activation_pin_memory = Field(True)
    offload_opt_states = Field(False)
    double_buffer = Field(True)
    symmetric_memory = Field(False)
    debug_log = Field(False)
    offload_parameters = Field(False)
    sync_before_reduce = Field(False)
    sync_after_reduce = Field(False)
    sync_before_allgather = Field(False)
    sync_after_allgather = Field(False)
    keep_int_input_tensors = Field(True)
    keep_all_input_tensors = Field(False)
    passes = Field(None, list)

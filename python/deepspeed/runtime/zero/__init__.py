"""deepspeed.runtime.zero: the names that deepspeed.zero has too."""

from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload
from deepspeed.runtime.zero.partition_parameters import (
    GatheredParameters,
    Init,
    ZeroParamStatus,
    ZeroParamType,
    register_external_parameter,
    unregister_external_parameter,
)
from deepspeed.runtime.zero.stage3 import unwrap_model_for_generation

__all__ = [
    "DeepSpeedZeRoOffload",
    "GatheredParameters",
    "Init",
    "ZeroParamStatus",
    "ZeroParamType",
    "register_external_parameter",
    "unregister_external_parameter",
    "unwrap_model_for_generation",
]

"""The section activation_checkpointing as an object."""

from __future__ import annotations

from typing import Any, Mapping

from deepspeed.runtime.config_utils import DeepSpeedConfigObject

ACT_CHKPT = "activation_checkpointing"
ACT_CHKPT_DEFAULT = {
    "partition_activations": False,
    "number_checkpoints": None,
    "contiguous_memory_optimization": False,
    "synchronize_checkpoint_boundary": False,
    "profile": False,
    "cpu_checkpointing": False,
}


class DeepSpeedActivationCheckpointingConfig(DeepSpeedConfigObject):
    def __init__(self, param_dict: Mapping[str, Any]):
        section = param_dict.get(ACT_CHKPT, {})
        self.__dict__.update({key: section.get(key, value) for key, value in ACT_CHKPT_DEFAULT.items()})

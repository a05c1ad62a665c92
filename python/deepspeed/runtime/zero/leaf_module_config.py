"""The section leaf_module as an object."""

from __future__ import annotations

from deepspeed.runtime.config_utils import DeepSpeedConfigModel, Field

_MODELS = "transformers.models"
DEFAULT_LEAF_MODULE_CLASSES = [
    f"{_MODELS}.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    f"{_MODELS}.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
    f"{_MODELS}.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
]


class DeepSpeedZeroLeafModuleConfig(DeepSpeedConfigModel):
    classes = Field(DEFAULT_LEAF_MODULE_CLASSES)
    names = Field([])
    name_suffixes = Field([])

    def settle(self) -> None:
        for name in self.model_fields:
            setattr(self, name, list(dict.fromkeys(str(word) for word in getattr(self, name))))

"""The builders of DeepSpeed's kernels, for those who ask whether one is there: Shoal compiles nothing at run time."""

from __future__ import annotations

from typing import NoReturn

# What each builds, and whether Shoal has it, compiled already.
_BUILDERS = {
    "AsyncIOBuilder": ("async_io", False),
    "CPUAdagradBuilder": ("cpu_adagrad", True),
    "CPUAdamBuilder": ("cpu_adam", True),
    "CPULionBuilder": ("cpu_lion", True),
    "EvoformerAttnBuilder": ("evoformer_attn", False),
    "FPQuantizerBuilder": ("fp_quantizer", False),
    "FusedAdamBuilder": ("fused_adam", True),
    "FusedLambBuilder": ("fused_lamb", False),
    "FusedLionBuilder": ("fused_lion", True),
    "GDSBuilder": ("gds", False),
    "InferenceBuilder": ("transformer_inference", False),
    "InferenceCoreBuilder": ("inference_core_ops", False),
    "InferenceCutlassBuilder": ("cutlass_ops", False),
    "QuantizerBuilder": ("quantizer", False),
    "RaggedOpsBuilder": ("ragged_device_ops", False),
    "RaggedUtilsBuilder": ("ragged_ops", False),
    "RandomLTDBuilder": ("random_ltd", False),
    "SpatialInferenceBuilder": ("spatial_inference", False),
    "StochasticTransformerBuilder": ("stochastic_transformer", False),
    "TransformerBuilder": ("transformer", False),
}


class OpBuilder:
    NAME = ""
    is_here = False

    def is_compatible(self, verbose: bool = False) -> bool:
        return self.is_here

    def load(self, verbose: bool = True) -> NoReturn:
        remedy = "Its optimizers are in deepspeed.ops." if self.is_here else "docs/from_deepspeed.md says what is here."
        raise NotImplementedError(f"[{type(self).__name__}] Shoal has no modules of DeepSpeed's kernels to load. {remedy}")


for _name, (_op, _is_here) in _BUILDERS.items():
    globals()[_name] = type(_name, (OpBuilder,), {"NAME": _op, "is_here": _is_here, "__module__": __name__})

__compatible_ops__ = dict(_BUILDERS.values())
__all__ = ["OpBuilder", *_BUILDERS]

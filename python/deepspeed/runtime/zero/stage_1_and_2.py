"""Names of DeepSpeed's stages 1 and 2: the class of their optimizer, and estimates of memory."""

from deepspeed.runtime.base_optimizer import ZeROOptimizer
from deepspeed.runtime.zero.estimates import (  # noqa: F401
    estimate_zero2_model_states_mem_needs,
    estimate_zero2_model_states_mem_needs_all_cold,
    estimate_zero2_model_states_mem_needs_all_live,
)


class DeepSpeedZeroOptimizer(ZeROOptimizer):
    """The optimizer that deepspeed.initialize returns at stages 1 and 2."""

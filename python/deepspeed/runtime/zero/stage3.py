"""Names of DeepSpeed's stage 3: the class of its optimizer, generation, and estimates of memory."""

from __future__ import annotations

import contextlib
from typing import Iterator

from torch import nn

from deepspeed.runtime.base_optimizer import ZeROOptimizer
from deepspeed.runtime.zero.estimates import (  # noqa: F401
    estimate_zero3_model_states_mem_needs,
    estimate_zero3_model_states_mem_needs_all_cold,
    estimate_zero3_model_states_mem_needs_all_live,
)
from deepspeed.runtime.zero.partition_parameters import GatheredParameters


class DeepSpeedZeroOptimizer_Stage3(ZeROOptimizer):
    """The optimizer that deepspeed.initialize returns at stage 3."""


@contextlib.contextmanager
def unwrap_model_for_generation(model: nn.Module) -> Iterator[nn.Module]:
    """Has the weights of an engine whole inside. Its hooks stay: inside they cost microseconds."""
    with GatheredParameters(model.parameters()):
        yield model

"""deepspeed.profiling.flops_profiler."""

from deepspeed.profiling.flops_profiler.profiler import FlopsProfiler, get_model_profile
from deepspeed.profiling.flops_profiler.text import (
    bytes_to_string,
    duration_to_string,
    flops_to_string,
    macs_to_string,
    number_to_string,
    params_to_string,
)

__all__ = [
    "FlopsProfiler",
    "bytes_to_string",
    "duration_to_string",
    "flops_to_string",
    "get_model_profile",
    "macs_to_string",
    "number_to_string",
    "params_to_string",
]

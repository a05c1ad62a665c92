"""Names of DeepSpeed's stage 3: the class of its optimizer, generation, and estimates of memory."""

from __future__ import annotations

import contextlib
from typing import Iterator

from torch import nn

from deepspeed.runtime.base_optimizer import ZeROOptimizer
from deepspeed.runtime.zero import estimates
from deepspeed.runtime.zero.partition_parameters import GatheredParameters


class DeepSpeedZeroOptimizer_Stage3(ZeROOptimizer):
    """The optimizer that deepspeed.initialize returns at stage 3."""


@contextlib.contextmanager
def unwrap_model_for_generation(model: nn.Module) -> Iterator[nn.Module]:
    """Has the weights of an engine whole inside. Its hooks stay: inside they cost microseconds."""
    with GatheredParameters(model.parameters()):
        yield model


def estimate_zero3_model_states_mem_needs(
    total_params: int,
    largest_layer_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    cpu_offload: bool = True,
    cpu_offload_params: bool = True,
    zero_init: bool = True,
    additional_buffer_factor: float = estimates._FACTOR,
) -> tuple[int, int, int]:
    """(bytes of a node's host memory, bytes of a GPU, bytes of the gathered layers among them)."""
    needs = estimates.needs_of_count(
        total_params, largest_layer_params, num_gpus_per_node, num_nodes, additional_buffer_factor
    )
    host, gpu = needs.at(3, cpu_offload, cpu_offload and cpu_offload_params, zero_init)
    return host, gpu, needs.plans[3].gather_arena


def estimate_zero3_model_states_mem_needs_all_live(
    model: nn.Module,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    additional_buffer_factor: float = estimates._FACTOR,
) -> None:
    needs = estimates.needs_of_model(model, num_gpus_per_node, num_nodes, additional_buffer_factor)
    estimates.print_table(needs, 3, num_nodes, estimates.ROWS_3)


def estimate_zero3_model_states_mem_needs_all_cold(
    total_params: int,
    largest_layer_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    additional_buffer_factor: float = estimates._FACTOR,
) -> None:
    needs = estimates.needs_of_count(
        total_params, largest_layer_params, num_gpus_per_node, num_nodes, additional_buffer_factor
    )
    estimates.print_table(needs, 3, num_nodes, estimates.ROWS_3)

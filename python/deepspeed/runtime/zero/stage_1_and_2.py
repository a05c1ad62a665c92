"""Names of DeepSpeed's stages 1 and 2: the class of their optimizer, and estimates of memory."""

from __future__ import annotations

from torch import nn

from deepspeed.runtime.base_optimizer import ZeROOptimizer
from deepspeed.runtime.zero import estimates


class DeepSpeedZeroOptimizer(ZeROOptimizer):
    """The optimizer that deepspeed.initialize returns at stages 1 and 2."""


def estimate_zero2_model_states_mem_needs(
    total_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    cpu_offload: bool = True,
    additional_buffer_factor: float = estimates._FACTOR,
) -> tuple[int, int]:
    """(bytes of a node's host memory, bytes of a GPU)."""
    needs = estimates.needs_of_count(total_params, total_params, num_gpus_per_node, num_nodes, additional_buffer_factor)
    return needs.at(2, cpu_offload)


def estimate_zero2_model_states_mem_needs_all_live(
    model: nn.Module,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    additional_buffer_factor: float = estimates._FACTOR,
) -> None:
    needs = estimates.needs_of_model(model, num_gpus_per_node, num_nodes, additional_buffer_factor)
    estimates.print_table(needs, 2, num_nodes, estimates.ROWS_2)


def estimate_zero2_model_states_mem_needs_all_cold(
    total_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    additional_buffer_factor: float = estimates._FACTOR,
) -> None:
    needs = estimates.needs_of_count(total_params, total_params, num_gpus_per_node, num_nodes, additional_buffer_factor)
    estimates.print_table(needs, 2, num_nodes, estimates.ROWS_2)

"""DeepSpeed's estimates of memory, answered by Shoal's planner: bytes that are counted, not guessed.

Counted are weights, gradients and Adam's states in bf16, and what stage 3 gathers. With offload the states of the
optimizer, and with that of parameters the weights, are counted on the host, for all ranks of a node. The modules stage3 and
stage_1_and_2 have the names; below stage 3 no layer is gathered, and the largest does not count.
"""

from __future__ import annotations

from torch import nn

import shoal
from shoal import _core, planning

# DeepSpeed guesses this factor; a plan that is counted needs none. What is passed multiplies the host's bytes.
_FACTOR = 1.0
_CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "bf16": {"enabled": True},
    "optimizer": {"type": "AdamW"},
    "zero_optimization": {"stage": 3},
}


class Needs:
    """One model on one cluster."""

    def __init__(self, plans: list[_core.MemoryPlan], total: int, ranks: int, factor: float):
        self.plans = plans
        self.total = total
        self.ranks = ranks  # on a node
        self.factor = factor

    def at(self, stage: int, optimizer: bool, params: bool = False, zero_init: bool = True) -> tuple[int, int]:
        """Bytes of a node's host memory, and of one GPU."""
        plan = self.plans[stage]
        host = (plan.states if optimizer else 0) + (plan.weights if params else 0)
        held = host * self.ranks
        if not zero_init:  # every rank builds the whole model in fp32 first
            held = max(held, 4 * self.total * self.ranks)
        return int(held * self.factor), int(plan.total - host)


def _needs_of_model(model: nn.Module, ranks: int, nodes: int, factor: float) -> Needs:
    total = sum(getattr(param, "ds_numel", param.numel()) for param in model.parameters())
    return Needs(planning.plan(model, _CONFIG, ranks * nodes), total, ranks, factor)


def _needs_of_count(total: int, largest: int, ranks: int, nodes: int, factor: float) -> Needs:
    if not 0 < largest <= total:
        raise shoal.Error(f"[estimate] the largest layer has {largest} of {total} parameters. Give a number from 1 to all.")
    return Needs(planning.plan_count(int(total), int(largest), _CONFIG, ranks * nodes), int(total), ranks, factor)


def _print_table(needs: Needs, stage: int, nodes: int) -> None:
    print(
        f"Memory for weights, gradients and Adam's states at ZeRO stage {stage}, in bf16, counted by Shoal's planner:\n"
        f"{nodes} node(s) of {needs.ranks} GPU(s), {needs.total / 1e6:.0f}M parameters."
    )
    print("  per CPU  |  per GPU |   Options")
    for text, options in _ROWS[stage]:
        host, gpu = needs.at(stage, **options)
        print(f" {host / 2**30:7.2f}GB | {gpu / 2**30:6.2f}GB | {text}")


_ROWS = {
    2: [
        ("offload_optimizer=cpu ", {"optimizer": True}),
        ("offload_optimizer=none", {"optimizer": False}),
    ],
    3: [
        (f"offload_param={'cpu ' if params else 'none'}, offload_optimizer={'cpu ' if optimizer else 'none'}, zero_init={int(init)}",
         {"optimizer": optimizer, "params": params, "zero_init": init})
        for optimizer, params in ((True, True), (True, False), (False, False))
        for init in (True, False)
    ],
}  # fmt: skip


def estimate_zero2_model_states_mem_needs(
    total_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    cpu_offload: bool = True,
    additional_buffer_factor: float = _FACTOR,
) -> tuple[int, int]:
    """(bytes of a node's host memory, bytes of a GPU)."""
    needs = _needs_of_count(total_params, total_params, num_gpus_per_node, num_nodes, additional_buffer_factor)
    return needs.at(2, cpu_offload)


def estimate_zero3_model_states_mem_needs(
    total_params: int,
    largest_layer_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    cpu_offload: bool = True,
    cpu_offload_params: bool = True,
    zero_init: bool = True,
    additional_buffer_factor: float = _FACTOR,
) -> tuple[int, int, int]:
    """(bytes of a node's host memory, bytes of a GPU, bytes of the gathered layers among them)."""
    needs = _needs_of_count(total_params, largest_layer_params, num_gpus_per_node, num_nodes, additional_buffer_factor)
    host, gpu = needs.at(3, cpu_offload, cpu_offload and cpu_offload_params, zero_init)
    return host, gpu, needs.plans[3].gather_arena


def estimate_zero2_model_states_mem_needs_all_live(
    model: nn.Module, num_gpus_per_node: int = 1, num_nodes: int = 1, additional_buffer_factor: float = _FACTOR
) -> None:
    _print_table(_needs_of_model(model, num_gpus_per_node, num_nodes, additional_buffer_factor), 2, num_nodes)


def estimate_zero3_model_states_mem_needs_all_live(
    model: nn.Module, num_gpus_per_node: int = 1, num_nodes: int = 1, additional_buffer_factor: float = _FACTOR
) -> None:
    _print_table(_needs_of_model(model, num_gpus_per_node, num_nodes, additional_buffer_factor), 3, num_nodes)


def estimate_zero2_model_states_mem_needs_all_cold(
    total_params: int, num_gpus_per_node: int = 1, num_nodes: int = 1, additional_buffer_factor: float = _FACTOR
) -> None:
    needs = _needs_of_count(total_params, total_params, num_gpus_per_node, num_nodes, additional_buffer_factor)
    _print_table(needs, 2, num_nodes)


def estimate_zero3_model_states_mem_needs_all_cold(
    total_params: int,
    largest_layer_params: int,
    num_gpus_per_node: int = 1,
    num_nodes: int = 1,
    additional_buffer_factor: float = _FACTOR,
) -> None:
    needs = _needs_of_count(total_params, largest_layer_params, num_gpus_per_node, num_nodes, additional_buffer_factor)
    _print_table(needs, 3, num_nodes)

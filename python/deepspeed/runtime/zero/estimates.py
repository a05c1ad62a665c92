"""DeepSpeed's estimates of memory, answered by Shoal's planner: bytes that are counted, not guessed.

Counted are weights, gradients and Adam's states in bf16, and what stage 3 gathers. With offload the states of the
optimizer, and with that of parameters the weights, are counted on the host, for all ranks of a node.
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


def needs_of_model(model: nn.Module, ranks: int, nodes: int, factor: float) -> Needs:
    total = sum(getattr(param, "ds_numel", param.numel()) for param in model.parameters())
    return Needs(planning.plan(model, _CONFIG, ranks * nodes), total, ranks, factor)


def needs_of_count(total: int, largest: int, ranks: int, nodes: int, factor: float) -> Needs:
    if not 0 < largest <= total:
        raise shoal.Error(f"[estimate] the largest layer has {largest} of {total} parameters. Give a number from 1 to all.")
    return Needs(planning.plan_count(int(total), int(largest), _CONFIG, ranks * nodes), int(total), ranks, factor)


def print_table(needs: Needs, stage: int, nodes: int, rows: list[tuple[str, dict[str, bool]]]) -> None:
    print(
        f"Memory for weights, gradients and Adam's states at ZeRO stage {stage}, in bf16, counted by Shoal's planner:\n"
        f"{nodes} node(s) of {needs.ranks} GPU(s), {needs.total / 1e6:.0f}M parameters."
    )
    print("  per CPU  |  per GPU |   Options")
    for text, options in rows:
        host, gpu = needs.at(stage, **options)
        print(f" {host / 2**30:7.2f}GB | {gpu / 2**30:6.2f}GB | {text}")


ROWS_2 = [
    ("offload_optimizer=cpu ", {"optimizer": True}),
    ("offload_optimizer=none", {"optimizer": False}),
]
ROWS_3 = [
    (f"offload_param={'cpu ' if params else 'none'}, offload_optimizer={'cpu ' if optimizer else 'none'}, zero_init={int(init)}",
     {"optimizer": optimizer, "params": params, "zero_init": init})
    for optimizer, params in ((True, True), (True, False), (False, False))
    for init in (True, False)
]  # fmt: skip

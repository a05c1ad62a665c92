"""Whether accelerate, which fills in the batch of a Hugging Face script, has counted the ranks as they are.

Without a GPU it takes each rank for a process of its own unless it is told that CPUs are meant; the batch is then too small by
the number of ranks, and all that the core could say is that the product is wrong.
"""

from __future__ import annotations

import sys
from typing import Any, Mapping

import torch

from shoal import Error
from shoal.world import world_size


def check_count(config: Mapping[str, Any]) -> None:
    """Raises where the batch of this config is that of another number of processes, which is accelerate's."""
    state = sys.modules.get("accelerate.state")
    counted = state.PartialState._shared_state.get("num_processes") if state is not None else None
    ranks = world_size()
    batch, micro = config.get("train_batch_size"), config.get("train_micro_batch_size_per_gpu")
    steps = config.get("gradient_accumulation_steps", 1)
    if counted is None or counted == ranks or not all(isinstance(number, int) for number in (batch, micro, steps)):
        return
    if batch != micro * steps * counted:
        return
    if torch.cuda.is_available():
        remedy = "Start the ranks by torchrun, deepspeed or accelerate launch, before anything makes its state."
    else:
        remedy = (
            "There is no GPU, so say that CPUs are meant: TrainingArguments(use_cpu=True) (in TRL's too), or without a "
            "Trainer PartialState(cpu=True) before anything else of accelerate."
        )
    raise Error(
        f"[initialize] accelerate counts {counted} process{'' if counted == 1 else 'es'}, and {ranks} ranks run: it made "
        f"train_batch_size {batch} = {micro} (micro-batch) x {steps} (accumulation) x {counted}. {remedy}"
    )

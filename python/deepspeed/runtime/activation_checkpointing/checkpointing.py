"""Activation checkpointing by torch. Inputs of checkpointed functions are kept whole on this rank: where they are, or,
with `checkpoint_in_cpu`, in pinned host memory while the model is on a GPU."""

from __future__ import annotations

from typing import Any, Callable

import torch
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint as _checkpoint

from deepspeed.runtime.config_translation import load_config
from deepspeed.utils.arguments import refuse, without_effect

_configured = False
_inputs_on_host = False


def checkpoint(function: Callable, *args: Any) -> Any:
    if _inputs_on_host and any(torch.is_tensor(arg) and arg.is_cuda for arg in args):
        # Torch keeps the inputs as saved tensors, outside of the hooks that it puts around the function itself.
        with save_on_cpu(pin_memory=True):
            return _checkpoint(function, *args, use_reentrant=False)
    return _checkpoint(function, *args, use_reentrant=False)


def configure(
    mpu_: Any = None,
    deepspeed_config: Any = None,
    partition_activations: bool | None = None,
    contiguous_checkpointing: bool | None = None,
    num_checkpoints: int | None = None,
    checkpoint_in_cpu: bool | None = None,
    synchronize: bool | None = None,
    profile: bool | None = None,
) -> None:
    global _configured, _inputs_on_host
    _configured = True
    place = "checkpointing.configure"
    refuse(place, "All ranks are data-parallel; leave it out.", mpu_=mpu_)
    section = _section(deepspeed_config)
    without_effect(
        place,
        "activations stay whole on their rank, and torch recomputes",
        partition_activations=partition_activations or section.get("partition_activations"),
        contiguous_checkpointing=contiguous_checkpointing or section.get("contiguous_memory_optimization"),
        num_checkpoints=num_checkpoints or section.get("number_checkpoints"),
        synchronize=synchronize or section.get("synchronize_checkpoint_boundary"),
        profile=profile or section.get("profile"),
    )
    _inputs_on_host = bool(section.get("cpu_checkpointing") if checkpoint_in_cpu is None else checkpoint_in_cpu)


def _section(config: Any) -> dict[str, Any]:
    return (load_config(config).get("activation_checkpointing") or {}) if config is not None else {}


def is_configured() -> bool:
    return _configured


def reset() -> None:
    """Nothing is kept between checkpoints."""

"""Activation checkpointing. Activations are kept whole on this rank, whatever `configure` asks for."""

from __future__ import annotations

from typing import Any, Callable

from torch.utils.checkpoint import checkpoint as _checkpoint

from deepspeed.utils.logging import warning_once

_configured = False


def checkpoint(function: Callable, *args: Any) -> Any:
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
    global _configured
    _configured = True
    for name, value in (("partition_activations", partition_activations), ("checkpoint_in_cpu", checkpoint_in_cpu)):
        if value:
            warning_once(f"[checkpointing.configure] {name} has no effect: activations stay whole on their rank.")


def is_configured() -> bool:
    return _configured


def reset() -> None:
    """Nothing is kept between checkpoints."""

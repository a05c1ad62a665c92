"""deepspeed.checkpointing: torch's activation checkpointing under DeepSpeed's name."""

from deepspeed.runtime.activation_checkpointing.checkpointing import (  # noqa: F401
    checkpoint,
    configure,
    is_configured,
    reset,
)

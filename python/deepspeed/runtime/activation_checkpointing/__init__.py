"""deepspeed.runtime.activation_checkpointing."""

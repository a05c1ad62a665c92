"""States of a torch optimizer that runs itself, in checkpoints: under torch's names, in DeepSpeed's cut."""

from __future__ import annotations

from typing import Any

import torch

from deepspeed.runtime.checkpoint_save import STATE_NAMES


def register(optimizer: torch.optim.Optimizer, keys: dict[str, Any]) -> str:
    """The name under which checkpoints know the optimizer's states. The step is the engine's, saved for all alike."""
    names = sorted(key for key in keys if key != "step")
    name = f"{type(optimizer).__name__}({', '.join(names)})"
    STATE_NAMES[name] = {key: key for key in names}
    return name

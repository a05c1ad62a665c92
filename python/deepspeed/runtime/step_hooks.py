"""Hooks of optimizer.register_step_pre_hook and register_step_post_hook, around updates that the engine runs."""

from __future__ import annotations

from typing import Any, Iterable

import torch
from torch.optim import optimizer as torchs

import shoal


def of(engine: Any) -> list[torch.optim.Optimizer]:
    """The optimizers whose hooks the engine calls: the one that initialize returned, and the one inside. One that runs itself
    calls its own."""
    found = [] if engine._shoal.client is not None else [engine.basic_optimizer]
    return found if engine.optimizer is engine.basic_optimizer else [engine.optimizer, *found]


def call_before(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    """Also before a step that is skipped then: whether it is, is decided inside."""
    for optimizer in optimizers:
        for hook in (*_global(optimizer, torchs._global_optimizer_pre_hooks), *optimizer._optimizer_step_pre_hooks.values()):
            changed = hook(optimizer, (optimizer,), {})
            if changed is not None:
                raise shoal.Error(
                    f"[step] a step_pre_hook of the optimizer returned {changed!r:.80}: the engine's step takes no arguments that a hook "
                    "could change. Return None."
                )


def call_after(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    for optimizer in reversed(list(optimizers)):
        for hook in (*optimizer._optimizer_step_post_hooks.values(), *_global(optimizer, torchs._global_optimizer_post_hooks)):
            hook(optimizer, (optimizer,), {})


def _global(optimizer: torch.optim.Optimizer, hooks: dict) -> list:
    """Once a step, by the optimizer inside."""
    return [] if hasattr(optimizer, "optimizer") else list(hooks.values())

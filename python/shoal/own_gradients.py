"""Gradients that are not the engine's: p.grad set by hand, and hooks that wait for it. Backward and step refuse them."""

from __future__ import annotations

from typing import Iterable

import torch

from shoal import _core

_Params = Iterable[tuple[str, torch.Tensor]]


def refuse_set(params: _Params) -> None:
    """In step: the engine updates with gradients of its own, and would pass over these."""
    for name, param in params:
        if param.grad is not None:
            raise _core.Error(
                f"[step] {name}.grad was set by hand, and the engine does not read it: gradients come by engine.backward(loss), and are "
                "read and replaced by safe_get_full_grad and safe_set_full_grad. Set it to None."
            )


def refuse_hooks(params: _Params) -> None:
    """Before backward: p.grad is None when they are called."""
    for name, param in params:
        if param._post_accumulate_grad_hooks:
            raise _core.Error(
                f"[backward] {name} has a hook of register_post_accumulate_grad_hook, and the engine takes each gradient before such "
                "hooks are called: they see no p.grad. Use register_hook, which is given the gradient of this rank, or "
                "safe_get_full_grad after backward."
            )

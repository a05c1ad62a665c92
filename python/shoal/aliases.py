"""Tensors that share a parameter's memory: an engine gives the parameter memory of its own, and they would stay behind. Those that
the model holds are refused; of others nobody can tell what they are for, so the user is told that there are some."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from shoal import _core


def check_none(model: nn.Module) -> None:
    """Raises where a buffer, or a tensor kept as an attribute or in a list or dict of one, is made of a parameter's memory."""
    ranges = {}  # of the parameters, by storage
    for name, param in model.named_parameters():
        if _has_memory(param):
            ranges.setdefault(param.untyped_storage().data_ptr(), []).append((*_bytes_of(param), name))
    for what, tensor in _others(model):
        begin, end = _bytes_of(tensor)
        for first, last, name in ranges.get(tensor.untyped_storage().data_ptr(), []):
            if first < end and begin < last:
                raise _core.Error(
                    f"[{what}] shares its memory with parameter {name}, which the engine moves to memory of its own: it would keep "
                    "the first values. Copy it (clone()), use the parameter itself, or delete what an earlier forward left."
                )


def warn_of_unknown(model: nn.Module) -> None:
    """Warns of parameters whose memory somebody outside of the model holds too: a dict of `state_dict()`, a closure over `param.data`."""
    params = [(name, param) for name, param in model.named_parameters() if _has_memory(param)]
    held = Counter(param.untyped_storage().data_ptr() for _, param in params)
    shared = [name for name, param in params if _holders(param) > held[param.untyped_storage().data_ptr()]]
    if shared:
        warnings.warn(
            f"[initialize] tensors that are not the model's share the memory of {', '.join(shared[:3])} ({len(shared)} parameters in all): "
            "a state_dict(), or what .data, detach() or a view gave. They keep the values of now, since the engine moves parameters to "
            "memory of its own. Where a forward reads one, use the parameter itself."
        )


def _holders(param: torch.Tensor) -> int:
    """How many tensors have the parameter's memory."""
    storage = param.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata) - 1  # `storage` is one more


def _others(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, module in model.named_modules():
        dot = f"{path}." if path else ""
        for name, value in module._buffers.items():
            yield from _tensors_in(f"buffer {dot}{name}", value)
        for name, value in vars(module).items():
            # Spectral norms and their like make `weight` anew from `weight_orig` in each forward.
            if name not in _TABLES and f"{name}_orig" not in module._parameters:
                yield from _tensors_in(f"attribute {dot}{name}", value)


_TABLES = set(vars(nn.Module()))  # of parameters, buffers, modules and hooks


def _tensors_in(what: str, value: Any, depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    if type(value) is torch.Tensor and value.layout == torch.strided and _has_memory(value):
        yield what, value
    elif depth < 3 and isinstance(value, (list, tuple)):
        for index, each in enumerate(value):
            yield from _tensors_in(f"{what}[{index}]", each, depth + 1)
    elif depth < 3 and isinstance(value, dict):
        for key, each in value.items():
            yield from _tensors_in(f"{what}[{key!r:.40}]", each, depth + 1)


def _has_memory(tensor: torch.Tensor) -> bool:
    if not tensor.numel() or tensor.device.type == "meta":
        return False
    try:
        return tensor.untyped_storage().data_ptr() != 0
    except RuntimeError:  # released by an engine that had it before
        return False


def _bytes_of(tensor: torch.Tensor) -> tuple[int, int]:
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()

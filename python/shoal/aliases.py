"""Tensors of a model that share a parameter's memory: an engine gives the parameter memory of its own, and they would stay behind."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from shoal import _core


def check_none(model: nn.Module) -> None:
    """Raises where a buffer, or a tensor kept as an attribute, is made of a parameter's memory."""
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
                    "the first values. Copy it (clone()), or use the parameter itself."
                )


def _others(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, module in model.named_modules():
        dot = f"{path}." if path else ""
        held = [("buffer", name, value) for name, value in module._buffers.items()]
        # Spectral norms and their like make `weight` anew from `weight_orig` in each forward.
        held += [("attribute", name, value) for name, value in vars(module).items() if f"{name}_orig" not in module._parameters]
        for what, name, value in held:
            # What was computed from a parameter is of an earlier forward.
            if type(value) is torch.Tensor and value.layout == torch.strided and value.grad_fn is None and _has_memory(value):
                yield f"{what} {dot}{name}", value


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

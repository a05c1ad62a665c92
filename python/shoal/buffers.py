"""Buffers of a model that its state dict has: no engine holds them, and checkpoints must."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json

import torch
from torch import nn

from shoal import _core


def persistent_names(model: nn.Module) -> list[str]:
    """The keys of the model's state dict, without reading a parameter."""
    names = []
    for prefix, module in model.named_modules(remove_duplicate=False):
        dot = f"{prefix}." if prefix else ""
        names += [dot + name for name, param in module._parameters.items() if param is not None]
        names += [
            dot + name
            for name, buffer in module._buffers.items()
            if buffer is not None and name not in module._non_persistent_buffers_set
        ]
    return list(dict.fromkeys(names))


def buffer_named(model: nn.Module, name: str) -> torch.Tensor:
    path, _, last = name.rpartition(".")
    return getattr(model.get_submodule(path), last)


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu", copy=True)


def names_of(model: nn.Module) -> list[str]:
    params = dict(model.named_parameters(remove_duplicate=False))
    return [name for name in persistent_names(model) if name not in params]


def read_all(model: nn.Module) -> dict[str, torch.Tensor]:
    """Persistent buffers by name, copied to host memory."""
    return {name: host_copy(buffer_named(model, name)) for name in names_of(model)}


def write(model: nn.Module, saved: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        for name, value in saved.items():
            buffer_named(model, name).copy_(value)


def check_fit(model: nn.Module, saved: dict[str, torch.Tensor], place: str) -> None:
    """Raises unless the model has these buffers, of these shapes, and no others."""
    shapes = {name: tuple(buffer_named(model, name).shape) for name in names_of(model)}
    there = {name: tuple(value.shape) for name, value in saved.items()}
    wrong = sorted(name for name in shapes.keys() | there.keys() if shapes.get(name) != there.get(name))
    if wrong:
        name = wrong[0]
        raise _core.Error(
            f"[{place}] {len(wrong)} buffers are not as the model's: {name} is {there.get(name, 'absent')} there and "
            f"{shapes.get(name, 'absent')} here. Load it into the model that saved it."
        )


def take_rank_0s(model: nn.Module, world: _core.Group) -> None:
    """Every rank begins with rank 0's values, as of weights. Every rank calls it."""
    own = {name: buffer for name, buffer in model.named_buffers() if buffer.layout == torch.strided and buffer.device.type != "meta"}
    digests = {name: f"{buffer.dtype} {tuple(buffer.shape)} {hashlib.sha256(_bytes_of(buffer)).hexdigest()}" for name, buffer in own.items()}
    of_ranks = [json.loads(text) for text in _core.gather_texts(world, json.dumps(digests))]
    if all(digests == of_ranks[0] for digests in of_ranks):
        return
    for rank, digests in enumerate(of_ranks):
        for name in sorted(digests.keys() ^ of_ranks[0].keys()):
            raise _core.Error(f"[initialize] rank {rank if name in digests else 0} has a buffer {name}, and rank {0 if name in digests else rank} "
                              "has none. Give all ranks the same model.")
    for name in sorted(name for name in own if len({digests[name] for digests in of_ranks}) > 1):
        if len({digests[name].rpartition(" ")[0] for digests in of_ranks}) > 1:
            raise _core.Error(f"[initialize] buffer {name} has another shape or dtype on other ranks. Give all ranks the same model.")
        sent = base64.b64encode(_bytes_of(own[name])).decode() if world.rank == 0 else ""
        values = bytearray(base64.b64decode(_core.gather_texts(world, sent)[0]))
        with torch.no_grad():
            own[name].copy_(torch.frombuffer(values, dtype=own[name].dtype).reshape(own[name].shape))


def _bytes_of(buffer: torch.Tensor) -> bytes:
    here = host_copy(buffer).contiguous()
    return ctypes.string_at(here.data_ptr(), here.numel() * here.element_size())

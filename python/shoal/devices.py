"""Where a model is trained: the device of its parameters, or another that they are brought to."""

from __future__ import annotations

import os

import torch
from torch import nn

from shoal import _core
from shoal.world import number_of


def device_of(model: nn.Module, wanted: torch.device | str | None = None) -> torch.device:
    """The device on which the engine keeps and trains the model: the wanted one; None: that of the parameters."""
    if wanted is None:
        found = {param.device for param in model.parameters() if not param.is_meta}
        if len(found) > 1:
            names = ", ".join(sorted(str(device) for device in found))
            raise _core.Error(f"[initialize] the model's parameters lie on {names}. Bring them to one device, or pass device=.")
        wanted = found.pop() if found else "cpu"
    device = torch.device(wanted)
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise _core.Error(f"[initialize] the device is {device}, and torch sees no GPU. Pass device='cpu'.")
        return torch.device("cuda", own_gpu() if device.index is None else device.index)
    if device.type != "cpu":
        raise _core.Error(f"[initialize] the device is {device}. Shoal trains on cpu and cuda.")
    return device


def own_gpu() -> int:
    """The GPU of this rank: under a launcher LOCAL_RANK, modulo the GPUs there are; else the current one."""
    for name in ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"):
        if name in os.environ:
            return number_of(name, 0) % torch.cuda.device_count()
    return torch.cuda.current_device()


def make_current(device: torch.device) -> None:
    """What the engine allocates is CUDA's own memory: torch gives back what it holds and does not use."""
    if device.type == "cuda":
        torch.cuda.init()
        torch.cuda.set_device(device)
        torch.cuda.empty_cache()


def move_buffers(model: nn.Module, device: torch.device) -> None:
    """Buffers go where the parameters do; one that several modules share stays one."""
    moved: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and not buffer.is_meta and buffer.device != device:
                module._buffers[name] = moved.setdefault(id(buffer), buffer.to(device))

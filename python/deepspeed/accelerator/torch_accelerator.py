"""One accelerator object over torch.cuda or the CPU. What stands here differs from torch's module of that name, or is
missing there; the rest is torch's: Stream, Event, current_stream and their like."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import torch

from shoal import Error
from shoal.devices import own_gpu


class TorchAccelerator:
    def __init__(self) -> None:
        self._name = _chosen()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(torch.cuda if self._name == "cuda" else torch.cpu, name)

    def device_name(self, index: int | None = None) -> str:
        return self._name if index is None or self._name == "cpu" else f"{self._name}:{index}"

    def current_device_name(self) -> str:
        return self.device_name(self.current_device() if self._name == "cuda" else None)

    def current_device(self) -> int:
        return torch.cuda.current_device() if self._name == "cuda" else 0

    def device(self, index: int | None = None) -> Any:
        return torch.device(self.device_name(index))

    def set_device(self, index: int) -> None:
        if self._name == "cuda":
            torch.cuda.set_device(index)

    def device_count(self) -> int:
        return torch.cuda.device_count() if self._name == "cuda" else 1

    def is_available(self) -> bool:
        return True

    def is_synchronized_device(self) -> bool:
        return self._name == "cpu"

    def communication_backend_name(self) -> str:
        return "nccl" if self._name == "cuda" else "gloo"

    def synchronize(self, index: int | None = None) -> None:
        if self._name == "cuda":
            torch.cuda.synchronize(index)

    def empty_cache(self) -> None:
        if self._name == "cuda":
            torch.cuda.empty_cache()

    def memory_allocated(self, index: int | None = None) -> int:
        return torch.cuda.memory_allocated(index) if self._name == "cuda" else 0

    def max_memory_allocated(self, index: int | None = None) -> int:
        return torch.cuda.max_memory_allocated(index) if self._name == "cuda" else 0

    def memory_reserved(self, index: int | None = None) -> int:
        return torch.cuda.memory_reserved(index) if self._name == "cuda" else 0

    def max_memory_reserved(self, index: int | None = None) -> int:
        return torch.cuda.max_memory_reserved(index) if self._name == "cuda" else 0

    memory_cached, max_memory_cached = memory_reserved, max_memory_reserved

    def get_rng_state(self, index: int | None = None) -> torch.Tensor:
        return torch.cuda.get_rng_state("cuda" if index is None else index) if self._name == "cuda" else torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, index: int | None = None) -> None:
        if self._name == "cuda":
            torch.cuda.set_rng_state(state, "cuda" if index is None else index)
        else:
            torch.set_rng_state(state)

    def initial_seed(self) -> int:
        return torch.initial_seed()

    def reset_peak_memory_stats(self, index: int | None = None) -> None:
        if self._name == "cuda":
            torch.cuda.reset_peak_memory_stats(index)

    def available_memory(self, index: int | None = None) -> int:
        return torch.cuda.mem_get_info(index)[0] if self._name == "cuda" else _host_memory("SC_AVPHYS_PAGES")

    def total_memory(self, index: int | None = None) -> int:
        return torch.cuda.mem_get_info(index)[1] if self._name == "cuda" else _host_memory("SC_PHYS_PAGES")

    def is_bf16_supported(self) -> bool:
        return self._name == "cpu" or torch.cuda.is_bf16_supported()

    def is_fp16_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float32, torch.float16, torch.bfloat16]

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)

    def random(self) -> Any:
        return torch.random

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return tensor.device.type == self._name

    def pin_memory(self, tensor: torch.Tensor, align_bytes: int = 1) -> torch.Tensor:
        return tensor.pin_memory() if self._name == "cuda" else tensor

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.is_pinned()

    def range_push(self, text: str) -> Any:
        return torch.cuda.nvtx.range_push(text) if self._name == "cuda" else None

    def range_pop(self) -> Any:
        return torch.cuda.nvtx.range_pop() if self._name == "cuda" else None

    def stream(self, stream: Any) -> Any:
        return torch.cuda.stream(stream) if self._name == "cuda" else contextlib.nullcontext()


def _chosen() -> str:
    """DS_ACCELERATOR, as with DeepSpeed; else a GPU where torch sees one."""
    wanted = os.environ.get("DS_ACCELERATOR")
    if wanted not in (None, "", "cpu", "cuda"):
        raise Error(f"[environment DS_ACCELERATOR] {wanted} is not supported. Use cuda or cpu.")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise Error("[environment DS_ACCELERATOR] is cuda, and torch sees no GPU. Use cpu, or leave it out.")
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def rank_device() -> torch.device:
    """Where this rank trains: its GPU, or the CPU where there is none or accelerate was told to use it."""
    accelerate = sys.modules.get("accelerate.state")
    told = accelerate.PartialState._shared_state.get("device") if accelerate is not None else None
    if get_accelerator().device_name() == "cpu" or (told is not None and told.type == "cpu"):
        return torch.device("cpu")
    return torch.device("cuda", own_gpu())


def _host_memory(name: str) -> int:
    return os.sysconf(name) * os.sysconf("SC_PAGE_SIZE")


_accelerator: TorchAccelerator | None = None


def get_accelerator() -> TorchAccelerator:
    global _accelerator
    if _accelerator is None:
        _accelerator = TorchAccelerator()
    return _accelerator

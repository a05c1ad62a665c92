"""One accelerator object over torch.cuda or the CPU."""

from __future__ import annotations

from typing import Any

import torch


class TorchAccelerator:
    def __init__(self) -> None:
        self._name = "cuda" if torch.cuda.is_available() else "cpu"

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

    def is_bf16_supported(self) -> bool:
        return self._name == "cpu" or torch.cuda.is_bf16_supported()

    def is_fp16_supported(self) -> bool:
        return True

    def manual_seed_all(self, seed: int) -> None:
        torch.manual_seed(seed)


_accelerator: TorchAccelerator | None = None


def get_accelerator() -> TorchAccelerator:
    global _accelerator
    if _accelerator is None:
        _accelerator = TorchAccelerator()
    return _accelerator

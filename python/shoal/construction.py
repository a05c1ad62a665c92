"""shoal.init: building a model of which no rank ever holds the whole."""

from __future__ import annotations

import ctypes
import os
import warnings
import weakref
from typing import Any, Callable, Mapping

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from torch.utils.weak import WeakIdKeyDictionary

from shoal import _core
from shoal import config as configs
from shoal.owners import owner_of
from shoal.world import world

# Shards of parameters that stand empty, with their dtype. Model.to(...) and its kind replace what an empty parameter holds.
_kept = WeakIdKeyDictionary()
_told_of_casts = False
_LIBC = ctypes.CDLL(None)
_TRIM_NBYTES = 32 << 20


def find_shard(param: torch.Tensor) -> bool:
    """Whether the parameter is a lone shard; one that was cast or moved while it stood empty gets its shard back."""
    if param in _kept:
        kept, dtype = _kept[param]
        if param.dtype != dtype:
            _tell_of_cast(param.dtype, dtype)
        kept.give_back(param)
    return _core.is_lone_shard(param)


def _tell_of_cast(wanted: torch.dtype, dtype: torch.dtype) -> None:
    global _told_of_casts
    if not _told_of_casts and world().rank == 0:
        warnings.warn(
            f"[init] the model was cast to {wanted} after its parameters were sharded as {dtype}: they stay {dtype}. Name the "
            "dtype in the config of init (bf16 or fp16 enabled).",
            stacklevel=3,
        )
    _told_of_casts = True


def forget_shards(model: nn.Module) -> None:
    """An engine has taken the parameters over."""
    for param in model.parameters():
        _kept.pop(param, None)


class init:
    """`with shoal.init(config): model = Model()` shards each module's parameters when it becomes part of another one.

    config: gives the dtype of the parameters (bf16 or fp16 where enabled, else their own); None: their own.
    device: where tensors are made that name no device, as by `with torch.device(...)`. Shards lie in host memory.
    """

    def __init__(
        self,
        config: str | os.PathLike | Mapping[str, Any] | None = None,
        *,
        precision: _core.Precision | None = None,
        enabled: bool = True,
        before: Callable[[nn.Parameter], None] | None = None,
        empty: bool = False,
        device: torch.device | str | None = None,
    ):
        self.enabled = enabled
        self.precision = precision if precision is not None else _precision_of(config)
        self.before = before  # called with each parameter that is about to be sharded
        self.empty = empty  # sharded parameters stand as tensors without elements, as DeepSpeed's do
        self.device = None if device is None else torch.device(device)
        self._handles: list[Any] = []
        self._made: list[weakref.ref] = []
        self._freed_nbytes = 0  # since the last trim

    def __enter__(self) -> "init":
        if self.enabled:
            world()
            if self.device is not None:
                self.device.__enter__()
            self._handles = [
                register_module_module_registration_hook(self._module_registered),
                register_module_parameter_registration_hook(self._parameter_registered),
            ]
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self.enabled and self.device is not None:
            self.device.__exit__(kind, error, trace)
        for handle in self._handles:
            handle.remove()
        self._handles = []
        if kind is None:
            for made in self._made:
                param = made()
                if param is not None:
                    self._shard(param, "parameter")
        self._made = []
        self._trim()

    def shard(self, module: nn.Module) -> None:
        """Shards the parameters of a module that was built elsewhere. Every rank calls it."""
        for name, param in module.named_parameters():
            self._shard(param, name)

    def _trim(self) -> None:
        """What was freed goes back to the system: malloc keeps it between small blocks, in the end as much as the model has."""
        if self._freed_nbytes > 0 and hasattr(_LIBC, "malloc_trim"):
            _LIBC.malloc_trim(0)
        self._freed_nbytes = 0

    def _module_registered(self, parent: nn.Module, name: str, module: nn.Module | None) -> None:
        if module is not None:
            for local, param in module.named_parameters():
                self._shard(param, f"{name}.{local}")

    def _parameter_registered(self, module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if param is not None:
            self._made.append(weakref.ref(param))

    def _shard(self, param: nn.Parameter, name: str) -> None:
        if param.is_meta or not param.is_floating_point() or find_shard(param) or owner_of(param):
            return
        if self.before is not None:
            self.before(param)
        nbytes = param.numel() * param.element_size()
        with torch.no_grad():
            _core.shard_param(param, name, self.precision, world(), self.empty)
        self._freed_nbytes += nbytes
        if self._freed_nbytes >= _TRIM_NBYTES:
            self._trim()
        if self.empty:
            _kept[param] = (_core.KeptShard(param), param.dtype)


def _precision_of(config: str | os.PathLike | Mapping[str, Any] | None) -> _core.Precision | None:
    if config is None:
        return None
    parsed = configs.load(config)
    for name in ("bf16", "bfloat16", "fp16"):
        section = parsed.get(name)
        if isinstance(section, Mapping) and section.get("enabled") is True:
            return _core.Precision.fp16 if name == "fp16" else _core.Precision.bf16
    return None

"""ds_tensor of a sharded parameter: what this rank owns of it, read when it is asked for."""

from __future__ import annotations

import enum
import weakref
from typing import Any, Callable

import torch
from torch import nn
from torch.utils._pytree import tree_map

from shoal import Error, state


class PartitionedParamStatus(enum.Enum):
    AVAILABLE = 1
    NOT_AVAILABLE = 2
    INFLIGHT = 3


class LocalPart:
    """Answers as a tensor of the owned elements, in a row, in the parameter's dtype. Each read is a copy: methods that write are
    refused. Shoal cuts elsewhere than DeepSpeed, without padding: a rank may own all of a small parameter, or nothing."""

    status = PartitionedParamStatus.AVAILABLE
    final_location = None  # DeepSpeed's word for a part that stays on disk

    def __init__(self, param: nn.Parameter | None):
        self._ref = None if param is None else weakref.ref(param)

    def numel(self) -> int:
        return state.own_numel(self._param())

    @property
    def ds_numel(self) -> int:
        return self.numel()

    @property
    def shape(self) -> torch.Size:
        return torch.Size([self.numel()])

    @property
    def dtype(self) -> torch.dtype:
        return self._param().dtype

    @property
    def device(self) -> torch.device:
        return self._param().device

    @property
    def data(self) -> "LocalPart":
        return self

    def read(self) -> torch.Tensor:
        """The values of now. Between steps; talks to nobody."""
        param = self._param()
        values = state.read_own(param, "weight")
        if values is None:
            raise Error("[ds_tensor] no engine has the parameter. Call initialize first.")
        return values.to(param.dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name.endswith("_"):
            raise Error(f"[ds_tensor.{name}] would write into a copy. Use safe_set_local_fp32_param, or zero.GatheredParameters.")
        return getattr(self.read(), name)

    @classmethod
    def __torch_function__(cls, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        args, kwargs = tree_map(lambda each: each.read() if isinstance(each, LocalPart) else each, (args, kwargs or {}))
        return func(*args, **kwargs)

    def _param(self) -> nn.Parameter:
        param = None if self._ref is None else self._ref()
        if param is None:
            raise Error("[ds_tensor] its parameter is gone. Take it from a parameter of the model.")
        return param

    def __deepcopy__(self, memo: dict) -> "LocalPart":
        return LocalPart(None)

    def __reduce__(self) -> tuple:
        return LocalPart, (None,)

"""Whether gathered parameters were written where nobody said that they would be."""

from __future__ import annotations

import torch
from torch import nn

from deepspeed.utils.logging import warning_once

_SAMPLES = 256  # elements of a parameter that are compared: a write through .data leaves no other trace


class Watch:
    """Over parameters that are whole until tell_of_writes() is called."""

    def __init__(self, params: list[nn.Parameter]):
        self._params = params
        self._before = [(param._version, param.data_ptr(), _sample(param)) for param in params]

    def tell_of_writes(self) -> None:
        """Warns, once a process and set of parameters."""
        written = [param for param, before in zip(self._params, self._before) if _is_written(param, *before)]
        if written:
            warning_once(
                f"[zero.GatheredParameters] {len(written)} of {len(self._params)} parameters were written inside, the first of shape "
                f"{tuple(written[0].shape)}, and modifier_rank is None: what was written is dropped. Pass modifier_rank=0 to keep what "
                "rank 0 writes."
            )


def _sample(param: nn.Parameter) -> torch.Tensor:
    flat = param.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLES)].clone()


def _is_written(param: nn.Parameter, version: int, address: int, sample: torch.Tensor) -> bool:
    if param._version != version or param.data_ptr() != address:
        return True
    return not torch.equal(_sample(param).nan_to_num(), sample.nan_to_num())

"""Whether gathered parameters were written where nobody said that they would be."""

from __future__ import annotations

import torch
from torch import nn

from shoal.owners import owner_of

from deepspeed.utils.logging import warning_once

_SAMPLES = 256  # elements of a parameter that are compared: a write through .data leaves no other trace


class Watch:
    """Over parameters that are whole until drop_writes() is called. Those below stage 3 are the user's to write."""

    def __init__(self, params: list[nn.Parameter]):
        self._params = [param for param in params if _is_of_stage3(param)]
        self._before = [(param._version, param.data_ptr(), _sample(param)) for param in self._params]
        # What stays whole when the gather ends keeps what was written, unless it is put back.
        small = [param for param in self._params if getattr(param, "ds_persist", False)]
        self._small = {id(param): (param.data, param.detach().clone()) for param in small}

    def drop_writes(self) -> None:
        """Warns, once a process and set of parameters."""
        written = [param for param, before in zip(self._params, self._before) if _is_written(param, *before)]
        for param in written:
            if id(param) in self._small:
                param.data, values = self._small[id(param)]
                param.data.copy_(values)
        if written:
            warning_once(
                f"[zero.GatheredParameters] {len(written)} of {len(self._params)} parameters were written inside, the first of shape "
                f"{tuple(written[0].shape)}, and modifier_rank is None: what was written is dropped. Pass modifier_rank=0 to keep what "
                "rank 0 writes."
            )


def _is_of_stage3(param: nn.Parameter) -> bool:
    owner = owner_of(param)
    return owner is None or owner[0].core_config.stage == 3


def _sample(param: nn.Parameter) -> torch.Tensor:
    flat = param.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _SAMPLES)].clone()


def _is_written(param: nn.Parameter, version: int, address: int, sample: torch.Tensor) -> bool:
    if param._version != version or param.data_ptr() != address:
        return True
    return not torch.equal(_sample(param).nan_to_num(), sample.nan_to_num())

"""The loss scale as DeepSpeed's checkpoints hold it. The scale itself is the core's."""

from __future__ import annotations

from typing import Any

import torch


class LossScalerBase:
    dynamic = False

    def __init__(self, cur_scale: float):
        self.cur_scale = cur_scale
        self.dtype = torch.float16

    @property
    def loss_scale(self) -> float:
        return self.cur_scale


class LossScaler(LossScalerBase):
    def __init__(self, scale: float = 1.0, dtype: Any = torch.float32):
        super().__init__(scale)
        self.dynamic = False
        self.dtype = dtype


class DynamicLossScaler(LossScalerBase):
    def __init__(self, **values: Any):
        super().__init__(values.get("cur_scale", 2.0**16))
        self.__dict__.update(
            {
                "dynamic": True,
                "cur_iter": 0,
                "last_overflow_iter": -1,
                "scale_factor": 2.0,
                "scale_window": 1000,
                "min_scale": 1.0,
                "delayed_shift": 1,
                "cur_hysteresis": 1,
                "consecutive_hysteresis": False,
                "raise_error_at_min_scale": True,
            }
            | values
        )

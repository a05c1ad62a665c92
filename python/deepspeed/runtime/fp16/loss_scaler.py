"""The loss scale as DeepSpeed's checkpoints hold it. The scale itself is the core's."""

from __future__ import annotations

from typing import Any

import torch

from shoal import Error


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


def read_loss_scaler(engine: Any) -> LossScalerBase:
    """The scale of an engine with its counters, as they are now. A checkpoint holds the whole object, its settings too."""
    progress = engine._shoal.core.progress()
    if not engine.dynamic_loss_scale():
        return LossScaler(engine.cur_scale, engine.dtype)
    fp16 = engine.loss_scale_settings()
    return DynamicLossScaler(
        cur_scale=engine.cur_scale,
        cur_iter=progress.loss_scale_step,
        last_overflow_iter=progress.loss_scale_last_overflow,
        cur_hysteresis=progress.loss_scale_hysteresis_left,
        scale_window=int(fp16.get("loss_scale_window", 1000)),
        min_scale=float(fp16.get("min_loss_scale", 1)),
        delayed_shift=int(fp16.get("hysteresis", 2)),
        consecutive_hysteresis=bool(fp16.get("consecutive_hysteresis", False)),
    )


class LossScalerOfEngine:
    """Answers as a loss scaler, with the values of each moment."""

    def __init__(self, engine: Any):
        self.__dict__["_engine"] = engine

    @property
    def __class__(self) -> type:
        return type(read_loss_scaler(self._engine))

    def __getattr__(self, name: str) -> Any:
        return getattr(read_loss_scaler(self._engine), name)

    def __setattr__(self, name: str, value: Any) -> None:
        raise Error(f"[loss_scaler.{name}] cannot be set to {value!r}: the engine keeps the scale. Use the section fp16 of the config.")

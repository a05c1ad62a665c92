"""Weights written in place that the next update would undo: those of fp16, whose fp32 masters know nothing of it. Weights of
fp32 are their own masters, and those of bf16 a half of them."""

from __future__ import annotations

from typing import Any

import torch

from shoal import _core


class WrittenWeights:
    """The trained weights of fp16 that are whole between passes. A write through .data leaves no trace, and is not seen."""

    def __init__(self, engine: Any):
        self._engine = engine
        self._params = [(name, param) for name, param in engine.trained if param.dtype == torch.float16 and not engine.is_sharded(param)]
        self.forget()

    def forget(self) -> None:
        """What was written so far."""
        self._versions = [param._version for _, param in self._params]

    def refuse(self, doing: str) -> None:
        for (name, param), version in zip(self._params, self._versions):
            if param._version != version and self._differs(name, param):
                raise _core.Error(
                    f"[{doing}] {name} was written in place, and its fp32 master was not: the next update would undo it. Write inside "
                    "`with shoal.gathered(params, written_by=0):`, or deepspeed.zero.GatheredParameters(params, modifier_rank=0), on every rank."
                )

    def _differs(self, name: str, param: torch.Tensor) -> bool:
        """Of what this rank owns, from the master: weights put aside and put back do not."""
        flat = param.detach().reshape(-1)
        for begin, master in self._engine.owned_runs(name, "weight"):
            weight = flat[begin : begin + master.numel()].cpu()
            if not torch.equal(weight.nan_to_num(), master.to(weight.dtype).nan_to_num()):
                return True
        return False

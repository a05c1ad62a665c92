"""Weights below stage 3 that the user writes in place, between steps or in a forward. Every rank must write the same: at stages 1 and 2
what the owner of a part has would come over what others wrote, and at stage 0 ranks would go different ways. And of fp16 the next
update would undo it, since the fp32 masters know nothing of it; weights of fp32 are their own masters, and those of bf16 a half."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable
from typing import Any

import torch

from shoal import _core
from shoal.marks import mark

_FIRST, _EVERY = 2, 17  # which steps with writes are compared, for models that write in every step
_PATIENCE = 3.0  # seconds, after which a rank says what it waits for


class WrittenWeights:
    """The weights that are whole between passes. A write through .data leaves no trace, and is not seen."""

    def __init__(self, engine: Any):
        self._engine = engine
        self._fp16 = {name for name, param in engine.trained if param.dtype == torch.float16}
        whole = {name: param for name, param in engine.module.named_parameters() if not engine.is_sharded(param)}
        self._params = {name: param for name, param in whole.items() if engine.world.size > 1 or name in self._fp16}
        self._compared = 0
        self.forget()

    def forget(self, names: Iterable[str] | None = None) -> None:
        """What was written so far, of all or of these."""
        if names is None:
            self._versions = {name: _version(param) for name, param in self._params.items()}
        else:
            self._versions |= {name: _version(self._params[name]) for name in names if name in self._params}

    def unwritten(self, names: Iterable[str]) -> list[str]:
        return [name for name in names if name in self._params and _version(self._params[name]) == self._versions[name]]

    def refuse(self, doing: str) -> None:
        written = [name for name, param in self._params.items() if _version(param) != self._versions[name]]
        if not written:
            return
        if self._engine.world.size > 1:
            self._compare(doing, written)
        for name in written:
            if name in self._fp16 and self._differs(name, self._params[name]):
                raise _core.Error(
                    f"[{doing}] {name} was written in place, and its fp32 master was not: the next update would undo it. Write inside "
                    "`with shoal.gathered(params, written_by=0):`, or deepspeed.zero.GatheredParameters(params, modifier_rank=0), on every rank."
                )

    def _compare(self, doing: str, written: list[str]) -> None:
        """With other ranks, which have written too: where they have not, they do not come, and all end with an error of that."""
        self._compared += 1
        if self._compared > _FIRST and self._compared % _EVERY != 0:
            return
        mine = {name: mark(self._params[name]) for name in written}
        rank = self._engine.world.rank
        waits = f"[{doing}] rank {rank} wrote {written[0]} in place and waits to compare it with other ranks: all must write the same."
        timer = threading.Timer(_PATIENCE, lambda: print(waits, file=sys.stderr, flush=True))
        timer.daemon = True
        timer.start()
        try:
            of_ranks = [json.loads(text) for text in _core.gather_texts(self._engine.world, json.dumps(mine), "weights written in place")]
        finally:
            timer.cancel()
        for rank, marks in enumerate(of_ranks):
            for name in sorted(of_ranks[0].keys() | marks.keys()):
                if of_ranks[0].get(name) != marks.get(name):
                    raise _core.Error(
                        f"[{doing}] {name} was written in place, and rank {rank} has other values than rank 0: ranks would train different "
                        "models. Write the same on every rank, or inside `with shoal.gathered(params, written_by=0):`, which gives all of "
                        "them what one rank wrote."
                    )

    def _differs(self, name: str, param: torch.Tensor) -> bool:
        """Of what this rank owns, from the master: weights put aside and put back do not."""
        flat = param.detach().reshape(-1)
        for begin, master in self._engine.owned_runs(name, "weight"):
            weight = flat[begin : begin + master.numel()].cpu()
            if not torch.equal(weight.nan_to_num(), master.to(weight.dtype).nan_to_num()):
                return True
        return False


def _version(param: torch.Tensor) -> int:
    return 0 if param.is_inference() else param._version

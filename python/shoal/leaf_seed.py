"""shoal.leaf_seed: what a training forward draws is a function of (leaf_seed, step, leaf), whatever the number of ranks."""

from __future__ import annotations

from typing import Any

import torch


class LeafSeed:
    """Around each forward of the model with gradients: torch's generators of the CPU and of the engine's GPU are seeded, and
    stand as they stood before when it ends, so that what else draws from them (samplers, the user) sees nothing of it.
    A forward that torch.utils.checkpoint repeats in backward draws what it drew: that keeps the generators' states itself."""

    def __init__(self, device: torch.device):
        self._device = device
        self._before: list[torch.Tensor] | None = None  # states outside the forward that is open
        self._last: int | None = None
        self._forwards = 0  # of this leaf so far

    def begin(self, core: Any) -> None:
        if not torch.is_grad_enabled() or core.in_backward:
            return
        leaf = core.leaf_seed(0)
        self._forwards = self._forwards + 1 if leaf == self._last else 0
        self._last = leaf
        generators = self._generators()
        if self._before is None:  # else Ctrl-C ended a forward: torch calls no hooks then
            self._before = [generator.get_state() for generator in generators]
        for generator in generators:
            generator.manual_seed(core.leaf_seed(self._forwards))

    def finish(self) -> None:
        if self._before is None:
            return
        for generator, state in zip(self._generators(), self._before):
            generator.set_state(state)
        self._before = None

    def _generators(self) -> list[torch.Generator]:
        if self._device.type != "cuda":
            return [torch.default_generator]
        index = torch.cuda.current_device() if self._device.index is None else self._device.index
        return [torch.default_generator, torch.cuda.default_generators[index]]

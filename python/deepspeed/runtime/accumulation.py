"""Which micro-steps are one step: DeepSpeed's engine on gradient accumulation. DeepSpeedEngine inherits it."""

from __future__ import annotations

import contextlib
from typing import Iterator

import shoal

from deepspeed.runtime.config_getters import ConfigGetters


class NoSyncError(shoal.Error, AssertionError):
    """DeepSpeed's own is an AssertionError."""


class Accumulation(ConfigGetters):
    """Of an engine that counts its step()s in `micro_steps`."""

    _shoal: shoal.Engine
    micro_steps: int
    _boundary: bool | None  # that the user has set
    _coalescing: bool  # inside coalesce_grad_reduction
    _inside_no_sync: bool

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of a step that is not to be taken. After step() there are none."""
        core = self._shoal.core
        if core is None or core.accumulated == 0:
            return
        counted = self.managed_gradient_accumulation() and self._boundary is None
        if counted and not core.has_gradients:
            raise shoal.Error(
                f"[zero_grad] {core.accumulated} of {self.gradient_accumulation_steps()} micro-steps are accumulated: torch would "
                "drop them here, and DeepSpeed's ZeRO keeps them. Call it after the step() that ends a step, or "
                "engine.drop_gradients() to drop them."
            )
        self.drop_gradients()

    def drop_gradients(self) -> None:
        """Drops what has come since the last step, on every rank: the next backward begins a step."""
        if self._shoal.core is None:
            return
        self._shoal.core.drop_gradients()
        if self.managed_gradient_accumulation():
            self.micro_steps -= self.micro_steps % self.gradient_accumulation_steps()
            self._tell_boundary()

    def is_gradient_accumulation_boundary(self) -> bool:
        if self._boundary is not None:
            return self._boundary
        if not self.managed_gradient_accumulation():
            return False  # the user ends steps, by step()
        return (self.micro_steps + 1) % self.gradient_accumulation_steps() == 0

    def set_gradient_accumulation_boundary(self, is_boundary: bool | None) -> None:
        if is_boundary not in (None, False, True):
            raise shoal.Error(f"[boundary] {is_boundary!r} is no boundary. Pass True, False or None.")
        if not self.managed_gradient_accumulation():
            raise shoal.Error("[boundary] with managed_gradient_accumulation false, each step() ends a step. Set no boundary.")
        self._boundary = is_boundary
        self._tell_boundary()

    def _tell_boundary(self) -> None:
        """DeepSpeed counts calls of step(), and the core backwards: what the former says holds."""
        if self._shoal.core is not None and self.managed_gradient_accumulation():
            self._shoal.core.set_boundary(self.is_gradient_accumulation_boundary())

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside end no step."""
        before, outer = self._boundary, self._inside_no_sync
        self._inside_no_sync = True
        self.set_gradient_accumulation_boundary(False)
        try:
            yield
        finally:
            self._inside_no_sync = outer
            self.set_gradient_accumulation_boundary(before)

    @contextlib.contextmanager
    def coalesce_grad_reduction(self) -> Iterator[None]:
        """Backwards inside add up, and step() after it takes them together. Each is reduced as it comes: the sum is the same."""
        if self._coalescing or not self.managed_gradient_accumulation() or self.zero_optimization_stage() == 0:
            what = "is open already" if self._coalescing else "needs managed_gradient_accumulation, and a stage of 1 to 3"
            raise NotImplementedError(f"[coalesce_grad_reduction] it {what}.")
        before = self._boundary
        self._coalescing = True
        self.set_gradient_accumulation_boundary(True)
        try:
            yield
        finally:
            self._coalescing = False
            self.set_gradient_accumulation_boundary(before)

    def _ends_step(self) -> bool:
        """Whether the step() of now updates weights."""
        return not self.managed_gradient_accumulation() or self.is_gradient_accumulation_boundary()

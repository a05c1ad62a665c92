"""Timers by DeepSpeed's names. On a GPU a timer is a pair of events on the stream, and is waited for when it is read."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterable

from shoal import Error

from deepspeed.accelerator import get_accelerator
from deepspeed.comm.bandwidth import trim_mean
from deepspeed.utils.logging import logger, print_dist

FORWARD_MICRO_TIMER = "fwd_microstep"
FORWARD_GLOBAL_TIMER = "fwd"
BACKWARD_MICRO_TIMER = "bwd_microstep"
BACKWARD_GLOBAL_TIMER = "bwd"
BACKWARD_INNER_MICRO_TIMER = "bwd_inner_microstep"
BACKWARD_INNER_GLOBAL_TIMER = "bwd_inner"
BACKWARD_REDUCE_MICRO_TIMER = "bwd_allreduce_microstep"
BACKWARD_REDUCE_GLOBAL_TIMER = "bwd_allreduce"
STEP_MICRO_TIMER = "step_microstep"
STEP_GLOBAL_TIMER = "step"
TIME_EPSILON = 1e-6
_GIB = 2**30


class CudaEventTimer:
    """The time between two events of a stream."""

    def __init__(self, start_event: Any, end_event: Any):
        self.start_event = start_event
        self.end_event = end_event

    def get_elapsed_msec(self) -> float:
        self.end_event.synchronize()
        return self.start_event.elapsed_time(self.end_event)


class SynchronizedWallClockTimer:
    """Timers by name: timers("fwd").start()."""

    class Timer:
        def __init__(self, name: str):
            self.name_ = name
            self.started_ = False
            self.use_host_timer = get_accelerator().device_name() != "cuda"
            self.event_timers: list[Any] = []  # seconds, or pairs of events
            self.elapsed_records: list[float] | None = None
            self._begin: Any = None

        def start(self) -> None:
            if self.started_:
                raise Error(f"[timer {self.name_}] is running already. Stop it first.")
            self._begin = time.perf_counter() if self.use_host_timer else _recorded_event()
            self.started_ = True

        def stop(self, reset: bool = False, record: bool = False) -> None:
            if not self.started_:
                raise Error(f"[timer {self.name_}] is not running. Start it first.")
            if self.use_host_timer:
                self.event_timers.append(time.perf_counter() - self._begin)
            else:
                self.event_timers.append(CudaEventTimer(self._begin, _recorded_event()))
            self._begin = None
            self.started_ = False

        def reset(self) -> None:
            self.started_ = False
            self._begin = None
            self.elapsed_records = None
            self.event_timers.clear()

        def add(self, seconds: float) -> None:
            """A time that was measured elsewhere."""
            self.event_timers.append(float(seconds))

        def elapsed(self, reset: bool = True) -> float:
            """Milliseconds of all that was timed since the last reset; a timer that runs runs on."""
            runs = self.started_
            if runs:
                self.stop()
            self.elapsed_records = [1e3 * each if isinstance(each, float) else each.get_elapsed_msec() for each in self.event_timers]
            total = sum(self.elapsed_records)
            if reset:
                self.reset()
            if runs:
                self.start()
            return total

        def mean(self) -> float:
            """Of the single times, in milliseconds, without the tenth at either end."""
            self.elapsed(reset=False)
            return trim_mean(self.elapsed_records, 0.1)

    def __init__(self) -> None:
        self.timers: dict[str, SynchronizedWallClockTimer.Timer] = {}

    def get_timers(self) -> dict[str, Timer]:
        return self.timers

    def __call__(self, name: str) -> Timer:
        if name not in self.timers:
            self.timers[name] = self.Timer(name)
        return self.timers[name]

    @staticmethod
    def memory_usage() -> str:
        accelerator = get_accelerator()
        parts = {
            "mem_allocated": accelerator.memory_allocated(),
            "max_mem_allocated": accelerator.max_memory_allocated(),
            "cache_allocated": accelerator.memory_cached(),
            "max_cache_allocated": accelerator.max_memory_cached(),
        }
        return "".join(f" | {name}: {nbytes / _GIB:.4f} GB" for name, nbytes in parts.items())

    def log(
        self,
        names: Iterable[str],
        normalizer: float = 1.0,
        reset: bool = True,
        memory_breakdown: bool = False,
        ranks: list[int] | None = None,
    ) -> None:
        """Prints the times of those names that there are; memory_breakdown has no effect, as with DeepSpeed."""
        _check_normalizer(normalizer)
        found = {name: self.timers[name].elapsed(reset=reset) / normalizer for name in names if name in self.timers}
        print_dist("time (ms)" + "".join(f" | {name}: {value:.2f}" for name, value in found.items()), ranks=ranks or [0])

    def get_mean(self, names: Iterable[str], normalizer: float = 1.0, reset: bool = True) -> dict[str, float]:
        """Microseconds, as with DeepSpeed: a thousand times Timer.mean()."""
        _check_normalizer(normalizer)
        return {name: self.timers[name].mean() * 1000.0 / normalizer for name in names if name in self.timers}


class NoopTimer:
    """Timers that do nothing."""

    class Timer:
        def start(self) -> None: ...

        def reset(self) -> None: ...

        def stop(self, **kwargs: Any) -> None: ...

        def elapsed(self, **kwargs: Any) -> float:
            return 0

        def mean(self) -> float:
            return 0

    def __init__(self) -> None:
        self.timer = self.Timer()

    def __call__(self, name: str) -> Timer:
        return self.timer

    def get_timers(self) -> dict[str, Timer]:
        return {}

    def log(self, names: Any, normalizer: float = 1.0, reset: bool = True, memory_breakdown: bool = False, ranks: Any = None) -> None: ...

    def get_mean(self, names: Any, normalizer: float = 1.0, reset: bool = True) -> None: ...


class ThroughputTimer:
    """Samples a second: start() before a micro-step, stop() after it. The first start_step steps are not counted.

    config: with `enabled` and `synchronized`, as deepspeed.utils.config.DeepSpeedThroughputTimerConfig has them."""

    def __init__(
        self,
        config: Any,
        batch_size: int | None,
        start_step: int = 2,
        steps_per_output: int | None = None,
        monitor_memory: bool = False,
        logging_fn: Callable[[str], Any] | None = None,
    ):
        self.config = config
        self.batch_size = 1 if batch_size is None else batch_size
        self.start_step = start_step
        self.steps_per_output = steps_per_output
        self.monitor_memory = monitor_memory
        self.logging = logging_fn or logger.info
        self.initialized = self.started = False
        self.start_time = self.end_time = 0.0
        self.epoch_count = self.micro_step_count = self.global_step_count = 0
        self.total_elapsed_time = self.step_elapsed_time = 0.0
        if monitor_memory:
            _psutil()

    def update_epoch_count(self) -> None:
        self.epoch_count += 1
        self.micro_step_count = 0

    def start(self) -> None:
        if not self.config.enabled:
            return
        self.initialized = self.started = True
        if self.global_step_count >= self.start_step:
            self.start_time = self._now()

    def stop(self, global_step: bool = False, report_speed: bool = True) -> None:
        """global_step: it ends a step, and what took since the last is reported every steps_per_output steps."""
        if not self.config.enabled or not self.started:
            return
        self.started = False
        self.micro_step_count += 1
        if global_step:
            self.global_step_count += 1
        if self.start_time <= 0:
            return
        self.end_time = self._now()
        self.total_elapsed_time += self.end_time - self.start_time
        self.step_elapsed_time += self.end_time - self.start_time
        if not global_step:
            return
        if report_speed and self._is_report_boundary():
            self._report()
        self.step_elapsed_time = 0.0

    def avg_samples_per_sec(self) -> float:
        """Over all steps that were timed; -inf before there is one."""
        steps = self.global_step_count - self.start_step
        if steps <= 0 or self.total_elapsed_time <= 0:
            return float("-inf")
        return self.batch_size / (self.total_elapsed_time / steps)

    def _now(self) -> float:
        if self.config.synchronized:
            get_accelerator().synchronize()
        return time.perf_counter()

    def _is_report_boundary(self) -> bool:
        return bool(self.steps_per_output) and self.global_step_count % self.steps_per_output == 0

    def _report(self) -> None:
        accelerator = get_accelerator()
        place = f"epoch={self.epoch_count}/micro_step={self.micro_step_count}/global_step={self.global_step_count}"
        self.logging(
            f"{place}, RunningAvgSamplesPerSec={self.avg_samples_per_sec()}, "
            f"CurrSamplesPerSec={self.batch_size / (self.step_elapsed_time + TIME_EPSILON)}, "
            f"MemAllocated={round(accelerator.memory_allocated() / _GIB, 2)}GB, "
            f"MaxMemAllocated={round(accelerator.max_memory_allocated() / _GIB, 2)}GB"
        )
        if self.monitor_memory:
            psutil = _psutil()
            self.logging(f"{place}, vm %: {psutil.virtual_memory().percent}, swap %: {psutil.swap_memory().percent}")


def _recorded_event() -> Any:
    event = get_accelerator().Event(enable_timing=True)
    event.record()
    return event


def _check_normalizer(normalizer: float) -> None:
    if not normalizer > 0:
        raise Error(f"[timer] the normalizer {normalizer} divides times. Give a number above 0.")


def _psutil() -> Any:
    try:
        import psutil
    except ImportError:
        raise Error("[ThroughputTimer] monitor_memory needs the package psutil. Run `pip install psutil`, or leave it out.") from None
    return psutil

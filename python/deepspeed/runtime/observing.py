"""What an engine tells of a run beside training it: monitors, timers, the profile of one step, the log of collectives, memory.
DeepSpeedEngine calls it around its own calls; with everything switched off it costs a few comparisons."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Iterator

import torch

import shoal
from shoal import _core

from deepspeed import comm
from deepspeed.monitor.monitor import MonitorMaster
from deepspeed.monitor.utils import missing
from deepspeed.profiling.flops_profiler import FlopsProfiler
from deepspeed.runtime.utils import see_memory_usage
from deepspeed.utils import timer as timers
from deepspeed.utils.logging import log_dist, logger

# What the core calls a collective, and torch.
_KINDS = {
    "all_gather": "all_gather_into_tensor",
    "reduce_scatter": "reduce_scatter_tensor",
    "all_reduce": "all_reduce",
    "broadcast": "broadcast",
    "exchange": "all_to_all_single",
    "barrier": "barrier",
}
_PARTS = ("fwd", "bwd", "bwd_inner", "bwd_allreduce", "step")
MICRO_TIMERS = [f"{part}_microstep" for part in _PARTS]
GLOBAL_TIMERS = list(_PARTS)
_EVENTS = dict(zip(_PARTS, ("forward", "backward", "backward_inner", "backward_allreduce", "step")))


class EngineTimers:
    """The names of the timers that an engine runs."""

    def __init__(self, enable_micro_timers: bool, enable_global_timers: bool):
        self.micro_timers = MICRO_TIMERS if enable_micro_timers else []
        self.global_timers = GLOBAL_TIMERS if enable_global_timers else []

    def active_timers(self) -> list[str]:
        return [*self.micro_timers, *self.global_timers]

    def of(self, part: str) -> list[str]:
        return [name for name in self.active_timers() if name in (part, f"{part}_microstep")]


class Observer:
    """Of one engine, which it reads and does not change."""

    def __init__(self, engine: Any, monitor: MonitorMaster):
        config = engine._observed
        self.engine = weakref.proxy(engine)
        self.monitor = monitor
        self.breakdown = config.wall_clock_breakdown
        self.memory = config.memory_breakdown
        self.profiling = config.flops_profiler_config
        self.timers = timers.SynchronizedWallClockTimer()
        self.names = EngineTimers(self.breakdown, self.breakdown or self.profiling.enabled)
        self.cache: dict[str, float] = {}
        self.throughput = timers.ThroughputTimer(
            _unsynchronized(engine, config.timers_config), batch_size=engine.train_batch_size(), steps_per_output=_every(engine)
        )
        self.profiler: FlopsProfiler | None = None
        if self.profiling.enabled:
            self.profiler = FlopsProfiler(engine.module, self.engine, self.profiling.recompute_fwd_factor)
        self.events: list[tuple[str, Any, int]] = []
        self._loss: torch.Tensor | None = None
        self._profiled = False
        self._logs_collectives = comm.comms_logger.enabled
        if self._logs_collectives:
            engine._shoal.core.log_collectives(True)
            comm.before_summary.append(self.settle)
            weakref.finalize(engine, comm.before_summary.remove, self.settle)

    # Around the engine's calls.

    @contextlib.contextmanager
    def forward(self) -> Iterator[None]:
        self._say_memory("Engine before forward")
        if self._is_profiled():
            self.profiler.start_profile()
            self._profiled = True
        self.throughput.start()
        try:
            with self._timed("fwd"):
                yield
        finally:
            if self._profiled:
                self.profiler.stop_profile()
        self._say_memory("Engine after forward")

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """bwd_allreduce is what backward waited for other ranks, and bwd_inner the rest: reductions run beside it."""
        self._say_memory("Engine before backward")
        core, names = self.engine._shoal.core, self.names.active_timers()
        waited = core.waited_seconds if names else 0.0
        with self._timed("bwd"):
            yield
        if names:
            waited = core.waited_seconds - waited
            for part in ("bwd_inner", "bwd_allreduce"):
                for name, whole in zip(self.names.of(part), self.names.of("bwd")):
                    took = self.timers(whole).event_timers[-1]
                    took = took if isinstance(took, float) else took.get_elapsed_msec() / 1e3
                    self.timers(name).add(min(waited, took) if part == "bwd_allreduce" else max(took - waited, 0.0))
        self._say_memory("Engine after backward")

    def take_loss(self, loss: torch.Tensor) -> None:
        """Of a micro-step, divided as it was for backward."""
        if self.monitor.enabled and self.engine.global_rank == 0:
            loss = loss.detach().float()
            self._loss = loss if self._loss is None else self._loss + loss

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        self._say_memory("Engine before step")
        with self._timed("step"):
            yield

    def after_step(self, is_boundary: bool) -> None:
        engine = self.engine
        every = _every(engine)
        if is_boundary and every and engine.global_steps % every == 0:
            report_progress(engine)
        self.throughput.stop(global_step=is_boundary, report_speed=engine.global_rank == 0)
        if is_boundary:
            self._write_step()
            self._print_profile()
        self._tell_times(is_boundary)
        self.settle()
        self._say_memory("Engine after step")

    # Each of them.

    def _write_step(self) -> None:
        engine, loss, self._loss = self.engine, self._loss, None
        if not self.monitor.enabled or engine.global_rank != 0:
            return
        events = [] if loss is None else [("Train/Samples/train_loss", loss.item(), engine.global_samples)]
        events.append(("Train/Samples/lr", engine.get_lr()[0], engine.global_samples))
        if engine.fp16_enabled():
            events.append(("Train/Samples/loss_scale", engine.cur_scale, engine.global_samples))
        self._write(events)

    def _write(self, events: list[tuple[str, Any, int]]) -> None:
        self.events = events
        self.monitor.write_events(events)

    def _tell_times(self, is_boundary: bool) -> None:
        if self.breakdown:
            self.cache = {name: self.timers(name).elapsed(reset=False) for name in self.names.active_timers()}
            self.timers.log(self.names.micro_timers)
        if not self.names.global_timers or not is_boundary:
            return
        if self.monitor.enabled and self.engine.global_rank == 0:
            times = {part: self.timers(part).elapsed(reset=False) for part in GLOBAL_TIMERS}
            samples = self.engine.global_samples
            self._write([(f"Train/Samples/elapsed_time_ms_{_EVENTS[part]}", took, samples) for part, took in times.items()])
        self.timers.log(self.names.global_timers)

    def _is_profiled(self) -> bool:
        engine = self.engine
        wanted = self.profiler is not None and engine.global_rank == 0 and engine.global_steps == self.profiling.profile_step
        return wanted and engine.training and torch.is_grad_enabled()

    def _print_profile(self) -> None:
        if not self._profiled:
            return
        self._profiled = False
        profile = self.profiling
        self.profiler.print_model_profile(
            profile_step=self.engine.global_steps,
            module_depth=profile.module_depth,
            top_modules=profile.top_modules,
            detailed=profile.detailed,
            output_file=profile.output_file,
        )
        self.profiler.end_profile()

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        names = self.names.of(part)
        for name in names:
            self.timers(name).start()
        try:
            yield
        finally:
            for name in names:
                self.timers(name).stop()

    def settle(self) -> None:
        """Takes over what the engine's channels have carried."""
        core = self.engine._shoal.core
        if not self._logs_collectives or core is None:
            return
        log, ranks = comm.comms_logger, self.engine.world_size
        for kind, subject, nbytes, seconds in core.take_collectives():
            name = _KINDS[kind]
            if log.wants(name):
                record = f"{name} | [Engine: {subject}]" if log.debug else name
                size = nbytes // ranks if kind == "reduce_scatter" else nbytes  # of the shard, as of a gather
                log.append(name, record, None if seconds < 0 else 1e3 * seconds, size)

    def _say_memory(self, place: str) -> None:
        if self.memory:
            see_memory_usage(place, force=True)


def open_monitor(config: Any, world: _core.Group) -> MonitorMaster:
    """The monitors of a config. What is wrong on rank 0, which alone has them, is an error on every rank."""
    monitors = config.monitor_config
    said, made = "", None
    try:
        for package, section in (("tensorboard", monitors.tensorboard), ("wandb", monitors.wandb)):
            if section.enabled and comm.get_rank() == 0 and (said := missing(package)):
                raise shoal.Error(said)
        made = MonitorMaster(monitors)
    except Exception as error:  # noqa: BLE001  (of any package's own)
        said = str(error) if isinstance(error, shoal.Error) else f"[monitor] {type(error).__name__}: {error}"
    if world.size > 1 and monitors.enabled:
        said = next((each for each in _core.gather_texts(world, said) if each), "")
    if said:
        raise shoal.Error(said)
    return made


def dump_state(engine: Any) -> None:
    """Rank 0 logs the config, as it was given and as the engine reads it, and the engine's own settings."""
    if engine.global_rank != 0:
        return
    engine._config.print("DeepSpeedEngine configuration")
    logger.info("  as Shoal reads it = %s", engine.core_config.to_json())
    for name, value in sorted(vars(engine).items()):
        if not name.startswith("_") and isinstance(value, (str, int, float, bool, type(None))):
            logger.info("  %s %s %s", name, "." * max(29 - len(name), 1), value)


def report_progress(engine: Any) -> None:
    step = f"step={engine.global_steps}, skipped={engine.skipped_steps}"
    log_dist(f"{step}, lr={engine.get_lr()}, mom={engine.get_mom()}", ranks=[0])


def _every(engine: Any) -> int:
    """steps_per_print; 0: never, which Hugging Face writes as infinity."""
    given = engine.steps_per_print()
    return int(given) if isinstance(given, (int, float)) and 0 < given < 2**63 else 0


def _unsynchronized(engine: Any, config: Any) -> Any:
    """The device is waited for only where the config asks for it: step() waits for it once a step by itself."""
    asked = ((engine.config.get("timers") or {}).get("throughput") or {}).get("synchronized", False)
    return type(config)(enabled=config.enabled, synchronized=asked is True)

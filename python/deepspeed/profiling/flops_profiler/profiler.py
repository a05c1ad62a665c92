"""FlopsProfiler: what each module of a model computes, holds and takes, of one forward; and get_model_profile."""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Iterator

import torch
from torch import nn

from shoal import Error

from deepspeed.accelerator import get_accelerator
from deepspeed.profiling.flops_profiler import counting, formulas
from deepspeed.profiling.flops_profiler.numbers import module_duration, module_flops, module_macs
from deepspeed.profiling.flops_profiler.report import print_aggregated, print_profile
from deepspeed.profiling.flops_profiler.text import (
    duration_to_string,
    flops_to_string,
    macs_to_string,
    number_to_string,
    params_to_string,
)
from deepspeed.utils.logging import logger

_RECURRENT = (nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.LSTMCell, nn.GRUCell)
_ATTRIBUTES = ("__flops__", "__macs__", "__backward_flops__", "__params__", "__start_time__", "__duration__")


class FlopsProfiler:
    """Of a model:

        profiler = FlopsProfiler(model)
        profiler.start_profile()
        loss = model(batch)
        profiler.stop_profile()
        profiler.print_model_profile()
        profiler.end_profile()

    ds_engine: the engine that trains it, whose ranks, batch and timers are told. recompute_fwd_factor: the share of the forward
    that backward runs again. While it counts, modules have the numbers as attributes `__flops__`, `__macs__`, `__params__`,
    `__duration__`, by DeepSpeed's names, and `__backward_flops__`."""

    def __init__(self, model: nn.Module, ds_engine: Any = None, recompute_fwd_factor: float = 0.0):
        self.model = model
        self.ds_engine = ds_engine
        self.recompute_fwd_factor = recompute_fwd_factor
        self.started = False
        self.func_patched = False
        self._handles: list[Any] = []

    def start_profile(self, ignore_list: list[type] | None = None) -> None:
        """Counts from here on, from zero. Modules of the classes in ignore_list count with the module around them."""
        logger.info("Flops profiler started")
        if self.func_patched:
            self.stop_profile()
        self.reset_profile()
        counting.begin()
        self.started = self.func_patched = True
        for module in self.model.modules():
            if type(module) not in (ignore_list or ()):
                self._handles += _watch(module)

    def stop_profile(self) -> None:
        """Counts no longer; the numbers stay until end_profile."""
        if self.func_patched:
            counting.finish()
            self.func_patched = False
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def reset_profile(self) -> None:
        for module in self.model.modules():
            for name in _ATTRIBUTES:
                setattr(module, name, 0)
            module.__params__ = sum(_numel(param) for param in module.parameters())

    def end_profile(self) -> None:
        """Takes the numbers off the modules."""
        if not self.started:
            return
        self.stop_profile()
        self.started = False
        for module in self.model.modules():
            for name in _ATTRIBUTES:
                vars(module).pop(name, None)
        logger.info("Flops profiler finished")

    def get_total_flops(self, as_string: bool = False) -> Any:
        """Of the forward."""
        total = self._total("__flops__")
        return number_to_string(total) if as_string else total

    def get_total_macs(self, as_string: bool = False) -> Any:
        total = self._total("__macs__")
        return macs_to_string(total) if as_string else total

    def get_total_backward_flops(self, as_string: bool = False) -> Any:
        """Of the backward of what was profiled: a product for each operand that takes a gradient. A forward that backward runs again
        is not in it."""
        total = self._total("__backward_flops__")
        return number_to_string(total) if as_string else total

    def get_total_duration(self, as_string: bool = False) -> Any:
        """Seconds of the forward."""
        self._check()
        total = module_duration(self.model)
        return duration_to_string(total) if as_string else total

    def get_total_params(self, as_string: bool = False) -> Any:
        """Whole, also where they are sharded."""
        self._check()
        total = self.model.__params__
        return params_to_string(total) if as_string else total

    def print_model_profile(
        self,
        profile_step: int = 1,
        module_depth: int = -1,
        top_modules: int = 1,
        detailed: bool = True,
        output_file: str | os.PathLike | None = None,
    ) -> None:
        """Before end_profile. module_depth: how deep the aggregated part goes, -1 all the way; top_modules: how many classes it names at
        each depth; detailed: the model as text with the numbers of each module."""
        if not self.started:
            return
        self.flops, self.macs, self.params = self.get_total_flops(), self.get_total_macs(), self.get_total_params()
        with _output(output_file):
            print_profile(self, profile_step, module_depth, top_modules, detailed)

    def print_model_aggregated_profile(self, module_depth: int = -1, top_modules: int = 1) -> None:
        self._check()
        print_aggregated(self.model, module_depth, top_modules)

    def _total(self, name: str) -> int:
        self._check()
        return sum(getattr(module, name) for module in self.model.modules())

    def _check(self) -> None:
        if not self.started:
            raise Error("[FlopsProfiler] there are no numbers. Ask between start_profile() and end_profile().")


def _watch(module: nn.Module) -> list[Any]:
    """Hooks that count the module's forwards. A unit of an engine is gathered before and released after them."""

    def begin(module: nn.Module, args: Any) -> None:
        counting.enter_module()
        get_accelerator().synchronize()
        module.__start_time__ = time.perf_counter()

    def finish(module: nn.Module, args: Any, output: Any) -> None:
        get_accelerator().synchronize()
        module.__duration__ += time.perf_counter() - module.__start_time__
        counts = counting.leave_module()
        module.__flops__ += counts.flops
        module.__macs__ += counts.macs
        module.__backward_flops__ += counts.backward
        if isinstance(module, _RECURRENT):
            flops = formulas.recurrent(module, args)
            module.__flops__ += flops
            module.__backward_flops__ += 2 * flops if torch.is_grad_enabled() else 0

    return [module.register_forward_pre_hook(begin), module.register_forward_hook(finish)]


def _numel(param: nn.Parameter) -> int:
    return getattr(param, "ds_numel", None) or param.numel()


get_module_flops, get_module_macs, get_module_duration = module_flops, module_macs, module_duration


@contextlib.contextmanager
def _output(path: str | os.PathLike | None) -> Iterator[None]:
    """What is printed goes to the file."""
    if not path:
        yield
        return
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        file = open(path, "w", encoding="utf-8")
    except OSError as error:
        logger.warning(f"[flops_profiler output_file] {path} cannot be written: {error.strerror}. The profile is printed here.")
        yield
        return
    with file, contextlib.redirect_stdout(file):
        yield


def get_model_profile(
    model: nn.Module,
    input_shape: tuple[int, ...] | None = None,
    args: Any = (),
    kwargs: dict[str, Any] | None = None,
    print_profile: bool = True,
    detailed: bool = True,
    module_depth: int = -1,
    top_modules: int = 1,
    warm_up: int = 1,
    as_string: bool = True,
    output_file: str | os.PathLike | None = None,
    ignore_modules: list[type] | None = None,
    mode: str = "forward",
) -> tuple[Any, Any, Any]:
    """(flops, MACs, parameters) of one forward, or of one generate() with mode="generate", after `warm_up` others. input_shape: of
    the one tensor that the model takes, of its dtype and on its device; else args and kwargs."""
    if not isinstance(model, nn.Module):
        raise Error(f"[get_model_profile] {type(model).__name__} is no torch.nn.Module. Pass model=.")
    if mode not in ("forward", "generate"):
        raise Error(f"[get_model_profile mode] {mode!r} is not known. Give forward or generate.")
    args, kwargs = list(args), dict(kwargs or {})
    if input_shape is not None:
        if not isinstance(input_shape, tuple) or not input_shape:
            raise Error(f"[get_model_profile input_shape] {input_shape!r} is no shape. Give a tuple such as (1, 3, 224, 224).")
        first = next(model.parameters(), torch.empty(()))
        args = [torch.ones(input_shape, dtype=first.dtype, device=first.device)]
    if not args and not kwargs:
        raise Error("[get_model_profile] there is no input. Give input_shape, args or kwargs.")
    run = model if mode == "forward" else model.generate
    profiler = FlopsProfiler(model)
    was_training = model.training
    model.eval()
    try:
        logger.info("Flops profiler warming-up...")
        for _ in range(warm_up):
            run(*args, **kwargs)
        profiler.start_profile(ignore_list=ignore_modules)
        run(*args, **kwargs)
        found = profiler.get_total_flops(), profiler.get_total_macs(), profiler.get_total_params()
        if print_profile:
            profiler.print_model_profile(warm_up, module_depth, top_modules, detailed, output_file)
    finally:
        profiler.end_profile()
        model.train(was_training)
    if not as_string:
        return found
    return number_to_string(found[0]), macs_to_string(found[1]), params_to_string(found[2])


__all__ = [
    "FlopsProfiler",
    "duration_to_string",
    "flops_to_string",
    "get_model_profile",
    "macs_to_string",
    "number_to_string",
    "params_to_string",
]

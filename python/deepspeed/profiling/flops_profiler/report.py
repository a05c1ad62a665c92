"""A profile as text, with DeepSpeed's lines in DeepSpeed's order; what it has not follows under `Counted by Shoal`."""

from __future__ import annotations

import re
from typing import Any, Iterator

import torch
from torch import nn

from deepspeed.profiling.flops_profiler.numbers import module_duration, module_flops, module_macs
from deepspeed.profiling.flops_profiler.text import (
    DEFAULT_PRECISION,
    duration_to_string,
    flops_to_string,
    macs_to_string,
    number_to_string,
    params_to_string,
)
from deepspeed.utils.timer import BACKWARD_GLOBAL_TIMER, FORWARD_GLOBAL_TIMER, STEP_GLOBAL_TIMER

# Dense products in 16 bits, in 1e12 operations a second, as the vendor's data sheets have them, by words of the device's name; the first
# that fits counts. What src/train/model_flops.cpp has is the same here; the last line is of GPUs that it does not know.
PEAKS = {
    "H100 PCIe": 756, "H100 NVL": 835, "H100": 989, "H200": 989, "GH200": 989, "H800": 989, "B200": 2250, "GB200": 2500,
    "A100": 312, "A800": 312, "A40": 149.7, "A30": 165, "L40S": 362,
    "L40": 181, "L4": 121, "A10": 125, "V100": 125,
}  # fmt: skip

_NOTATIONS = """Notations:
data parallel size (dp_size), model parallel size(mp_size),
number of parameters (params), number of multiply-accumulate operations(MACs),
number of floating-point operations (flops), floating-point operations per second (FLOPS),
fwd latency (forward propagation latency), bwd latency (backward propagation latency),
step (weights update latency), iter latency (sum of fwd, bwd and step latency)
"""
_DETAILS = """Each module profile is listed after its name in the following order: 
params, percentage of total params, MACs, percentage of total MACs, fwd latency, percentage of total fwd latency, fwd FLOPS

What a module calls itself, functions of torch.nn.functional say, is in its own numbers and in those of the modules around it.
Operations are counted by formulas; a latency has the waits of its module in it, those for weights that are gathered too.
"""


def print_profile(profiler: Any, step: int, module_depth: int, top_modules: int, detailed: bool) -> None:
    model = profiler.model
    print("\n-------------------------- DeepSpeed Flops Profiler --------------------------")
    print(f"Profile Summary at step {step}:")
    print(_NOTATIONS)
    for label, value in _summary(profiler):
        print(f"{label:<70}  {value!s:<8}")
    print("\n----------------------------- Aggregated Profile per GPU -----------------------------")
    print_aggregated(model, module_depth, top_modules)
    if detailed:
        print("\n------------------------------ Detailed Profile per GPU ------------------------------")
        print(_DETAILS)
        print(_described(model))
    print("------------------------------------------------------------------------------")


def print_aggregated(model: nn.Module, module_depth: int, top_modules: int) -> None:
    """At each depth the classes with the most MACs, parameters and time, each over all modules of the class."""
    depths = list(_by_depth(model))
    depth = len(depths) - 1 if module_depth == -1 else min(module_depth, len(depths) - 1)
    print(f"Top {top_modules} modules in terms of params, MACs or fwd latency at different model depths:")
    for at in range(depth):
        print(f"depth {at}:")
        for label, kind, text in (
            ("params      ", 1, params_to_string), ("MACs        ", 0, macs_to_string), ("fwd latency ", 2, duration_to_string),
        ):  # fmt: skip
            most = sorted(depths[at].items(), key=lambda item: item[1][kind], reverse=True)[:top_modules]
            print(f"    {label}- { {name: text(sums[kind]) for name, sums in most} }")


def _by_depth(model: nn.Module) -> Iterator[dict[str, list[float]]]:
    """Of each depth from the top, by class: MACs, parameters, seconds."""
    level = [model]
    while level:
        sums: dict[str, list[float]] = {}
        for module in level:
            entry = sums.setdefault(type(module).__name__, [0, 0, 0])
            for at, value in enumerate((module_macs(module), module.__params__, module_duration(module))):
                entry[at] += value
        yield sums
        level = [child for module in level for child in module.children()]


def _summary(profiler: Any) -> Iterator[tuple[str, Any]]:
    engine, flops, params = profiler.ds_engine, profiler.flops, profiler.params
    if engine is not None:
        yield "world size: ", engine.world_size
        yield "data parallel size: ", engine.world_size
        yield "model parallel size: ", 1
        yield "batch size per GPU: ", engine.train_micro_batch_size_per_gpu()
    yield "params per GPU: ", params_to_string(params)
    yield "params of model = params per GPU * mp_size: ", params_to_string(params)
    yield "fwd MACs per GPU: ", macs_to_string(profiler.macs)
    yield "fwd flops per GPU: ", number_to_string(flops)
    yield "fwd flops of model = fwd flops per GPU * mp_size: ", number_to_string(flops)
    timed = engine is not None and engine.wall_clock_breakdown()
    forward = _seconds(engine, FORWARD_GLOBAL_TIMER) if timed else profiler.get_total_duration()
    yield "fwd latency: ", duration_to_string(forward)
    yield "fwd FLOPS per GPU = fwd flops per GPU / fwd latency: ", _rate(flops, forward)
    counted = profiler.get_total_backward_flops()
    if timed:
        yield from _timed_summary(profiler, forward, counted)
    if timed and engine.gradient_accumulation_steps() > 1:
        yield "Counted by Shoal, micro-steps, of which each latency is the mean: ", engine.gradient_accumulation_steps()
    if counted:
        yield "Counted by Shoal, bwd flops per GPU: ", number_to_string(counted)


def _timed_summary(profiler: Any, forward: float, counted: int) -> Iterator[tuple[str, Any]]:
    engine, flops = profiler.ds_engine, profiler.flops
    factor = 2 + profiler.recompute_fwd_factor
    backward, step = _seconds(engine, BACKWARD_GLOBAL_TIMER), _seconds(engine, STEP_GLOBAL_TIMER)
    whole = forward + backward + step
    yield "bwd latency: ", duration_to_string(backward)
    yield f"bwd FLOPS per GPU = {factor:g} * fwd flops per GPU / bwd latency: ", _rate(factor * flops, backward)
    yield (
        f"fwd+bwd FLOPS per GPU = {factor + 1:g} * fwd flops per GPU / (fwd+bwd latency): ",
        _rate((factor + 1) * flops, forward + backward),
    )
    yield "step latency: ", duration_to_string(step)
    yield "iter latency: ", duration_to_string(whole)
    yield f"FLOPS per GPU = {factor + 1:g} * fwd flops per GPU / iter latency: ", _rate((factor + 1) * flops, whole)
    samples = engine.train_micro_batch_size_per_gpu() * engine.world_size
    yield "samples/second: ", round(samples / whole, DEFAULT_PRECISION) if whole else 0
    peak = _peak_of(engine)
    if whole and peak:
        share = 100 * (flops + counted) / whole / (peak * 1e12)
        yield f"Counted by Shoal, MFU = fwd and bwd flops / iter latency / {peak} TFLOPS: ", f"{share:.1f} %"
    else:
        yield "Counted by Shoal, MFU: ", "not known: of GPUs that are listed, and 16 bits"


def _peak_of(engine: Any) -> float:
    """0 where it is not known."""
    if engine.device.type != "cuda" or engine.dtype == torch.float32:
        return 0
    return peak_of(torch.cuda.get_device_name(engine.device))


def peak_of(gpu: str) -> float:
    """As words: an RTX A4000 is no A40. 0 where it is not known."""
    return next((peak for words, peak in PEAKS.items() if re.search(rf"(?<![A-Za-z0-9]){words}(?![A-Za-z0-9])", gpu)), 0)


def _seconds(engine: Any, timer: str) -> float:
    """Of one micro-step: the mean over those of the step, as what is counted is of one."""
    return engine.timers(timer).elapsed(reset=False) / 1000.0 / engine.gradient_accumulation_steps()


def _rate(flops: float, seconds: float) -> str:
    return flops_to_string(flops / seconds if seconds else 0)


def _described(model: nn.Module) -> str:
    """The model as torch prints it, with the numbers of each module before what the module says itself."""
    params, macs, duration = model.__params__, module_macs(model), module_duration(model)

    def share(part: float, whole: float) -> str:
        return f"{round(100 * part / whole, DEFAULT_PRECISION) if whole else 0:g}%"

    texts = {}
    for module in model.modules():
        own_macs, own_time = module_macs(module), module_duration(module)
        items = [
            f"{params_to_string(module.__params__)} = {share(module.__params__, params)} Params",
            f"{macs_to_string(own_macs)} = {share(own_macs, macs)} MACs",
            f"{duration_to_string(own_time)} = {share(own_time, duration)} latency",
            _rate(module_flops(module), own_time),
        ]
        texts[module] = ", ".join([*items, module.extra_repr()] if module.extra_repr() else items)
    before = {module: vars(module).get("extra_repr") for module in texts}
    try:
        for module, text in texts.items():
            module.extra_repr = lambda text=text: text
        return repr(model)
    finally:
        for module, own in before.items():
            if own is None:
                del module.extra_repr
            else:
                module.extra_repr = own

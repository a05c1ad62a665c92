"""Puts counters around the functions of torch that models call, for as long as somebody counts.

What a function calls inside is not counted a second time. Functions that were imported by name before, as by `from
torch.nn.functional import linear`, are torch's own and are not seen, as with DeepSpeed.
"""

from __future__ import annotations

import functools
from typing import Any, Callable

import torch
import torch.nn.functional as F
from torch.utils import checkpoint

from deepspeed.profiling.flops_profiler import formulas

_FUNCTIONALS: dict[str, formulas.Formula] = {
    "linear": formulas.linear,
    **{f"conv{dims}d": formulas.convolution for dims in (1, 2, 3)},
    **{f"conv_transpose{dims}d": formulas.transposed_convolution for dims in (1, 2, 3)},
    **{name: formulas.each_element() for name in ("relu", "prelu", "elu", "leaky_relu", "relu6", "silu", "gelu", "softmax")},
    "batch_norm": formulas.batch_norm,
    "layer_norm": formulas.normalized(2),
    "group_norm": formulas.normalized(2),
    "instance_norm": formulas.normalized(3),
    "rms_norm": formulas.normalized(2),
    **{f"{adaptive}{kind}_pool{dims}d": formulas.each_element()
       for adaptive in ("", "adaptive_") for kind in ("avg", "max") for dims in (1, 2, 3)},
    "upsample": formulas.resized,
    "interpolate": formulas.resized,
    "scaled_dot_product_attention": formulas.attention,
}  # fmt: skip
_TORCH: dict[str, formulas.Formula] = {
    **{name: formulas.matmul for name in ("matmul", "mm", "bmm")},
    **{name: formulas.addmm for name in ("addmm", "baddbmm")},
    **{name: formulas.elementwise for name in ("mul", "add")},
    "einsum": formulas.einsum,
}
_METHODS = {name: _TORCH[name] for name in ("matmul", "mm", "bmm", "addmm", "baddbmm", "mul", "add")} | {
    "__matmul__": formulas.matmul
}


class _Counter:
    """The counters of now. `open` holds the counts of each module whose forward runs, the innermost last."""

    def __init__(self) -> None:
        self.users = 0
        self.open: list[list[formulas.Counts]] = []
        self.inside = False  # a function that is counted
        self.recomputed = 0  # regions that torch.utils.checkpoint runs without a graph, and again in backward
        self.replaced: list[tuple[Any, str, Any]] = []

    def wants(self, value: Any) -> bool:
        """Whether the value will take a gradient."""
        if not torch.is_tensor(value) or not value.is_floating_point():
            return False
        if torch.is_grad_enabled() or self.recomputed == 0:
            return value.requires_grad and torch.is_grad_enabled()
        return value.requires_grad or not isinstance(value, torch.nn.Parameter)

    def counted(self, call: Callable[..., Any], formula: formulas.Formula) -> Callable[..., Any]:
        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if self.inside or not self.open:
                return call(*args, **kwargs)
            self.inside = True
            try:
                result = call(*args, **kwargs)
            finally:
                self.inside = False
            self.open[-1].append(formula(self.wants, result, args, kwargs))
            return result

        return wrapper

    def replace(self, owner: Any, name: str, formula: formulas.Formula) -> None:
        if hasattr(owner, name):
            self.put(owner, name, self.counted(getattr(owner, name), formula))

    def put(self, owner: Any, name: str, value: Any) -> None:
        own = vars(owner).get(name)
        self.replaced.append((owner, name, own))
        setattr(owner, name, value)


_counter = _Counter()


def begin() -> None:
    _counter.users += 1
    if _counter.users > 1:
        return
    for owner, table in ((F, _FUNCTIONALS), (torch, _TORCH), (torch.Tensor, _METHODS)):
        for name, formula in table.items():
            _counter.replace(owner, name, formula)
    forward = checkpoint.CheckpointFunction.forward

    @functools.wraps(forward)
    def recomputed(*args: Any, **kwargs: Any) -> Any:
        _counter.recomputed += 1
        try:
            return forward(*args, **kwargs)
        finally:
            _counter.recomputed -= 1

    _counter.put(checkpoint.CheckpointFunction, "forward", staticmethod(recomputed))


def finish() -> None:
    _counter.users -= 1
    if _counter.users > 0:
        return
    while _counter.replaced:
        owner, name, before = _counter.replaced.pop()
        if before is None:  # it is inherited
            delattr(owner, name)
        else:
            setattr(owner, name, before)
    _counter.open.clear()


def enter_module() -> None:
    _counter.open.append([])


def leave_module() -> formulas.Counts:
    """What the module itself has called since."""
    counts = _counter.open.pop() if _counter.open else []
    return formulas.Counts(*(sum(each) for each in zip(*counts))) if counts else formulas.Counts()

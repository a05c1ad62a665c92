"""The collectives of torch.distributed as deepspeed.comm has them: with `prof`, `log_name` and `debug`, and put down in the log
of collectives while that is on. A call that is put down is waited for; the rest go straight to torch."""

from __future__ import annotations

import functools
import inspect
import time
from typing import Any, Callable

import torch
import torch.distributed as dist

from deepspeed.accelerator import get_accelerator

# By name: the place of the tensor whose bytes count, and torch's name of that argument where DeepSpeed has another one.
_SIZED = {
    "all_gather": (1, "tensor"),
    "all_gather_into_tensor": (1, "input_tensor"),
    "all_gather_object": (-1, ""),
    "all_reduce": (0, "tensor"),
    "all_reduce_coalesced": (0, "tensors"),
    "all_to_all": (1, "input_tensor_list"),
    "all_to_all_single": (1, "input"),
    "batch_isend_irecv": (0, "p2p_op_list"),
    "broadcast": (0, "tensor"),
    "broadcast_object_list": (-1, ""),
    "gather": (0, "tensor"),
    "irecv": (0, "tensor"),
    "isend": (0, "tensor"),
    "monitored_barrier": (-1, ""),
    "recv": (0, "tensor"),
    "reduce": (0, "tensor"),
    "reduce_scatter": (1, "input_list"),
    "reduce_scatter_tensor": (1, "input"),
    "scatter": (0, "tensor"),
    "send": (0, "tensor"),
}
NAMES = tuple(_SIZED)
_BEGIN_ONLY = ("isend", "irecv", "batch_isend_irecv")  # whoever waits for one before its peer has come waits for ever


def logged(call: Callable[..., Any], name: str, logger: Any, default_log_name: str | None = None) -> Callable[..., Any]:
    """`call` with the three arguments. logger: a function that gives the log, which is made later."""
    at, spelled = _SIZED.get(name, (-1, ""))

    @functools.wraps(call)
    def wrapper(*args: Any, prof: bool = False, log_name: str | None = None, debug: Any = None, **kwargs: Any) -> Any:
        if "tensor" in kwargs and spelled.startswith("input"):
            kwargs[spelled] = kwargs.pop("tensor")  # as DeepSpeed calls it
        log_name = log_name or default_log_name or name
        log = logger()
        if not log.wants(log_name, prof):
            return call(*args, **kwargs)
        sized = kwargs.get(spelled, args[at] if 0 <= at < len(args) else None)
        record = f"{log_name} | [Caller Func: {_caller()}]" if log.debug else log_name
        begin = time.perf_counter()
        result = call(*args, **kwargs)
        if name in _BEGIN_ONLY:
            log.append(name, record, None, nbytes_of(sized))
            return result
        if isinstance(result, dist.Work):
            result.wait()
        get_accelerator().synchronize()
        log.append(name, record, 1e3 * (time.perf_counter() - begin), nbytes_of(sized))
        return result

    extra = [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None) for key in ("log_name", "debug")]
    extra.insert(0, inspect.Parameter("prof", inspect.Parameter.KEYWORD_ONLY, default=False))
    own = list(inspect.signature(call).parameters.values())
    wrapper.__signature__ = inspect.Signature(own + extra)  # type: ignore[attr-defined]
    return wrapper


def nbytes_of(value: Any) -> int:
    """Of a tensor, of all tensors of a list, of what a list of P2POps sends; 0 of anything else."""
    if torch.is_tensor(value):
        return value.numel() * value.element_size()
    if isinstance(value, dist.P2POp):
        return nbytes_of(value.tensor)
    return sum(nbytes_of(each) for each in value) if isinstance(value, (list, tuple)) else 0


def _caller() -> str:
    """The function of the user's that called a collective of deepspeed.comm."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("deepspeed.comm"):
        frame = frame.f_back
    return frame.f_code.co_name if frame is not None else "?"

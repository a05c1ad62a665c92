"""Sizes and speeds of collectives, as numbers and as text."""

from __future__ import annotations

import math
from typing import Iterable

from shoal import Error

from deepspeed.comm.ranks import get_world_size

_GATHERS = ("all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor")
_EXCHANGES = ("all_to_all_single", "all_to_all")
_REDUCTIONS = ("all_reduce", "all_reduce_coalesced", "inference_all_reduce")
_SENDS = (
    "send", "recv", "isend", "irecv", "batch_isend_irecv", "broadcast", "broadcast_object_list", "reduce", "gather", "scatter",
    "barrier", "monitored_barrier", "all_gather_object",
)  # fmt: skip


def convert_size(size_bytes: int) -> str:
    """2048 is "2.0 KB"."""
    if size_bytes == 0:
        return "0B"
    power = min(int(math.log(size_bytes, 1024)), 8)
    return f"{round(size_bytes / 1024**power, 2)} {('B', 'KB', 'MB', 'GB', 'TB', 'PB', 'EB', 'ZB', 'YB')[power]}"


def calc_bw_log(comm_op: str, size: float, duration: float) -> tuple[float, float]:
    """Gigabits a second of `size` bytes in `duration` milliseconds: what the caller sees, and what travels on the wire of each
    rank. The rules are those of NCCL's tests, as DeepSpeed applies them."""
    ranks = get_world_size()
    part = (ranks - 1) / ranks
    if comm_op in _EXCHANGES:
        moved, wired = size, size * part
    elif comm_op in _GATHERS:
        moved, wired = size * ranks, size * ranks * part
    elif comm_op in _REDUCTIONS:
        moved, wired = 2 * size, 2 * size * part
    elif comm_op in _SENDS:
        moved = wired = size
    else:
        raise Error(f"[comms_logger] {comm_op} is no collective that is known. Use the name of one of torch.distributed.")
    scale = 8 / 1e6 / duration if duration > 0 else 0.0
    return moved * scale, wired * scale


def trim_mean(data: Iterable[float], trim_percent: float) -> float:
    """The mean without that share of the values at either end; 0 of none."""
    if not 0.0 <= trim_percent <= 1.0:
        raise Error(f"[trim_mean] {trim_percent} is no share. Give a number from 0 to 1.")
    values = sorted(data)
    cut = int(round(len(values) * trim_percent))
    kept = values[cut : len(values) - cut]
    return sum(kept) / len(kept) if kept else (float("nan") if values else 0)

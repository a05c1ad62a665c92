"""Ranks of one host that have fewer GPUs than they are: what NCCL and torch's barriers make of them."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
import torch.distributed as dist
from shoal import Error
from shoal.world import local_size


def nccl_takes_the_ranks() -> bool:
    """The engine's rule (docs/transports.md): NCCL takes no two ranks of one host on one GPU, and knows hosts by NCCL_HOSTID,
    which `shoal launch --share-gpu` sets to another text in each rank. It takes none on a CPU."""
    gpus = _gpus()
    takes = gpus > 0 and (local_size() <= gpus or bool(os.environ.get("NCCL_HOSTID")))
    if not takes and os.environ.get("SHOAL_TRANSPORT") == "nccl":
        why = f"{local_size()} ranks of this host share {gpus} GPUs" if gpus else "torch sees no GPU"
        raise Error(
            f"[environment SHOAL_TRANSPORT] nccl takes no two ranks on one GPU, and {why}. Give each rank a GPU of its own; or "
            "start them by `shoal launch --share-gpu`, which gives each an NCCL_HOSTID of its own; or use auto."
        )
    return takes


def let_barriers_name_ranks() -> None:
    """Libraries take a rank's number on its host for that of its GPU: accelerate gives it to barriers, as device_ids. Where
    ranks share GPUs there may be none of that number, at which torch raises over Gloo too; a barrier takes the GPU then that
    the rank is on."""
    barrier = dist.barrier
    gpus = _gpus()
    if gpus == 0 or local_size() <= gpus or hasattr(barrier, "_names_ranks"):
        return

    @functools.wraps(barrier)
    def on_the_gpu_of_the_rank(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
        if device_ids is not None and any(number >= _gpus() for number in device_ids):
            device_ids = [torch.cuda.current_device()]
        return barrier(group, async_op=async_op, device_ids=device_ids)

    on_the_gpu_of_the_rank._names_ranks = True  # type: ignore[attr-defined]
    dist.barrier = on_the_gpu_of_the_rank


def _gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0

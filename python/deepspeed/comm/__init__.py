"""torch.distributed under DeepSpeed's name; without a launcher it is a world of one."""

from __future__ import annotations

import atexit
import datetime
import os
import time
from typing import Any

import torch
import torch.distributed as _dist
from shoal.world import local_size as _local_size
from shoal.world import number_of as _number_of
from torch.distributed import *  # noqa: F401,F403
from torch.distributed import ReduceOp  # noqa: F401

from deepspeed.accelerator import get_accelerator as _get_accelerator


def first_rank() -> bool:
    """Whether this is rank 0, asked before anything is initialised."""
    return os.environ.get("RANK", "0") == "0"


def is_available() -> bool:
    return _dist.is_available()


def is_initialized() -> bool:
    return _dist.is_available() and _dist.is_initialized()


def init_distributed(
    dist_backend: str | None = None,
    auto_mpi_discovery: bool = True,
    distributed_port: int = 29500,
    verbose: bool = True,
    timeout: datetime.timedelta | None = None,
    init_method: str | None = None,
    dist_init_required: bool | None = None,
    config: Any = None,
    rank: int = -1,
    world_size: int = -1,
) -> None:
    """Initialises torch.distributed unless it is up already or not wanted."""
    if is_initialized() or dist_init_required is False:
        return
    if auto_mpi_discovery:
        _take_ranks_of_mpi()
    backend = dist_backend or _get_accelerator().communication_backend_name()
    if backend == "ccl" or (backend == "nccl" and _ranks_share_gpus()):
        backend = "gloo"
    options: dict[str, Any] = {} if timeout is None else {"timeout": timeout}
    if init_method is not None or rank >= 0:
        _dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=world_size, **options)
    elif "RANK" in os.environ or "WORLD_SIZE" in os.environ:
        os.environ.setdefault("MASTER_PORT", str(distributed_port))
        _dist.init_process_group(backend, **options)
    else:
        _dist.init_process_group(backend, store=_dist.HashStore(), rank=0, world_size=1, **options)


@atexit.register
def _leave() -> None:
    """Ends Gloo's threads while there is an interpreter: one that lets go of a tensor later aborts the process. Whoever
    made the group: accelerate makes it itself on a CPU. NCCL's may wait for ranks that are gone."""
    if is_initialized() and ("gloo" in _dist.get_backend() or _dist.get_world_size() == 1):
        _wait_for_gloo()
        _dist.destroy_process_group()


def _wait_for_gloo(at_most: float = 5.0) -> None:
    """Until no thread of Gloo is at work. The group may live on in somebody's hands, and then its threads do; one that has
    just ended a collective has its tensors still to let go of, for which it needs the interpreter. While this sleeps, they
    can have it: one that wants it does not sleep."""
    idle = 0
    end = time.monotonic() + at_most
    while idle < 3 and time.monotonic() < end:
        time.sleep(0.001)
        idle = 0 if _gloo_works() else idle + 1


def _gloo_works() -> bool:
    """Whether a thread of Gloo's that runs collectives is running or waits for a core."""
    try:
        for thread in os.scandir("/proc/self/task"):
            with open(f"{thread.path}/stat", encoding="utf-8", errors="replace") as file:
                name, _, rest = file.read().partition(")")
            if name.endswith("(pt_gloo_runloop") and rest.split()[0] != "S":
                return True
    except OSError:  # one ended meanwhile, or there is no /proc
        return False
    return False


def _ranks_share_gpus() -> bool:
    """NCCL takes no two ranks on one GPU, and none on a CPU."""
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return _local_size() > gpus


def _take_ranks_of_mpi() -> None:
    """What mpirun and srun say of ranks, under the names that torch reads."""
    if "RANK" in os.environ:
        return
    for rank, size, local in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ):
        if rank in os.environ and size in os.environ:
            os.environ["RANK"], os.environ["WORLD_SIZE"] = os.environ[rank], os.environ[size]
            os.environ.setdefault("LOCAL_RANK", os.environ.get(local, "0"))
            if os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") == os.environ[size] or os.environ.get("SLURM_NNODES") == "1":
                os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
            return


def get_rank(group: Any = None) -> int:
    return _dist.get_rank(group) if is_initialized() else _number_of("RANK", 0)


def get_world_size(group: Any = None) -> int:
    return _dist.get_world_size(group) if is_initialized() else _number_of("WORLD_SIZE", 1, least=1)


def get_local_rank() -> int:
    return _number_of("LOCAL_RANK", 0)


def get_world_group() -> Any:
    return _dist.group.WORLD


def is_whole_world(group: Any) -> bool:
    """Whether a group spans all ranks; None does."""
    return group is None or not is_initialized() or _dist.get_world_size(group) == _dist.get_world_size()


def inference_all_reduce(tensor: torch.Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """all_reduce; DeepSpeed has a faster one for inference on CPUs."""
    return _dist.all_reduce(tensor, op=op, group=group)


def allgather_fn(output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None, async_op: bool = False) -> Any:
    return _dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)


def reduce_scatter_fn(
    output_tensor: torch.Tensor, tensor: torch.Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    return _dist.reduce_scatter_tensor(output_tensor, tensor, op=op, group=group, async_op=async_op)


def has_all_gather_into_tensor() -> bool:
    return True


def has_reduce_scatter_tensor() -> bool:
    return True


def get_global_rank(group: Any = None, group_rank: int = 0) -> int:
    return _dist.get_global_rank(group, group_rank) if group is not None else group_rank


def get_all_ranks_from_group(group: Any = None) -> list[int]:
    return _dist.get_process_group_ranks(group if group is not None else _dist.group.WORLD)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    return _dist.barrier(group, async_op=async_op, device_ids=device_ids) if is_initialized() else None

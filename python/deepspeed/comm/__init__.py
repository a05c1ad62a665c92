"""torch.distributed under DeepSpeed's name; without a launcher it is a world of one."""

from __future__ import annotations

import atexit
import datetime
import os
import time
from typing import Any

import torch
import torch.distributed as _dist
from shoal.world import first_host as _first_host
from shoal.world import number_of as _number_of
from torch.distributed import *  # noqa: F401,F403
from torch.distributed import ReduceOp  # noqa: F401

from deepspeed.accelerator import get_accelerator as _get_accelerator
from deepspeed.comm import logged as _logged
from deepspeed.comm.log import CommsLogger as _CommsLogger
from deepspeed.comm.ranks import get_rank, get_world_size, is_initialized
from deepspeed.comm.shared_gpus import let_barriers_name_ranks as _let_barriers_name_ranks
from deepspeed.comm.shared_gpus import nccl_takes_the_ranks as _nccl_takes_the_ranks

comms_logger = _CommsLogger()
globals().update({name: _logged.logged(getattr(_dist, name), name, lambda: comms_logger) for name in _logged.NAMES})


def first_rank() -> bool:
    """Whether this is rank 0, asked before anything is initialised."""
    return os.environ.get("RANK", "0") == "0"


def is_available() -> bool:
    return _dist.is_available()


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
    """Initialises torch.distributed unless it is up already or not wanted. config: whose section comms_logger is taken."""
    if config is not None:
        configure(config)
    if is_initialized() or dist_init_required is False:
        return
    if auto_mpi_discovery:
        _take_ranks_of_mpi()
    backend = dist_backend or _get_accelerator().communication_backend_name()
    if backend == "ccl" or (backend == "nccl" and not _nccl_takes_the_ranks()):
        backend = "gloo"
    _let_barriers_name_ranks()
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
            elif rank == "SLURM_PROCID":
                _take_place_of_slurm()
            return


def _take_place_of_slurm() -> None:
    """Ranks meet at the first host of the step, at a port of the job's: jobs that share a host should not meet at one."""
    for name in ("SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"):
        if os.environ.get(name):
            os.environ.setdefault("MASTER_ADDR", _first_host(os.environ[name]))
            job = os.environ.get("SLURM_JOB_ID", "")
            os.environ.setdefault("MASTER_PORT", str(29500 + (int(job) if job.isdecimal() else 0) % 10000))
            return


def get_local_rank() -> int:
    return _number_of("LOCAL_RANK", 0)


def get_world_group() -> Any:
    return _dist.group.WORLD


def is_whole_world(group: Any) -> bool:
    """Whether a group spans all ranks; None does."""
    return group is None or not is_initialized() or _dist.get_world_size(group) == _dist.get_world_size()


def _inference_all_reduce(tensor: torch.Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Any:
    """all_reduce; DeepSpeed has a faster one for inference on CPUs."""
    return _dist.all_reduce(tensor, op=op, group=group)


inference_all_reduce = _logged.logged(_inference_all_reduce, "all_reduce", lambda: comms_logger)


def allgather_fn(
    output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any = None, async_op: bool = False, debug: Any = None
) -> Any:
    return all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op)  # noqa: F405


def reduce_scatter_fn(
    output_tensor: torch.Tensor,
    tensor: torch.Tensor,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    prof: bool = False,
    debug: Any = None,
) -> Any:
    return reduce_scatter_tensor(output_tensor, tensor, op=op, group=group, async_op=async_op, prof=prof)  # noqa: F405


def has_all_gather_into_tensor() -> bool:
    return True


def has_reduce_scatter_tensor() -> bool:
    return True


def get_global_rank(group: Any = None, group_rank: int = 0) -> int:
    return _dist.get_global_rank(group, group_rank) if group is not None else group_rank


def get_all_ranks_from_group(group: Any = None) -> list[int]:
    return _dist.get_process_group_ranks(group if group is not None else _dist.group.WORLD)


def _barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    return _dist.barrier(group, async_op=async_op, device_ids=device_ids) if is_initialized() else None


barrier = _logged.logged(_barrier, "barrier", lambda: comms_logger)


def configure(
    deepspeed_config: Any = None,
    enabled: bool | None = None,
    prof_all: bool | None = None,
    prof_ops: list[str] | None = None,
    verbose: bool | None = None,
    debug: bool | None = None,
) -> None:
    """Sets the log of collectives up: by the section comms_logger of a DeepSpeedConfig, then by what is given beside it."""
    if deepspeed_config is not None and hasattr(deepspeed_config.comms_config, "comms_logger"):  # the section is there
        comms_logger.configure(deepspeed_config.comms_config)
    given = {"enabled": enabled, "prof_all": prof_all, "prof_ops": prof_ops, "verbose": verbose, "debug": debug}
    for name, value in given.items():
        if value is not None:
            setattr(comms_logger, name, value)


# What engines have still to put down is put down first.
before_summary: list[Any] = []


def log_summary(show_straggler: bool = False, return_dict: bool = False) -> dict[str, Any] | None:
    """Prints on rank 0 what collectives have cost so far. Every rank calls it, and gets its own numbers with return_dict."""
    _settle()
    _barrier()
    found = comms_logger.log_all(print_log=get_rank() == 0, show_straggler=show_straggler, return_dict=return_dict)
    _barrier()
    return found


def reset_log() -> None:
    _settle()
    comms_logger.reset_data()


def has_comm_data() -> bool:
    _settle()
    return comms_logger.has_data()


def get_comm_operation_count() -> int:
    _settle()
    return comms_logger.get_total_operations()


def get_logged_comm_ops() -> list[str]:
    _settle()
    return comms_logger.get_operation_names()


def _settle() -> None:
    for settle in before_summary:
        settle()

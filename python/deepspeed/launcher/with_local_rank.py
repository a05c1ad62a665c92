"""Runs a script as `python script --local_rank=N ...`, which scripts for DeepSpeed's launcher expect, on cores of its own
where asked. Started by path, so that nothing is imported before the cores are set.

    with_local_rank.py [--no_local_rank] [--share_gpu] [--cores=0,1,2,3] [-m] script arguments...
"""

import os
import runpy
import sys


def share_gpu() -> None:
    """What `shoal launch --share-gpu` gives a rank: to NCCL it is a host of its own, and its kernels are small, so that those of
    all ranks fit on the GPU at one time."""
    rank, ranks = os.environ["RANK"], int(os.environ["WORLD_SIZE"])
    blocks = str(min(4, max(1, 32 // ranks)))
    os.environ["NCCL_HOSTID"] = f"shoal-rank-{rank}"
    for name, value in {
        "NCCL_SOCKET_IFNAME": "lo",
        "NCCL_IB_DISABLE": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": str(min(32, max(4, 64 // ranks))),  # MPS has about 100 for all its processes
        "NCCL_MAX_CTAS": blocks,
        "NCCL_MAX_P2P_NCHANNELS": blocks,
    }.items():
        os.environ.setdefault(name, value)


def main() -> None:
    arguments = sys.argv[1:]
    local_rank, with_rank, as_module = int(os.environ["LOCAL_RANK"]), True, False
    while arguments and arguments[0].startswith("-"):
        flag = arguments.pop(0)
        if flag == "--no_local_rank":
            with_rank = False
        elif flag == "-m":
            as_module = True
        elif flag == "--share_gpu":
            share_gpu()
        else:
            cores = [int(core) for core in flag.removeprefix("--cores=").split(",")]
            each = len(cores) // int(os.environ["LOCAL_WORLD_SIZE"])
            os.sched_setaffinity(0, cores[local_rank * each : (local_rank + 1) * each])
    script, *rest = arguments
    sys.argv = [script, *([f"--local_rank={local_rank}"] if with_rank else []), *rest]
    if as_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(script))
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()

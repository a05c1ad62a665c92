"""The `deepspeed` command: DeepSpeed's arguments, torchrun's launcher.

On several hosts it is started on each of them, with --no_ssh: it does not log in anywhere. What it cannot do is refused
by name.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from pathlib import Path

from deepspeed.launcher import hosts as _hosts
from deepspeed.launcher import port as _port
from deepspeed.utils.logging import logger

DEEPSPEED_ENVIRONMENT_NAME = os.getenv("DS_ENV_FILE", ".deepspeed_env")
DLTS_HOSTFILE = "/job/hostfile"
_WRAPPER = Path(__file__).with_name("with_local_rank.py")
_MPI = "start the script itself by mpirun or srun: ranks are read from their environment"

# Arguments of DeepSpeed's launcher that ask for something which is not here, and the way that works.
REFUSED = {
    "launcher_args": "nothing is started by pdsh or MPI here. To pass them on, " + _MPI,
    "force_multi": "remote hosts are not logged into. Start the command on that host",
    "ssh_port": "remote hosts are not logged into. Start the command on each host with --no_ssh",
    "venv_script": "remote hosts are not logged into. Activate the environment on each host and use --no_ssh",
    "autotuning": "there is no autotuner. `shoal plan` says what fits",
    "elastic_training": "the number of ranks stands. Use torchrun --nnodes=MIN:MAX, and load_checkpoint resumes on any number",
    "min_elastic_nodes": "the number of ranks stands. Use torchrun --nnodes=MIN:MAX",
    "max_elastic_nodes": "the number of ranks stands. Use torchrun --nnodes=MIN:MAX",
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="deepspeed", description="Starts ranks of a training script, one a GPU or as many as --num_gpus says."
    )
    add = parser.add_argument
    add("--num_gpus", "--num_accelerators", type=int, default=-1, help="ranks on each host")
    add("--num_nodes", type=int, default=-1, help="hosts; of a hostfile: the first ones")
    add("--node_rank", type=int, default=-1, help="which host this is")
    add("--master_addr", default="", help="the host of rank 0")
    add("--master_port", type=int, default=None, help=f"where ranks meet; by default {_port.DEFAULT_PORT}; on one host a free one if that is taken")
    add("-H", "--hostfile", default=DLTS_HOSTFILE, help="hosts and their slots, a line each: worker-0 slots=4")
    add("-i", "--include", default="", help='"worker-0@worker-1:0,2": these hosts and GPUs only')
    add("-e", "--exclude", default="", help='"worker-1:0": all but these')
    add("--no_ssh", action="store_true", help="this command is started on every host; needed on several")
    add("--no_ssh_check", action="store_true", help="accepted: nothing is checked by ssh")
    add("--module", action="store_true", help="the script is a module, as with python -m")
    add("--no_python", action="store_true", help="the script is a program of its own")
    add("--no_local_rank", action="store_true", help="do not add --local_rank to the script's arguments")
    add("--save_pid", action="store_true", help="write this process' id to /tmp/<id>.deepspeed while it runs")
    add("--enable_each_rank_log", default="None", help="a folder for the output of each rank")
    add("--bind_cores_to_rank", action="store_true", help="give each rank cores of its own")
    add("--bind_core_list", default=None, help="the cores to give: 0,2-4; without it all")
    add("--log_level", default="info", choices=["debug", "info", "warning", "error", "critical"])
    add("-q", "--quiet", action="store_true", help="as --log_level error")
    add("--launcher", default="pdsh", help=argparse.SUPPRESS)
    add("--launcher_args", default="", help=argparse.SUPPRESS)
    add("--force_multi", action="store_true", help=argparse.SUPPRESS)
    add("--ssh_port", type=int, default=None, help=argparse.SUPPRESS)
    add("--venv_script", default=None, help=argparse.SUPPRESS)
    add("--autotuning", default="", help=argparse.SUPPRESS)
    add("--elastic_training", action="store_true", help=argparse.SUPPRESS)
    add("--min_elastic_nodes", type=int, default=-1, help=argparse.SUPPRESS)
    add("--max_elastic_nodes", type=int, default=-1, help=argparse.SUPPRESS)
    add("user_script", help="the training script")
    add("user_args", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    for name, remedy in REFUSED.items():
        if getattr(options, name) != parser.get_default(name):
            raise SystemExit(f"deepspeed: --{name} is not supported: {remedy}.")
    if options.master_port is not None and not 1 <= options.master_port <= 65535:
        raise SystemExit(f"deepspeed: --master_port is {options.master_port}. Give a number from 1 to 65535.")
    if options.num_gpus > _hosts.MOST_SLOTS:
        raise SystemExit(f"deepspeed: --num_gpus is {options.num_gpus}. Give at most {_hosts.MOST_SLOTS} ranks a host.")
    if options.launcher.lower() not in ("pdsh", "torchrun"):
        raise SystemExit(f"deepspeed: --launcher {options.launcher} is not supported. Instead, {_MPI}.")
    return options


def place(options: argparse.Namespace, local_slots: int) -> tuple[int, int, str, list[int] | None]:
    """The number of hosts, this host's number, the address of rank 0, and this host's slots.

    Slots are None where nobody named any: then the command uses as many GPUs as it finds, or --num_gpus.
    """
    if options.hostfile != DLTS_HOSTFILE and not os.path.isfile(options.hostfile):
        raise SystemExit(f"deepspeed: the hostfile {options.hostfile} is not there. Give the path of one.")
    pool = _hosts.read_hostfile(options.hostfile)
    named = options.include or options.exclude
    if named and (options.num_nodes > 0 or options.num_gpus > 0):
        raise SystemExit("deepspeed: --include and --exclude say which slots; --num_nodes and --num_gpus contradict them.")
    if not pool:
        nodes = max(1, options.num_nodes)
        slots = None
        if named:
            if nodes > 1 or "@" in named:
                raise SystemExit("deepspeed: --include names several hosts, and there is no hostfile. Give --hostfile.")
            slots = _hosts.select({_name_of(named): list(range(local_slots))}, options.include, options.exclude)
            slots = next(iter(slots.values()))
        rank = _rank_of(options, nodes, [])
        if nodes > 1 and not options.master_addr:
            raise SystemExit("deepspeed: several hosts need --master_addr, the address of the host with --node_rank 0.")
        return nodes, rank, options.master_addr or "127.0.0.1", slots
    chosen = _hosts.limit(_hosts.select(pool, options.include, options.exclude), options.num_nodes, options.num_gpus)
    names = list(chosen)
    rank = _rank_of(options, len(names), names)
    address = options.master_addr or ("127.0.0.1" if len(names) == 1 else names[0])
    return len(names), rank, address, chosen[names[rank]]


def _name_of(spec: str) -> str:
    host = next(iter(_hosts.parse_spec(spec)))
    if host not in ("localhost", "127.0.0.1", socket.gethostname()):
        raise SystemExit(f"deepspeed: {host} is another host, and there is no hostfile. Start the command there.")
    return host


def _rank_of(options: argparse.Namespace, nodes: int, names: list[str]) -> int:
    here = [index for index, name in enumerate(names) if name in (socket.gethostname(), "localhost")]
    if nodes == 1:
        if names and not here and not options.no_ssh:
            raise SystemExit(f"deepspeed: {names[0]} is another host. Start the command there, with --no_ssh.")
        return 0
    if not options.no_ssh:
        raise SystemExit(
            "deepspeed: several hosts need --no_ssh here: start the command on each host, with --node_rank and the same "
            "hostfile, or with --num_nodes and --master_addr."
        )
    rank = options.node_rank if options.node_rank >= 0 else (here[0] if here else -1)
    if not 0 <= rank < nodes:
        raise SystemExit(f"deepspeed: --node_rank is {options.node_rank} of {nodes} hosts. Give a number from 0 to {nodes - 1}.")
    return rank


def torchrun_arguments(options: argparse.Namespace) -> list[str]:
    """What torchrun is called with. Sets what the ranks' environment needs."""
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    nodes, rank, address, slots = place(options, max(1, gpus))
    if slots is not None and gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(slot) for slot in slots)
    count = len(slots) if slots is not None else (options.num_gpus if options.num_gpus > 0 else max(1, gpus))
    result = [f"--nproc_per_node={count}", f"--nnodes={nodes}", f"--node_rank={rank}"]
    port = options.master_port or _port.DEFAULT_PORT
    if rank == 0:
        port, options.held_port = _port.meeting_port(options.master_port, nodes)
    result += [f"--master_addr={address}", f"--master_port={port}"]
    if options.enable_each_rank_log not in ("None", ""):
        result += [f"--log_dir={options.enable_each_rank_log}", "--redirects=3"]
    return result + script_arguments(options, count)


def script_arguments(options: argparse.Namespace, count: int) -> list[str]:
    """The script and its arguments; under a wrapper where it gets --local_rank or cores."""
    binds = options.bind_cores_to_rank or options.bind_core_list is not None
    if options.no_python:
        if binds:
            raise SystemExit("deepspeed: --bind_cores_to_rank needs Python. With --no_python start the program by numactl.")
        return ["--no_python", options.user_script, *options.user_args]
    if options.no_local_rank and not binds:
        return [*(["--module"] if options.module else []), options.user_script, *options.user_args]
    flags = ["--no_local_rank"] if options.no_local_rank else []
    if binds:
        cores = _hosts.parse_cores(options.bind_core_list) if options.bind_core_list else sorted(os.sched_getaffinity(0))
        each = len(cores) // count
        if each == 0:
            raise SystemExit(f"deepspeed: {len(cores)} cores are not enough for {count} ranks. Start fewer.")
        os.environ.setdefault("OMP_NUM_THREADS", str(each))
        flags.append("--cores=" + ",".join(str(core) for core in cores[: each * count]))
    return [str(_WRAPPER), *flags, *(["-m"] if options.module else []), options.user_script, *options.user_args]


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if not options.module and not options.no_python and not os.path.isfile(options.user_script):
        raise SystemExit(f"deepspeed: there is no script {options.user_script}. Give the path of a file.")
    logger.setLevel("ERROR" if options.quiet else options.log_level.upper())
    command = torchrun_arguments(options)
    from torch.distributed.run import main as run

    pid_file = Path("/tmp", f"{os.getpid()}.deepspeed")
    if options.save_pid:
        pid_file.write_text(str(os.getpid()), encoding="utf-8")
    try:
        run(command)
    finally:
        if options.save_pid:
            pid_file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())

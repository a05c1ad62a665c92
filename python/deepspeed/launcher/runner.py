"""The `deepspeed` command: DeepSpeed's arguments, torchrun's launcher on each host.

Hosts of a hostfile are logged into by ssh, or mpirun or srun is called, as --launcher says; with --no_ssh the command is started
on every host by somebody else. What it cannot do is refused by name.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import socket
import sys
import uuid
from pathlib import Path

from deepspeed.launcher import hosts as _hosts
from deepspeed.launcher import port as _port
from deepspeed.launcher import remote as _remote
from deepspeed.launcher import ssh_loop as _ssh_loop
from deepspeed.utils.logging import logger

DEEPSPEED_ENVIRONMENT_NAME = os.getenv("DS_ENV_FILE", ".deepspeed_env")
DLTS_HOSTFILE = "/job/hostfile"
_WRAPPER = Path(__file__).with_name("with_local_rank.py")

# Arguments of DeepSpeed's launcher that ask for something which is not here, and the way that works.
REFUSED = {
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
    add("--share_gpu", action="store_true", help="all ranks on the first visible GPU, and NCCL between them (not of DeepSpeed)")
    add("--launcher", default="pdsh", help="how other hosts are reached: pdsh (by ssh), openmpi (mpirun), slurm (srun)")
    add("--launcher_args", default="", help="words for ssh, mpirun or srun")
    add("--ssh_port", type=int, default=None, help="where the hosts' ssh listens")
    add("--force_multi", action="store_true", help="by the launcher also where the only host is this one")
    add("--venv_script", default=None, help="a file that each host's shell reads first: . FILE")
    add("--no_ssh", action="store_true", help="this command is started on every host by somebody else")
    add("--no_ssh_check", action="store_true", help="do not look first whether all hosts can be reached and have this folder")
    add("--module", action="store_true", help="the script is a module, as with python -m")
    add("--no_python", action="store_true", help="the script is a program of its own")
    add("--no_local_rank", action="store_true", help="do not add --local_rank to the script's arguments")
    add("--save_pid", action="store_true", help="write this process' id to $XDG_RUNTIME_DIR/<id>.deepspeed, or ~/.cache/shoal, while it runs")
    add("--enable_each_rank_log", default="None", help="a folder for the output of each rank")
    add("--bind_cores_to_rank", action="store_true", help="give each rank cores of its own")
    add("--bind_core_list", default=None, help="the cores to give: 0,2-4; without it all")
    add("--log_level", default="info", choices=["debug", "info", "warning", "error", "critical"])
    add("-q", "--quiet", action="store_true", help="as --log_level error")
    add("--autotuning", default="", help=argparse.SUPPRESS)
    add("--elastic_training", action="store_true", help=argparse.SUPPRESS)
    add("--min_elastic_nodes", type=int, default=-1, help=argparse.SUPPRESS)
    add("--max_elastic_nodes", type=int, default=-1, help=argparse.SUPPRESS)
    add("--slots", default="", help=argparse.SUPPRESS)  # of one host, from the runner that logged in
    add("--run_id", default="", help=argparse.SUPPRESS)
    add("user_script", help="the training script")
    add("user_args", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    for name, remedy in REFUSED.items():
        if getattr(options, name) != parser.get_default(name):
            raise SystemExit(f"deepspeed: --{name} is not supported: {remedy}.")
    if options.master_port is not None and not 1 <= options.master_port <= 65535:
        raise SystemExit(f"deepspeed: --master_port is {options.master_port}. Give a number from 1 to 65535.")
    for name, of in (("num_gpus", "GPUs of a host"), ("num_nodes", "hosts of the hostfile")):
        if (given := getattr(options, name)) < 1 and given != -1:
            raise SystemExit(f"deepspeed: --{name} is {given}. Give a number from 1, or leave it out: all {of}.")
    if options.num_gpus > _hosts.MOST_SLOTS:
        raise SystemExit(f"deepspeed: --num_gpus is {options.num_gpus}. Give at most {_hosts.MOST_SLOTS} ranks a host.")
    if options.share_gpu and options.no_python:
        raise SystemExit("deepspeed: --share_gpu needs Python. With --no_python use `shoal launch --share-gpu`.")
    if options.ssh_port is not None and not 1 <= options.ssh_port <= 65535:
        raise SystemExit(f"deepspeed: --ssh_port is {options.ssh_port}. Give a number from 1 to 65535.")
    options.launcher = options.launcher.lower()
    if options.launcher in _remote.MPI_LAUNCHERS:
        raise SystemExit(f"deepspeed: --launcher {options.launcher} is not supported: what {_remote.MPI_LAUNCHERS[options.launcher]}'s mpirun "
                         "tells its ranks is not read here. Use --launcher pdsh, openmpi or slurm.")  # fmt: skip
    if options.launcher not in _remote.LAUNCHERS:
        raise SystemExit(f"deepspeed: --launcher {options.launcher} is not known. Use one of {', '.join(_remote.LAUNCHERS)}.")
    return options


def _pool(options: argparse.Namespace) -> _hosts.Hosts:
    if options.hostfile != DLTS_HOSTFILE and not os.path.isfile(options.hostfile):
        raise SystemExit(f"deepspeed: the hostfile {options.hostfile} is not there. Give the path of one.")
    if (options.include or options.exclude) and (options.num_nodes > 0 or options.num_gpus > 0):
        raise SystemExit("deepspeed: --include and --exclude say which slots; --num_nodes and --num_gpus contradict them.")
    return _hosts.read_hostfile(options.hostfile)


def _chosen(options: argparse.Namespace, pool: _hosts.Hosts) -> _hosts.Hosts:
    return _hosts.limit(_hosts.select(pool, options.include, options.exclude), options.num_nodes, options.num_gpus)


def _is_here(host: str) -> bool:
    """Whether it is this host: by name, or by an address that is of this host."""
    if host in (socket.gethostname(), "localhost"):
        return True
    try:
        for family, kind, protocol, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
                return True
    except OSError:
        pass
    return False


def hosts_to_start(options: argparse.Namespace) -> _hosts.Hosts | None:
    """The hosts that this command starts ranks on through the launcher; None: ranks are started here alone."""
    if options.no_ssh or options.launcher == "torchrun":
        return None
    pool = _pool(options)
    if not pool:
        return None
    chosen = _chosen(options, pool)
    if len(chosen) > 1 and options.node_rank >= 0:
        raise SystemExit(f"deepspeed: --node_rank is for a command that is started on every host, and this one starts all {len(chosen)} "
                         "hosts. Add --no_ssh, or leave --node_rank out and start the command once.")  # fmt: skip
    return chosen if options.force_multi or len(chosen) > 1 or not _is_here(next(iter(chosen))) else None


def place(options: argparse.Namespace, local_slots: int) -> tuple[int, int, str, list[int] | None]:
    """The number of hosts, this host's number, the address of rank 0, and this host's slots.

    Slots are None where nobody named any: then the command uses as many GPUs as it finds, or --num_gpus.
    """
    if options.slots:
        return options.num_nodes, options.node_rank, options.master_addr, [int(slot) for slot in options.slots.split(",")]
    pool, named = _pool(options), options.include or options.exclude
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
    chosen = _chosen(options, pool)
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
    here = [index for index, name in enumerate(names) if _is_here(name)]
    if nodes == 1:
        return 0
    if not options.no_ssh:
        raise SystemExit(
            "deepspeed: several hosts need a --hostfile, whose hosts are logged into; or start the command on each host, with "
            "--no_ssh, --num_nodes, --node_rank and --master_addr."
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
    if options.share_gpu:
        if not gpus:
            raise SystemExit("deepspeed: --share_gpu is for ranks on a GPU, and torch sees none. Leave it out.")
        os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    count = len(slots) if slots is not None else (options.num_gpus if options.num_gpus > 0 else max(1, gpus))
    result = [f"--nproc_per_node={count}", f"--nnodes={nodes}", f"--node_rank={rank}"]
    port = options.master_port or _port.DEFAULT_PORT
    if rank == 0:
        port, options.held_port = _port.meeting_port(options.master_port, nodes)
    result += [f"--master_addr={address}", f"--master_port={port}"]
    result += [f"--rdzv_id={options.run_id}"] if options.run_id else []
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
    if options.no_local_rank and not binds and not options.share_gpu:
        return [*(["--module"] if options.module else []), options.user_script, *options.user_args]
    flags = ["--no_local_rank"] if options.no_local_rank else []
    flags += ["--share_gpu"] if options.share_gpu else []
    if binds:
        cores = _hosts.parse_cores(options.bind_core_list) if options.bind_core_list else sorted(os.sched_getaffinity(0))
        each = len(cores) // count
        if each == 0:
            raise SystemExit(f"deepspeed: {len(cores)} cores are not enough for {count} ranks. Start fewer.")
        os.environ.setdefault("OMP_NUM_THREADS", str(each))
        flags.append("--cores=" + ",".join(str(core) for core in cores[: each * count]))
    return [str(_WRAPPER), *flags, *(["-m"] if options.module else []), options.user_script, *options.user_args]


def start_on_hosts(options: argparse.Namespace, chosen: _hosts.Hosts) -> int:
    """Starts ranks on the hosts by the launcher, and returns when all have ended; mpirun and srun take this process' place."""
    if options.share_gpu:
        raise SystemExit("deepspeed: --share_gpu is for the ranks of one host. Leave it out.")
    sent = _remote.environment_to_send(DEEPSPEED_ENVIRONMENT_NAME)
    logins = {host: _remote.ssh_words(options, host) for host in chosen}
    first, port = next(iter(chosen)), options.master_port or _port.DEFAULT_PORT
    if options.launcher in ("openmpi", "slurm"):
        _remote.refuse_for_mpi(options)
        program = "mpirun" if options.launcher == "openmpi" else "srun"
        if shutil.which(program) is None:
            raise SystemExit(f"deepspeed: --launcher {options.launcher} needs {program}, which is not in PATH. Use --launcher pdsh.")
        environment = os.environ | sent
        if program == "srun":
            own = {"MASTER_ADDR": options.master_addr, "MASTER_PORT": str(options.master_port or "")}
            environment |= {name: value for name, value in own.items() if value}
            words = _remote.srun_words(options, chosen)
        else:
            sent |= {"MASTER_ADDR": options.master_addr or first, "MASTER_PORT": str(port)}
            environment |= sent
            words = _remote.mpirun_words(options, chosen, sent)
        logger.info("deepspeed: " + shlex.join(words[: len(words) - len(options.user_args)]))
        os.execvpe(words[0], words, environment)
    if shutil.which("ssh") is None:
        raise SystemExit("deepspeed: hosts are logged into by ssh, which is not in PATH. Install it (openssh-client), or start the command "
                         "on each host with --no_ssh.")  # fmt: skip
    asked = {} if options.no_ssh_check else logins
    if not options.master_addr:
        asked = asked or {first: logins[first]}
    said = _ssh_loop.ask_all(asked, _remote.question())
    address = options.master_addr or next(iter(said[first].split()), "")
    if not address:
        raise SystemExit(f"deepspeed: `hostname -I` names no address of {first}. Give --master_addr, which all hosts can reach.")
    run_id = options.run_id or uuid.uuid4().hex[:12]
    logger.info(f"deepspeed: {len(chosen)} hosts, {sum(map(len, chosen.values()))} ranks; they meet at {address}:{port}, {first}")
    commands = {}
    for number, host in enumerate(chosen):
        words = _remote.words_of_host(options, chosen, number, address, run_id)
        commands[host] = [*logins[host], _remote.shell_line(words, sent, options.venv_script)]
    return _ssh_loop.SshLoop(commands, _remote.settings(sent)).wait()


def _run_here(command: list[str]) -> int:
    """torchrun, in this process; the exit code of the rank that failed first."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as run

    try:
        run(command)
    except ChildFailedError as error:
        print(error, file=sys.stderr, flush=True)
        code = error.get_first_failure()[1].exitcode
        return 128 - code if code < 0 else code or 1
    return 0


def _save_pid() -> Path:
    """The file with this process' id, where nobody else can put one: DeepSpeed's /tmp/<id>.deepspeed may be a link that another
    user planted."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(own) if own else Path.home() / ".cache" / "shoal"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / f"{os.getpid()}.deepspeed"
    path.unlink(missing_ok=True)  # of a process that was killed
    with open(path, "x", encoding="utf-8") as file:
        file.write(str(os.getpid()))
    return path


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    if not options.module and not options.no_python and not os.path.isfile(options.user_script):
        raise SystemExit(f"deepspeed: there is no script {options.user_script}. Give the path of a file.")
    logger.setLevel("ERROR" if options.quiet else options.log_level.upper())
    chosen = hosts_to_start(options)
    if chosen is not None:
        sys.exit(start_on_hosts(options, chosen))
    command = torchrun_arguments(options)
    pid_file = _save_pid() if options.save_pid else None
    try:
        code = _run_here(command)
    finally:
        if pid_file is not None:
            pid_file.unlink(missing_ok=True)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    sys.exit(main())

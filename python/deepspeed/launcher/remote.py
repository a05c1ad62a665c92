"""A start on several hosts, as words: what each host is told, what travels of the environment, and how mpirun and srun are
called. Decides only; ssh_loop.py and the runner start what it says."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Iterable

from deepspeed.launcher.hosts import Hosts

# Variables whose names begin so go to every host, as with DeepSpeed; the last two are ours.
TRAVELS = ("MLFLOW", "NCCL", "PYTHON", "MV2", "UCX", "SHOAL_", "GLOO_")
MPI_LAUNCHERS = {"mpich": "MPICH", "impi": "Intel MPI", "mvapich": "MVAPICH"}
_ON_HOST = str(Path(__file__).with_name("on_host.py"))  # by its path: the package would load torch for it
LAUNCHERS = ("pdsh", "ssh", "torchrun", "openmpi", "slurm")
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")  # of a variable, as a shell takes it


def read_environment_file(path: str) -> dict[str, str]:
    """NAME=value, a line each."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    found = {}
    for number, line in enumerate(lines, 1):
        name, equals, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not equals or not _NAME.fullmatch(name.strip()):
            raise SystemExit(f"deepspeed: {path}:{number} is {line!r}. Write NAME=value.")
        found[name.strip()] = value.strip()
    return found


def environment_to_send(file_name: str) -> dict[str, str]:
    """What every host is given: by the beginnings of names, then what the files of that name say, at home and here."""
    sent = {name: value for name, value in os.environ.items() if name.startswith(TRAVELS) and _NAME.fullmatch(name)}
    sent["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")]))
    for folder in (os.path.expanduser("~"), "."):
        path = os.path.join(folder, file_name)
        if os.path.isfile(path):
            sent.update(read_environment_file(path))
    return sent


def words_of_host(options: argparse.Namespace, chosen: Hosts, number: int, address: str, run_id: str) -> list[str]:
    """What the runner of one host is called with."""
    words = ["--no_ssh", f"--num_nodes={len(chosen)}", f"--node_rank={number}", f"--master_addr={address}", f"--run_id={run_id}"]
    words.append("--slots=" + ",".join(str(slot) for slot in list(chosen.values())[number]))
    if options.master_port is not None:
        words.append(f"--master_port={options.master_port}")
    for name in ("module", "no_python", "no_local_rank", "save_pid", "bind_cores_to_rank", "quiet"):
        words += [f"--{name}"] if getattr(options, name) else []
    for name in ("enable_each_rank_log", "bind_core_list", "log_level"):
        words += [f"--{name}={getattr(options, name)}"] if getattr(options, name) is not None else []
    return [*words, options.user_script, *options.user_args]


def settings(sent: dict[str, str]) -> bytes:
    """What is sent of the environment, as a shell reads it: on standard input, since arguments stand in `ps`."""
    return os.fsencode("".join(f"export {name}={shlex.quote(value)}\n" for name, value in sent.items()))


def shell_line(words: list[str], sent: dict[str, str], venv_script: str | None) -> str:
    """What the shell of a host runs: in this folder, with what is sent of the environment. It reads `settings` and no byte more:
    on_host.py reads what follows."""
    read = f'eval "$(head -c {len(settings(sent))})" && exec "$@"'
    line = f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(['sh', '-c', read, 'sh', sys.executable, '-u', _ON_HOST, *words])}"
    return f". {shlex.quote(venv_script)} && {line}" if venv_script else line


def question() -> str:
    """What each host is asked before anything starts: is this folder there, and this Python; and what addresses it has."""
    python = shlex.quote(sys.executable)
    return f"cd {shlex.quote(os.getcwd())} && {{ test -x {python} || {{ echo there is no {python} >&2; exit 1; }}; }} && hostname -I"


def ssh_words(options: argparse.Namespace, host: str) -> list[str]:
    """How a host is logged into: without asking for anything, and not hanging when it is cut off."""
    words = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=8"]
    words += ["-p", str(options.ssh_port)] if options.ssh_port is not None else []
    return [*words, *shlex.split(options.launcher_args), "--", host]


def _script(options: argparse.Namespace) -> list[str]:
    if options.no_python:
        return [options.user_script, *options.user_args]
    return [sys.executable, "-u", *(["-m"] if options.module else []), options.user_script, *options.user_args]


def _check_slots(launcher: str, chosen: Hosts) -> None:
    for host, slots in chosen.items():
        if slots != list(range(len(slots))):
            listed = ",".join(map(str, slots))
            raise SystemExit(f"deepspeed: --launcher {launcher} takes the first slots of a host, and {host} shall give {listed}. "
                             "Use --launcher pdsh.")  # fmt: skip


def refuse_for_mpi(options: argparse.Namespace) -> None:
    """What a start by mpirun or srun leaves to them."""
    for name in ("bind_cores_to_rank", "bind_core_list", "save_pid", "share_gpu", "venv_script"):
        if getattr(options, name):
            raise SystemExit(f"deepspeed: --{name} is not for --launcher {options.launcher}. Use --launcher pdsh.")
    if options.enable_each_rank_log not in ("None", ""):
        raise SystemExit(f"deepspeed: --enable_each_rank_log is not for --launcher {options.launcher}. Use its own, by --launcher_args.")


def mpirun_words(options: argparse.Namespace, chosen: Hosts, names: Iterable[str]) -> list[str]:
    """Open MPI's mpirun, which sends the variables of these names from its own environment: values would stand in the log and in
    `ps`. Ranks read where they stand from its variables."""
    _check_slots("openmpi", chosen)
    listed = ",".join(f"{host}:{len(slots)}" for host, slots in chosen.items())
    words = ["mpirun", "-n", str(sum(map(len, chosen.values()))), "--host", listed, "--bind-to", "none", "--wdir", os.getcwd()]
    if options.ssh_port is not None:
        words += ["--mca", "plm_rsh_args", f"-p {options.ssh_port}"]
    words += shlex.split(options.launcher_args)
    for name in names:
        words += ["-x", name]
    return [*words, *_script(options)]


def srun_words(options: argparse.Namespace, chosen: Hosts) -> list[str]:
    """srun, which sends its whole environment. The first host of its list is where ranks meet."""
    _check_slots("slurm", chosen)
    counts = set(map(len, chosen.values()))
    if len(counts) > 1:
        raise SystemExit(f"deepspeed: --launcher slurm needs as many slots on every host, and there are {sorted(counts)}. "
                         "Use --num_gpus.")  # fmt: skip
    words = ["srun", f"--nodes={len(chosen)}", f"--ntasks={len(chosen) * max(counts)}", f"--ntasks-per-node={max(counts)}"]
    words += [f"--nodelist={','.join(chosen)}", "--export=ALL", "--kill-on-bad-exit=1"]
    return [*words, *shlex.split(options.launcher_args), *_script(options)]

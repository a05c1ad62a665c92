"""The process that the ranks of a test file are forked from: what they import is imported once, not once a rank and run.

ranks.py starts it and writes jobs to it, a line of JSON each; the answer to each is a line with the ranks' exit codes. Ranks
get torchrun's environment, and a store that is served by a process of its own, as torchrun serves it. A rank leaves main()
and ends as any Python program does, exit handlers and all, but for torch (ending.py).
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import ending  # before torch

GRACE_SECONDS = 30  # for the others to end by themselves, once a rank has failed


def serve_store() -> tuple[int, int]:
    """The process that serves a store, and the port that the system chose for it."""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(writing, f"{store.port}\n".encode())
        while True:
            signal.pause()
    os.close(writing)
    with os.fdopen(reading) as said:
        return process, int(said.readline())


def become_rank(rank: int, job: dict[str, Any], port: int) -> None:
    world = job["world"]
    own = {
        "RANK": rank, "LOCAL_RANK": rank, "ROLE_RANK": rank, "GROUP_RANK": 0, "ROLE_NAME": "default",
        "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "ROLE_WORLD_SIZE": world, "GROUP_WORLD_SIZE": 1,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True,
        "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0,
    }  # fmt: skip
    os.environ.clear()
    os.environ.update(job["environment"])
    os.environ.update({name: str(value) for name, value in own.items()})
    output = os.open(Path(job["folder"], f"{rank}.output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)


def wait_for(ranks: list[int], limit_seconds: float) -> list[int]:
    """The exit code of each. Who outlives the limit, or a rank that failed by long, is killed."""
    codes: dict[int, int] = {}
    deadline = time.monotonic() + limit_seconds
    while len(codes) < len(ranks):
        for process in set(ranks) - set(codes):
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                codes[process] = os.waitstatus_to_exitcode(status)
                if codes[process] != 0:
                    deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
            elif time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
        time.sleep(0.005)
    return [codes[process] for process in ranks]


def start_ranks(job: dict[str, Any]) -> tuple[int | None, list[int]]:
    """In a rank: its number. In the nursery: None, and the exit codes when all have ended."""
    import torch

    store, port = serve_store()
    ranks = []
    for rank in range(job["world"]):
        process = os.fork()
        if process == 0:
            become_rank(rank, job, port)
            # After a fork torch makes its thread pool anew when a thread first sets the number of threads, which autograd's own all do as
            # they start: two at a time, and one finds no pool and aborts the process.
            torch.set_num_threads(1)
            return rank, []
        ranks.append(process)
    codes = wait_for(ranks, job["limit_seconds"])
    os.kill(store, signal.SIGKILL)
    os.waitpid(store, 0)
    return None, codes


def load(file: str) -> Any:
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location("tests_of_ranks", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def play_rank(module: Any, job: dict[str, Any]) -> None:
    import torch

    result = getattr(module, job["name"])(**job["arguments"])
    Path(job["folder"], f"{os.environ['RANK']}.json").write_text(json.dumps(result))
    if "deepspeed" not in sys.modules and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # torch's own threads may abort a process that ends without it


def serve(file: str, imports: list[str]) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an import prints is no answer
    for name in ["torch._dynamo", *imports]:  # the first: what torch.optim imports when an optimizer is made, seconds of it
        importlib.import_module(name)
    ending.spare_what_is_loaded()
    module = load(file)
    while line := sys.stdin.readline():
        job = json.loads(line)
        rank, codes = start_ranks(job)
        if rank is not None:
            return play_rank(module, job)
        print(json.dumps(codes), file=answers, flush=True)


def main() -> None:
    import torch

    torch.set_num_threads(1)
    if sys.argv[1] == "--rank":  # torchrun started it
        play_rank(load(sys.argv[2]), json.loads(sys.argv[3]))
    else:
        serve(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    main()

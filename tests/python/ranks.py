"""Runs functions of a test file as ranks, and brings back what they return.

A test file calls `run("name", world, **arguments)`; its ranks know the file and call the function `name`. They are forks of
one process, nursery.py; where they may see a GPU, which a fork cannot use once it was looked for, torchrun starts them.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, Callable

LIMIT_SECONDS = 600
OWN_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONFAULTHANDLER": "1"}


class Skipped(Exception):
    """A test that cannot run here, with the reason."""


_nurseries: dict[str, subprocess.Popen] = {}
_imports: list[str] = []


def run(file: str, name: str, world: int, **arguments: Any) -> list[Any]:
    """What `name(**arguments)` of the file returned on each rank. Raises with the output when a rank failed."""
    with tempfile.TemporaryDirectory() as folder:
        job = {"name": name, "arguments": arguments, "world": world, "folder": folder, "limit_seconds": LIMIT_SECONDS}
        sees_gpu = Path("/dev/nvidiactl").exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != ""
        codes, output = (_under_torchrun if sees_gpu else _in_nursery)(file, job)
        if any(codes):
            raise AssertionError(f"{name}{arguments} failed on {world} ranks, which ended with {codes}:\n{output}")
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)]


def _in_nursery(file: str, job: dict[str, Any]) -> tuple[list[int], str]:
    if file not in _nurseries:
        program = [str(Path(__file__).with_name("warm.py")), "run", str(Path(__file__).with_name("nursery.py")), file, *_imports]
        environment = os.environ | OWN_ENVIRONMENT
        _nurseries[file] = subprocess.Popen(
            [sys.executable, *program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
    nursery = _nurseries[file]
    nursery.stdin.write(json.dumps(job | {"environment": os.environ | OWN_ENVIRONMENT}) + "\n")
    answer = nursery.stdout.readline()
    if not answer:
        raise AssertionError(f"the nursery of {file} ended with {nursery.wait()}")
    outputs = [Path(job["folder"], f"{rank}.output").read_text() for rank in range(job["world"])]
    return json.loads(answer), "\n".join(f"--- rank {rank}:\n{_ends_of(text)}" for rank, text in enumerate(outputs))


def _ends_of(text: str) -> str:
    """How it begins, where a process that aborts says why, and how it ends."""
    return text if len(text) <= 9000 else f"{text[:4000]}\n[...]\n{text[-5000:]}"


def _under_torchrun(file: str, job: dict[str, Any]) -> tuple[list[int], str]:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={job['world']}", "--standalone"]
    command += [str(Path(__file__).with_name("nursery.py")), "--rank", file, json.dumps(job)]
    done = subprocess.run(command, env=os.environ | OWN_ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    return [done.returncode], _ends_of(done.stdout + done.stderr)


def whole() -> bool:
    """Whether every combination of a grid is to run, as `make grids` asks, or the part that `make test` has time for."""
    return os.environ.get("SHOAL_TEST_SIZE") == "whole"


def message(call: Callable[[], Any]) -> str:
    """What the error says that a call raises."""
    try:
        call()
    except RuntimeError as error:  # shoal.Error is one
        return str(error)
    return "nothing was raised"


def free_port() -> int:
    """A port that was free a moment ago, below those that the system gives to sockets that ask for none: only another test
    could take it before it is used, and tests begin to look at places of their own."""
    for attempt in range(20000):
        with socket.socket() as probe:
            try:
                probe.bind(("", 12000 + (os.getpid() * 7919 + attempt) % 20000))
            except OSError:
                continue
            return probe.getsockname()[1]
    raise AssertionError("no port is free")


def main(tests: dict[str, Any], imports: tuple[str, ...] = ()) -> None:
    """Runs the functions of a test file whose names begin with test_; the exit code says whether all passed; 77: all were skipped. `imports`:
    modules that its ranks need and that take their time."""
    _imports[:] = imports
    chosen = sys.argv[1:]
    failed = skipped = ran = 0
    for name, test in list(tests.items()):
        if not name.startswith("test_") or (chosen and name not in chosen):
            continue
        begin = time.monotonic()
        ran += 1
        try:
            test()
            print(f"passed {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Skipped as reason:
            skipped += 1
            print(f"SKIPPED {name}: {reason}", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
        except Exception:  # noqa: BLE001
            failed += 1
            print(f"FAILED {name}: {traceback.format_exc()}", flush=True)
    for nursery in _nurseries.values():
        nursery.stdin.close()
        nursery.wait()
    sys.exit(1 if failed else 77 if skipped and skipped == ran else 0)

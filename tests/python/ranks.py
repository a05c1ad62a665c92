"""Runs functions of a test file as ranks under torchrun, and brings back what they return.

A test file calls `run("name", world, **arguments)`; its ranks import the file and call the function `name`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

LIMIT_SECONDS = 600


def run(file: str, name: str, world: int, **arguments: Any) -> list[Any]:
    """What `name(**arguments)` of the file returned on each rank. Raises with the output when a rank failed."""
    with tempfile.TemporaryDirectory() as folder:
        job = {"file": file, "name": name, "arguments": arguments, "folder": folder}
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={world}", "--standalone"]
        command += [__file__, json.dumps(job)]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONFAULTHANDLER": "1"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_SECONDS)
        if done.returncode != 0:
            raise AssertionError(f"{name}{arguments} failed on {world} ranks:\n{done.stdout[-4000:]}\n{done.stderr[-8000:]}")
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(world)]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main(tests: dict[str, Any]) -> None:
    """Runs the functions of a test file whose names begin with test_; the exit code says whether all passed."""
    chosen = sys.argv[1:]
    failed = 0
    for name, test in list(tests.items()):
        if not name.startswith("test_") or (chosen and name not in chosen):
            continue
        begin = time.monotonic()
        try:
            test()
            print(f"passed {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except AssertionError as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
        except Exception:  # noqa: BLE001
            failed += 1
            print(f"FAILED {name}: {traceback.format_exc()}", flush=True)
    sys.exit(1 if failed else 0)


def _play_rank() -> None:
    job = json.loads(sys.argv[1])
    import torch

    torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).parent))
    spec = importlib.util.spec_from_file_location("tests_of_ranks", job["file"])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    result = getattr(module, job["name"])(**job["arguments"])
    Path(job["folder"], f"{os.environ['RANK']}.json").write_text(json.dumps(result))
    if "deepspeed" not in sys.modules and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # torch's own threads may abort a process that ends without it


if __name__ == "__main__":
    _play_rank()

"""The two packages named deepspeed, and how a job is run under one or the other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
RANK = HERE / "rank.py"
ROOT = HERE.parent.parent
METADATA = ROOT / "build" / "dev" / "python_metadata"  # by which accelerate finds our distribution; the build makes it
OURS = f"{ROOT / 'python'}:{METADATA}"
ABORT = "terminate called without an active exception"  # threads of its own, now and then
LIMIT_SECONDS = 1800  # the real package compiles on its first runs


class Sides:
    """Runs jobs under one package or the other."""

    def __init__(self, real: str, folder: Path):
        if not METADATA.is_dir():
            raise SystemExit(f"{METADATA} is not there: run `make build` first")
        self.real = real
        self.folder = folder
        self.count = 0

    def environment(self, side: str) -> dict[str, str]:
        base = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        base |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "DS_ACCELERATOR": "cpu"}
        return base | ({"PYTHONPATH": OURS} if side == "ours" else {})

    def python(self, side: str) -> str:
        return sys.executable if side == "ours" else self.real

    def call(self, side: str, *arguments: str, again: int = 3) -> str:
        command = [self.python(side), *arguments]
        try:
            done = subprocess.run(command, env=self.environment(side), capture_output=True, text=True, timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"{side} took more than {LIMIT_SECONDS} s: {' '.join(arguments)[:200]}") from error
        aborted = ABORT in done.stderr and "Traceback" not in done.stderr.split(ABORT)[0]
        if done.returncode != 0 and side == "real" and again and aborted:
            print(f"note   real aborted without an exception, and is started again: {' '.join(arguments)[:120]}", flush=True)
            return self.call(side, *arguments, again=again - 1)
        if done.returncode != 0:
            own = done.stderr.split("torch/distributed/elastic/multiprocessing/api.py")[0]  # torchrun's own trace follows
            raise RuntimeError(f"{side} {' '.join(arguments)[:200]}\n{done.stdout[-1500:]}\n{own[-3000:]}")
        return done.stdout

    def train(self, side: str, world: int, **job: object) -> dict:
        self.count += 1
        out = self.folder / f"result{self.count}.pt"
        text = json.dumps(job | {"out": str(out)})
        launch = ["-m", "torch.distributed.run", f"--nproc_per_node={world}", "--standalone", str(RANK), text]
        self.call(side, *launch)
        return torch.load(out, weights_only=False)

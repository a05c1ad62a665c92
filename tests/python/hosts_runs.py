"""Training across the hosts of a lab, for tests: `shoal train` on a model that trains in a blink, and the losses it leaves."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from hosts_lab import Absent, Lab

ROOT = Path(__file__).resolve().parents[2]
MODEL = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 64, "n_embd": 32, "n_layer": 2, "n_head": 4,
         "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1}  # fmt: skip
QUIET = {"OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR", "CUDA_VISIBLE_DEVICES": "", "PYTHONWARNINGS": "ignore"}


def shoal_command() -> str:
    command = os.environ.get("SHOAL_COMMAND", str(ROOT / "build/dev/apps/cli/shoal"))
    if not os.path.exists(command):
        raise Absent(f"no {command}: build shoal, or name it in SHOAL_COMMAND")
    return command


def train_words(lab: Lab, out: str, steps: int = 3, *more: str) -> list[str]:
    """`shoal train` with stage 3 on four samples a step for each of at most four ranks."""
    (lab.folder / "model").mkdir(exist_ok=True)
    (lab.folder / "model/config.json").write_text(json.dumps(MODEL))
    words = ["train", "--model", str(lab.folder / "model"), "--data", "synthetic:tokens=1450", "--sequence", "32", "--threads", "1"]
    words += ["--log-every", "1", "--lr", "0.01", "--steps", str(steps), "--no-final-save", "--out", str(lab.folder / out)]
    for setting in ("train_batch_size=8", "zero_optimization.stage=3"):
        words += ["--set", setting]
    return [shoal_command(), *words, *more]


def losses(lab: Lab, out: str) -> list[str]:
    """As the characters that stand in the run's metrics."""
    return re.findall(r'"loss": ([^,}]+)', (lab.folder / out / "metrics.jsonl").read_text())


def losses_on_one_host(lab: Lab, ranks: int, steps: int = 3) -> list[str]:
    done = lab.start(0, [*train_words(lab, f"alone{ranks}", steps), "--ranks", str(ranks)], **QUIET)
    assert done.wait() == 0, done.output()
    return losses(lab, f"alone{ranks}")

"""`shoal train --log tensorboard,csv`: the command's own event files, read by the real tensorboard, and its CSV files, of a run of
2 ranks that is stopped and goes on. Skipped where tensorboard is not installed: tools/setup.sh monitors.

    train_log_test.py <shoal>
"""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / ".venv-monitors"))

SAMPLES = "Train/Samples/"


def train(shoal: str, folder: str, *more: str, status: int = 0) -> str:
    command = [shoal, "train", "--model", "llama-tiny", "--data", "synthetic:tokens=20000", "--sequence", "16", "--steps", "6"]
    command += ["--ranks", "2", "--threads", "1", "--device", "cpu", "--out", folder, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def metrics(folder: str) -> dict[int, dict]:
    """By samples."""
    lines = [json.loads(line) for line in Path(folder, "metrics.jsonl").read_text().splitlines()]
    return {line["tokens"] // 16: line for line in lines}


def scalars(folder: str) -> dict[str, list[tuple[int, float]]]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(folder).Reload()
    return {name: [(each.step, each.value) for each in events.Scalars(name)] for name in events.Tags()["scalars"]}


def rows(folder: str, name: str) -> list[tuple[int, float]]:
    with open(Path(folder, "csv", f"{name.replace('/', '_')}.csv"), newline="") as file:
        header, *found = csv.reader(file)
    assert header == ["step", name.split("/")[-1]], header
    return [(int(step), float(value)) for step, value in found]


def same(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> bool:
    """Event files hold fp32."""
    return [step for step, _ in found] == [step for step, _ in expected] and all(
        math.isclose(a, b, rel_tol=1e-6) for (_, a), (_, b) in zip(found, expected)
    )


def test_a_run_that_is_stopped_and_goes_on(shoal: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = ("--log", "tensorboard,csv", "--eval-every", "3", "--save-every", "2")
        train(shoal, folder, *log, "--stop-at", "5")
        shutil.rmtree(Path(folder, "checkpoints", "step-00000005"))  # it goes on from step 4, and takes 5 again
        train(shoal, folder, *log, "--resume", "auto")
        told = metrics(folder)
        assert len(told) == 6
        events = scalars(os.path.join(folder, "tensorboard"))
        assert len(list(Path(folder, "tensorboard").iterdir())) == 2, "a file of its own for each start"
        for name, key in (("train_loss", "loss"), ("lr", "lr"), ("grad_norm", "grad_norm")):
            expected = [(samples, line[key]) for samples, line in told.items()]
            assert same(events[SAMPLES + name], expected), (name, events[SAMPLES + name], expected)
            assert rows(folder, SAMPLES + name) == expected, name
        assert SAMPLES + "loss_scale" not in events
        evaluated = [json.loads(line) for line in Path(folder, "eval.jsonl").read_text().splitlines()]
        assert [value for _, value in rows(folder, "Validation/Samples/loss")] == [line["loss"] for line in evaluated]


def test_what_cannot_be_is_said_before_ranks_start(shoal: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert "[--log] wandb is a Python package" in train(shoal, folder, "--log", "wandb", status=2)
        assert "Did you mean tensorboard?" in train(shoal, folder, "--log", "tensorbord", status=2)
        assert "[config wandb]" in train(shoal, folder, "--set", "wandb.enabled=true", status=2)
        assert not Path(folder, "metrics.jsonl").exists()


def main() -> None:
    shoal = sys.argv[1]
    test_what_cannot_be_is_said_before_ranks_start(shoal)
    if importlib.util.find_spec("tensorboard") is None:
        print("SKIPPED: tensorboard is not installed. Run tools/setup.sh monitors.")
        sys.exit(77)
    test_a_run_that_is_stopped_and_goes_on(shoal)
    print("passed")


if __name__ == "__main__":
    main()

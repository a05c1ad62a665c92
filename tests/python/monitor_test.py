"""Monitors by DeepSpeed's keys: which names, steps and values are written, by which rank, and what happens when they cannot be.
What needs the packages tensorboard and wandb is skipped by name where they are not installed: tools/setup.sh monitors."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import logging
import math
import os
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[2] / ".venv-monitors"))
from ranks import main, message, run

SAMPLES = "Train/Samples/"


def config(folder: str, **others) -> dict:
    base = {"train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "Adam", "params": {"lr": 0.01}}}
    return base | {"csv_monitor": {"enabled": True, "output_path": folder, "job_name": "job"}} | others


def rows(folder: str, name: str) -> list[list[str]]:
    with open(Path(folder, "job", f"{name.replace('/', '_')}.csv"), newline="") as file:
        return list(csv.reader(file))


def heard_by_logger(action) -> list[str]:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())
    logging.getLogger("DeepSpeed").addHandler(handler)
    try:
        action()
    finally:
        logging.getLogger("DeepSpeed").removeHandler(handler)
    return heard


def train(engine, micro_steps: int, seed: int = 0) -> list[float]:
    generator = torch.Generator().manual_seed(seed + 97 * int(os.environ.get("RANK", 0)))
    found = []
    for _ in range(micro_steps):
        loss = engine(torch.randn(2, 4, generator=generator)).pow(2).mean()
        engine.backward(loss)
        engine.step()
        found.append(loss.item())
    return found


def made(settings: dict):
    import deepspeed

    torch.manual_seed(0)
    return deepspeed.initialize(model=nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), config=settings)[0]


def two_ranks(folder: str, stage: int) -> dict:
    """Three steps of two micro-steps, a save, and two more by an engine that resumes."""
    own = Path(folder, os.environ["RANK"])  # what a rank writes lies in a folder of its own
    settings = config(str(own), gradient_accumulation_steps=2, zero_optimization={"stage": stage})
    engine = made(settings)
    losses = train(engine, 6)
    engine.save_checkpoint(os.path.join(folder, "saved"))
    engine.destroy()
    engine = made(settings)
    engine.load_checkpoint(os.path.join(folder, "saved"))
    losses += train(engine, 4, seed=1)
    return {"losses": losses, "wrote": own.exists(), "monitors": engine.monitor.csv_monitor is not None}


def test_two_ranks_write_once_and_a_resumed_run_goes_on():
    for stage in (1, 3):
        with tempfile.TemporaryDirectory() as folder:
            found = run(__file__, "two_ranks", 2, folder=folder, stage=stage)
            assert [each["wrote"] for each in found] == [True, False] == [each["monitors"] for each in found]
            mine = os.path.join(folder, "0")
            header, *losses = rows(mine, SAMPLES + "train_loss")
            assert header == ["step", "train_loss"], "and no second header where the run resumed"
            assert [int(step) for step, _ in losses] == [8, 16, 24, 32, 40], "samples of all ranks, this step's with them"
            expected = [sum(found[0]["losses"][at : at + 2]) / 2 for at in range(0, 10, 2)]
            assert all(math.isclose(float(value), each, rel_tol=1e-6) for (_, value), each in zip(losses, expected)), (losses, expected)
            assert [value for _, value in rows(mine, SAMPLES + "lr")[1:]] == ["0.01"] * 5
            assert not Path(mine, "job", "Train_Samples_loss_scale.csv").exists(), "in fp16 alone"


def test_files_have_the_form_of_the_real_csv_monitor():
    """The bytes that csvMonitor of DeepSpeed 0.19.8 wrote for these events."""
    from deepspeed.monitor.config import get_monitor_config
    from deepspeed.monitor.monitor import MonitorMaster

    events = [("Train/Samples/lr", 0.001, 8), ("Train/Samples/lr", 1e-05, 16), ("loss scale", 65536, 8), ("a/b c/d", float("nan"), 3)]
    with tempfile.TemporaryDirectory() as folder:
        monitor = MonitorMaster(get_monitor_config({"csv_monitor": {"enabled": True, "output_path": folder, "job_name": "job"}}))
        assert monitor.enabled
        monitor.write_events(events)
        monitor.write_events([("Train/Samples/lr", torch.tensor(0.5), 24)])
        found = {path.name: path.read_bytes() for path in Path(folder, "job").iterdir()}
    assert found == {
        "Train_Samples_lr.csv": b"step,lr\r\n8,0.001\r\n16,1e-05\r\n24,tensor(0.5000)\r\n",
        "loss_scale.csv": b"step,loss scale\r\n8,65536\r\n",
        "a_b_c_d.csv": b"step,d\r\n3,nan\r\n",
    }, found


def test_fp16_has_a_loss_scale_and_a_skipped_step_is_written():
    with tempfile.TemporaryDirectory() as folder:
        engine = made(config(folder, fp16={"enabled": True, "initial_scale_power": 8, "hysteresis": 1}))
        for factor in (1.0, float("inf"), 1.0):
            engine.backward(engine(torch.ones(2, 4, dtype=torch.float16)).float().pow(2).mean() * factor)
            engine.step()
        assert engine.skipped_steps == 1
        scales = rows(folder, SAMPLES + "loss_scale")[1:]
        assert [(int(step), float(scale)) for step, scale in scales] == [(2, 256), (4, 128), (6, 128)]
        losses = [float(value) for _, value in rows(folder, SAMPLES + "train_loss")[1:]]
        assert math.isinf(losses[1]) and math.isfinite(losses[0]) and math.isfinite(losses[2])
        engine.destroy()


def test_wall_clock_breakdown_writes_and_prints_the_times():
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()) as printed:
        engine = made(config(folder, gradient_accumulation_steps=2, wall_clock_breakdown=True))
        train(engine, 4)
        names = [f"elapsed_time_ms_{part}" for part in ("forward", "backward", "backward_inner", "backward_allreduce", "step")]
        for name in names:
            header, *values = rows(folder, SAMPLES + name)
            assert header == ["step", name] and [int(step) for step, _ in values] == [4, 8], values
            assert all(float(value) >= 0 for _, value in values)
        parts = ("fwd", "bwd", "bwd_inner", "bwd_allreduce", "step")
        assert set(engine.get_wall_clock_timers()) == {*parts, *(f"{part}_microstep" for part in parts)}
        engine.destroy()
    lines = [line for line in printed.getvalue().splitlines() if "time (ms)" in line]
    assert len(lines) == 6, lines  # of four micro-steps and two steps
    assert lines[0].startswith("[Rank 0] time (ms) | fwd_microstep: ") and " | bwd_allreduce_microstep: " in lines[0], lines
    assert lines[2].startswith("[Rank 0] time (ms) | fwd: ") and lines[2].count("|") == 5, lines


def test_steps_per_print_says_what_deepspeed_says():
    with tempfile.TemporaryDirectory() as folder:
        engine = made(config(folder, steps_per_print=2))
        heard = heard_by_logger(lambda: train(engine, 5))
        progress = [line for line in heard if "skipped=" in line]
        assert len(progress) == 2 and "step=2, skipped=0, lr=[0.01], mom=[(0.9, 0.999)]" in progress[0], heard
        assert len([line for line in heard if "RunningAvgSamplesPerSec=" in line and "global_step=4" in line]) == 1, heard
        engine.destroy()
        engine = made(config(folder, steps_per_print=float("inf")))
        assert not [line for line in heard_by_logger(lambda: train(engine, 2)) if "skipped=" in line]
        engine.destroy()


def test_memory_breakdown_and_dump_state_are_told():
    with tempfile.TemporaryDirectory() as folder:
        holder = SimpleNamespace()
        heard = heard_by_logger(lambda: setattr(holder, "engine", made(config(folder, dump_state=True, memory_breakdown=True))))
        assert any("as Shoal reads it" in line and '"stage": 0' in line for line in heard), heard
        heard = heard_by_logger(lambda: train(holder.engine, 1))
        for place in ("before forward", "after forward", "before backward", "after backward", "before step", "after step"):
            assert len([line for line in heard if line.startswith(f"Engine {place}: ")]) == 1, (place, heard)
        assert holder.engine.dump_state() and holder.engine.memory_breakdown()
        holder.engine.destroy()


def test_a_monitor_that_cannot_write_says_so_once_and_training_goes_on():
    with tempfile.TemporaryDirectory() as folder:
        engine = made(config(folder))
        train(engine, 1)
        for path in Path(folder, "job").iterdir():
            path.unlink()
        Path(folder, "job").rmdir()
        heard = [line for line in heard_by_logger(lambda: train(engine, 3)) if "[monitor" in line]
        assert len(heard) == 1 and "[monitor csv_monitor] could not write: " in heard[0] and "Training goes on" in heard[0], heard
        assert engine.global_steps == 4
        Path(folder, "job").mkdir()
        train(engine, 1)
        assert [int(step) for step, _ in rows(folder, SAMPLES + "lr")[1:]] == [10], "it goes on when it can"
        engine.destroy()


def refused(folder: str) -> dict:
    """Rank 0 alone cannot; every rank says why."""
    from deepspeed.monitor import utils

    blocked = Path(folder, "file")
    if os.environ["RANK"] == "0":
        blocked.write_text("no folder")
    found = {"path": message(lambda: made(config(str(blocked / "logs"))))}
    find = importlib.util.find_spec
    if os.environ["RANK"] == "0":  # its host alone has not the package
        utils.importlib.util.find_spec = lambda name: None if name in ("tensorboard", "wandb") else find(name)
    found["package"] = message(lambda: made(config(folder, tensorboard={"enabled": True})))
    utils.importlib.util.find_spec = find
    found["comet"] = message(lambda: made(config(folder, comet={"enabled": True})))
    found["mlflow"] = message(lambda: made(config(folder, mlflow={"enabled": True})))
    engine = made(config(folder))  # nothing is left of those
    found["losses"] = train(engine, 1)
    return found


def test_what_rank_0_cannot_do_is_one_sentence_on_every_rank():
    with tempfile.TemporaryDirectory() as folder:
        for found in run(__file__, "refused", 2, folder=folder):
            assert found["path"].startswith("[config csv_monitor] ") and "Give another output_path." in found["path"], found
            assert found["package"].startswith("[config tensorboard] the package tensorboard is not installed."), found
            assert "\n" not in found["package"] and "pip install tensorboard" in found["package"]
            for name in ("comet", "mlflow"):
                assert "Use wandb, tensorboard or csv_monitor" in found[name], found


def test_events_of_the_scripts_own_go_beside_the_engines():
    with tempfile.TemporaryDirectory() as folder:
        engine = made(config(folder))
        train(engine, 1)
        engine.monitor.write_events([("my/accuracy", 0.5, engine.global_samples)])
        assert rows(folder, "my/accuracy") == [["step", "accuracy"], ["2", "0.5"]]
        assert engine.summary_events[-1][0] == SAMPLES + "lr"
        engine.destroy()


def skipped_without(package: str) -> bool:
    if importlib.util.find_spec(package) is not None:
        return False
    print(f"SKIPPED: {package} is not installed. Run tools/setup.sh monitors.")
    return True


def test_tensorboard_reads_what_was_written():
    if skipped_without("tensorboard"):
        return
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tempfile.TemporaryDirectory() as folder:
        settings = config(folder, tensorboard={"enabled": True, "output_path": folder, "job_name": "tb"})
        first = made(settings)
        losses = train(first, 2)
        first.destroy()
        second = made(settings)
        second.global_samples = 4  # as after load_checkpoint
        losses += train(second, 1, seed=1)
        assert second.monitor.tb_monitor.summary_writer is not None
        second.destroy()
        events = EventAccumulator(os.path.join(folder, "tb")).Reload()
        assert set(events.Tags()["scalars"]) == {SAMPLES + "train_loss", SAMPLES + "lr"}
        found = events.Scalars(SAMPLES + "train_loss")
        assert [each.step for each in found] == [2, 4, 6]
        assert all(math.isclose(each.value, loss, rel_tol=1e-6) for each, loss in zip(found, losses))


def wandb_history(folder: str) -> list[tuple[int, str, float]]:
    """What an offline run wrote: steps, names and numbers. The file is a log of LevelDB's format: blocks of 32 KiB of pieces, each
    with checksum, length and kind (whole, first, middle, last), behind 7 bytes of its own."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = Path(folder, "wandb").glob("offline-run-*/run-*.wandb")
    data, at, whole, found = path.read_bytes(), 7, b"", []
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            items = {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in Record.FromString(whole).history.item}
            found += [(items["_step"], name, value) for name, value in items.items() if not name.startswith("_")]
            whole = b""
    return found


def test_wandb_offline_has_the_same_numbers():
    if skipped_without("wandb"):
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": folder, "WANDB_SILENT": "true"}
        engine = made(config(folder, wandb={"enabled": True, "project": "shoal", "group": "g"}))
        losses = train(engine, 2)
        import wandb

        assert wandb.run.project == "shoal" and wandb.run.group == "g"
        wandb.teardown()  # ends the process that writes the file
        found = {(step, name): value for step, name, value in wandb_history(folder)}
        assert set(found) == {(step, SAMPLES + name) for step in (2, 4) for name in ("train_loss", "lr")}, found
        for step, loss in zip((2, 4), losses):
            assert math.isclose(found[step, SAMPLES + "train_loss"], loss, rel_tol=1e-6) and found[step, SAMPLES + "lr"] == 0.01
        engine.destroy()


if __name__ == "__main__":
    main(globals(), imports=("deepspeed",))

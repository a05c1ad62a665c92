"""The files of a checkpoint in DeepSpeed's layout, and writing them so that a half is never seen under its name."""

from __future__ import annotations

import os
import re
from typing import Any

import torch


def model_file(folder: str, stage: int, rank: int) -> str:
    name = f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt" if stage == 3 else "mp_rank_00_model_states.pt"
    return os.path.join(folder, name)


def optimizer_file(folder: str, bf16: bool, rank: int) -> str:
    return os.path.join(folder, f"{'bf16_' if bf16 else ''}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def find_optimizer_files(folder: str) -> list[str]:
    """One file a rank, in the order of ranks."""
    for bf16 in (True, False):
        files = []
        while os.path.exists(optimizer_file(folder, bf16, len(files))):
            files.append(optimizer_file(folder, bf16, len(files)))
        if files:
            return files
    return []


def find_model_files(folder: str) -> list[str]:
    """One file a rank at stage 3, one in all below."""
    files = []
    while os.path.exists(model_file(folder, 3, len(files))):
        files.append(model_file(folder, 3, len(files)))
    single = model_file(folder, 0, 0)
    return files or ([single] if os.path.exists(single) else [])


_STATES = re.compile(r"(?P<bf16>bf16_)?zero_pp_rank_(?P<rank>\d+)_mp_rank_00_(?P<what>model|optim)_states\.pt$")


def remove_stale(folder: str, stage: int, bf16: bool, ranks: int) -> None:
    """Removes files of states that `ranks` ranks at this stage do not write."""
    for name in os.listdir(folder):
        match = _STATES.match(name)
        if match is None:
            stale = name == "mp_rank_00_model_states.pt" and stage == 3
        elif match["what"] == "model":
            stale = stage != 3 or int(match["rank"]) >= ranks
        else:
            stale = stage == 0 or bool(match["bf16"]) != bf16 or int(match["rank"]) >= ranks
        if stale:
            os.remove(os.path.join(folder, name))


def read(path: str) -> Any:
    """Pickles of DeepSpeed: load only what you trust."""
    return torch.load(path, map_location="cpu", weights_only=False, mmap=True)


def write(path: str, value: Any) -> None:
    torch.save(value, path + ".part")
    with open(path + ".part", "rb") as file:
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def write_text(path: str, text: str) -> None:
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".part", path)


def read_latest(folder: str, universal: bool = False) -> str | None:
    try:
        name = "latest_universal" if universal else "latest"
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


_SCRIPT = '''#!/usr/bin/env python
"""Whole fp32 weights from this checkpoint: zero_to_fp32.py <this folder> <output folder> [--safe_serialization] ..."""

import runpy

runpy.run_module("deepspeed.utils.zero_to_fp32", run_name="__main__")
'''


def write_script(folder: str) -> None:
    """zero_to_fp32.py, beside `latest`, where DeepSpeed puts its own."""
    path = os.path.join(folder, "zero_to_fp32.py")
    write_text(path, _SCRIPT)
    os.chmod(path, 0o755)

"""The files of a checkpoint in DeepSpeed's layout: their names, reading and writing them."""

from __future__ import annotations

import os
import pickle
import re
from typing import Any, NamedTuple

import torch

from shoal import Error, durable

from deepspeed.runtime import checkpoint_list as lists


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


class StateFile(NamedTuple):
    """A file of states by its name."""

    name: str
    is_model: bool
    rank: int | None  # None: of all ranks
    bf16: bool = False


def state_file(name: str) -> StateFile | None:
    """None: the name is of no file of states."""
    if name == os.path.basename(model_file("", 0, 0)):
        return StateFile(name, True, None)
    match = _STATES.match(name)
    return StateFile(name, match["what"] == "model", int(match["rank"]), bool(match["bf16"])) if match is not None else None


def state_files(folder: str) -> list[StateFile]:
    """All that are there, gaps between ranks or not."""
    return [found for name in sorted(os.listdir(folder)) if (found := state_file(name)) is not None]


def is_of_a_save(name: str) -> bool:
    """Whether a save writes it, or ds_to_universal does: another save under the tag takes it away."""
    return state_file(name) is not None or name in (lists.NAME, "zero") or name.endswith(".pt.part")


TRUST = "SHOAL_TRUST_CHECKPOINTS"


def read(path: str) -> Any:
    """A file of states. Its pickle may hold tensors, plain values and the classes that DeepSpeed itself puts there; anything else could
    run code while it is read, and is refused unless the environment has TRUST=1, or torch.serialization.add_safe_globals named it."""
    durable.check_regular(path, "load_checkpoint")
    if os.environ.get(TRUST) == "1":
        return torch.load(path, map_location="cpu", weights_only=False, mmap=True)
    try:
        with torch.serialization.safe_globals(_own_classes()):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        held = f"an object of {named[1]}" if named is not None else "objects beside tensors and plain values"
        raise Error(
            f"[load_checkpoint] {path} holds {held}, and to read such an object may run code of whoever wrote the file. If you trust it, "
            f"allow the class by torch.serialization.add_safe_globals, or set {TRUST}=1 in the environment."
        ) from error


def _own_classes() -> list[Any]:
    """What a DeepSpeed writes into its files beside tensors and plain values, and we too."""
    from deepspeed.runtime.fp16 import loss_scaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return [loss_scaler.LossScaler, loss_scaler.DynamicLossScaler, ZeroStageEnum, fragment_address]


def write(path: str, value: Any) -> None:
    """In the place of what stands there, in one step."""
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.tmp-{os.urandom(9).hex()}")

    def undo() -> None:
        if os.path.exists(temporary):
            os.remove(temporary)

    with durable.undone_on_error(undo):
        durable.write(temporary, value)
        os.replace(temporary, path)


def check_path(folder: Any, place: str) -> None:
    if not isinstance(folder, (str, os.PathLike)):
        raise Error(f"[{place}] {folder!r:.60} is no path. Give the folder of checkpoints.")


def read_latest(folder: str, universal: bool = False) -> str | None:
    try:
        return durable.read_text(os.path.join(folder, "latest_universal" if universal else "latest"), "load_checkpoint").strip()
    except FileNotFoundError:
        return None


_SCRIPT = '''#!/usr/bin/env python
"""Whole fp32 weights from this checkpoint: zero_to_fp32.py <this folder> <output folder> [--safe_serialization] ..."""

import runpy

runpy.run_module("deepspeed.utils.zero_to_fp32", run_name="__main__")
'''


def write_script(folder: str) -> None:
    """zero_to_fp32.py, beside `latest`, where DeepSpeed puts its own."""
    durable.write_text(os.path.join(folder, "zero_to_fp32.py"), _SCRIPT, mode=0o755)

"""Universal checkpoints: one folder a parameter, cut over no ranks.

    <tag>/*model_states.pt               as the checkpoint had them
    <tag>/zero/<name>/{fp32,exp_avg,exp_avg_sq,step}.pt
    <tag>/zero/optimizer_state.pt        groups, loss scale and the step
    latest_universal                     the tag, beside <tag>

DeepSpeed's converter writes {"param": whole tensor, "cat_dim": 0} for stages 1 and 2 and flat tensors for stage 3; its
stages 1 and 2 read only the former and stage 3 reads both. Written here is the former, read are both.
"""

from __future__ import annotations

import os
import shutil
from typing import Any

import torch

import shoal

from deepspeed.runtime import checkpoint_files as files
from deepspeed.runtime.checkpoint_load import Saved
from deepspeed.runtime.checkpoint_plain import PlainSaved

STATES = {"fp32": None, "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}


def is_universal(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "zero", "optimizer_state.pt"))


def open_saved(folder: str) -> Saved:
    """The checkpoint of a folder, of any kind."""
    if is_universal(folder):
        return UniversalSaved(folder)
    saved = Saved(folder)
    return PlainSaved(folder, saved.models) if saved.models[0].get("optimizer") else saved  # no other stage has it there


def convert(source: str, target: str) -> None:
    """A checkpoint of any stage and world as a universal one. `latest_universal` is written last."""
    if is_universal(source):
        raise shoal.Error(f"[ds_to_universal] {source} is universal already. Convert a checkpoint as it was saved.")
    saved = open_saved(source)
    if not saved.has_states:
        raise shoal.Error(f"[ds_to_universal] {source} holds no states of an optimizer. Convert a checkpoint with them.")
    if not saved.names():
        raise shoal.Error(f"[ds_to_universal] {source} was saved by a DeepSpeed at stage 0, whose states have no names. Load it "
                          "with load_checkpoint, save it again, and convert that.")
    os.makedirs(os.path.join(target, "zero"), exist_ok=True)
    step = saved.step()
    for name, key in STATES.items():
        wholes = saved.wholes(key)
        if not wholes:
            raise shoal.Error(f"[ds_to_universal] {source} has no {name}. Universal checkpoints are for Adam and its kin.")
        for param, value in (wholes | (saved.frozen() if key is None else {})).items():
            _write(target, param, name, {"param": value.float().clone(), "cat_dim": 0})
    for param in saved.names():
        _write(target, param, "step", step)
    common = saved.common()
    groups = saved.inner(0)["param_groups"]
    common["param_groups"] = groups
    common["optimizer_state_dict"] = {"state": {0: {"step": step}}, "param_groups": groups}
    files.write(os.path.join(target, "zero", "optimizer_state.pt"), common)
    for path, model in zip(files.find_model_files(source), saved.models):
        if model.get("optimizer"):  # its states are in folders of their own now
            files.write(os.path.join(target, os.path.basename(path)), model | {"optimizer": None})
        else:
            shutil.copy2(path, target)
    parent, tag = os.path.split(os.path.abspath(target))
    files.write_text(os.path.join(parent, "latest_universal"), tag)


def _write(target: str, param: str, state: str, value: Any) -> None:
    folder = os.path.join(target, "zero", param)
    os.makedirs(folder, exist_ok=True)
    files.write(os.path.join(folder, f"{state}.pt"), value)


class UniversalSaved(Saved):
    """Saved, for a universal checkpoint."""

    def __init__(self, folder: str):
        super().__init__(folder)
        self.shards = [files.read(os.path.join(folder, "zero", "optimizer_state.pt"))]

    def wholes(self, name: str | None) -> dict[str, torch.Tensor]:
        found: dict[str, torch.Tensor] = {}
        for shapes in self.shapes:
            for param, shape in shapes.items():
                path = os.path.join(self.folder, "zero", param, f"{name or 'fp32'}.pt")
                if not os.path.exists(path):
                    if name is not None:
                        return {}
                    raise shoal.Error(f"[load_checkpoint] {path} is missing. Convert the checkpoint again.")
                value = files.read(path)
                found[param] = (value["param"] if isinstance(value, dict) else value).reshape(shape)
        return found

    def inner(self, rank: int) -> dict[str, Any]:
        shared = self.shards[0]
        return shared if "param_groups" in shared else shared["optimizer_state_dict"]

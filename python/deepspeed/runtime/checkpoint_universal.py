"""Universal checkpoints: one folder a parameter, cut over no ranks.

    <tag>/*model_states.pt               as the checkpoint had them
    <tag>/zero/<name>/{fp32,exp_avg,exp_avg_sq,step}.pt
    <tag>/zero/optimizer_state.pt        groups, loss scale and the step
    <tag>/shoal_files.json               what was written, with checksums
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
from shoal import _core, durable

from deepspeed.runtime import checkpoint_files as files
from deepspeed.runtime import checkpoint_list as lists
from deepspeed.runtime.checkpoint_check import check_files, naming
from deepspeed.runtime.checkpoint_folder import PendingFolder
from deepspeed.runtime.checkpoint_plain import PlainSaved
from deepspeed.runtime.checkpoint_saved import Saved

STATES = {"fp32": None, "exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}


def is_universal(folder: str) -> bool:
    return os.path.exists(os.path.join(folder, "zero", "optimizer_state.pt"))


def open_saved(folder: str) -> Saved:
    """The checkpoint of a folder, of any kind."""
    if is_universal(folder):
        return UniversalSaved(folder)
    saved = Saved(folder)
    return PlainSaved(folder, saved.models) if saved.models[0].get("optimizer") else saved  # no other stage has it there


def open_checked(folder: str, world: Any, place: str, needs_states: bool = True) -> Saved:
    """open_saved, once every byte is known to be as it was saved; or every rank raises the same."""
    listed = check_files(folder, world, place, needs_states)
    found: list[Saved] = []

    def open_own() -> None:
        with naming(folder, place):
            found.append(open_saved(folder))
            found[0].check_agreement(place)

    durable.act_together(world, place, open_own)
    found[0].accumulated = listed.accumulated if listed is not None else 0
    return found[0]


def convert(source: str, target: str) -> None:
    """A checkpoint of any stage and world as a universal one, put in its place in one step. `latest_universal` is written last."""
    if is_universal(source):
        raise shoal.Error(f"[ds_to_universal] {source} is universal already. Convert a checkpoint as it was saved.")
    saved = open_checked(source, _core.make_single_group(), "ds_to_universal")
    if not saved.has_states:
        raise shoal.Error(f"[ds_to_universal] {source} holds no states of an optimizer. Convert a checkpoint with them.")
    if not saved.names():
        raise shoal.Error(f"[ds_to_universal] {source} was saved by a DeepSpeed at stage 0, whose states have no names. Load it "
                          "with load_checkpoint, save it again, and convert that.")
    id = os.urandom(9).hex()
    pending = PendingFolder(target, "ds_to_universal", id)
    in_place = os.path.realpath(source) == pending.folder
    with durable.undone_on_error(pending.remove):
        entries = _write_universal(saved, pending.path)
        listed = lists.read(source, "ds_to_universal") if in_place else None
        # Into its own folder: the files of the optimizer stay, as they are listed.
        pending.carry_over(lambda name: name in (lists.NAME, "zero") or (not in_place and files.is_of_a_save(name)))
        kept = {name: entry for name, entry in listed.files.items() if name not in entries} if listed is not None else {}
        first = saved.model_files[0]
        pending.publish(lists.FileList(id, first.step or 0, saved.world, saved.accumulated, kept | entries))
    pending.remove()
    parent, tag = os.path.split(os.path.abspath(target))
    durable.write_text(os.path.join(parent, "latest_universal"), tag)


def _write_universal(saved: Saved, target: str) -> dict[str, lists.Entry]:
    source, entries = saved.folder, {}

    def write(name: str, value: Any) -> None:
        path = os.path.join(target, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        entries[name] = lists.Entry(name, 0, *durable.write(path, value))

    step = saved.step()
    for name, key in STATES.items():
        wholes = saved.wholes(key)
        if not wholes:
            raise shoal.Error(f"[ds_to_universal] {source} has no {name}. Universal checkpoints are for Adam and its kin.")
        for param, value in (wholes | (saved.frozen() if key is None else {})).items():
            write(f"zero/{param}/{name}.pt", {"param": value.float().clone(), "cat_dim": 0})
    for param in saved.names():
        write(f"zero/{param}/step.pt", step)
    common = saved.common()
    groups = saved.inner(0)["param_groups"]
    common["param_groups"] = groups
    common["optimizer_state_dict"] = {"state": {0: {"step": step}}, "param_groups": groups}
    write("zero/optimizer_state.pt", common)
    for path, model in zip(files.find_model_files(source), saved.models):
        name = os.path.basename(path)
        if model.get("optimizer"):  # its states are in folders of their own now
            write(name, model | {"optimizer": None})
        else:
            shutil.copy2(path, target)
            entries[name] = lists.Entry(name, 0, *_core.digest_of_file(os.path.join(target, name)))
    return entries


class UniversalSaved(Saved):
    """Saved, for a universal checkpoint."""

    def __init__(self, folder: str):
        super().__init__(folder)
        self.shards = [files.read(os.path.join(folder, "zero", "optimizer_state.pt"))]
        self.shard_files = []

    def wholes(self, name: str | None, meta: bool = False) -> dict[str, torch.Tensor]:
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

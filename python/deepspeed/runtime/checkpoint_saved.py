"""The files of one checkpoint in DeepSpeed's layout, as any stage and number of ranks saved them: what they say, and parameters
put together from them. Files are mapped, not read whole. checkpoint_plain and checkpoint_universal have other forms of it."""

from __future__ import annotations

from typing import Any

import torch

import shoal

from deepspeed.runtime import checkpoint_files as files
from deepspeed.runtime import partitions
from deepspeed.runtime.checkpoint_check import Opened, check_agreement

_CUT_OVER_RANKS = ("base_optimizer_state", "param_slice_mappings", "single_partition_of_fp32_groups", "fp32_flat_groups",
                   "optimizer_state_dict", "param_alignment_paddings", "group_paddings", "partition_count")  # fmt: skip


class Saved:
    """The files of one checkpoint, and parameters put together from them."""

    def __init__(self, folder: str, models: list[Any] | None = None):
        """models: what is in the files of the model, where they are read already."""
        self.folder = folder
        paths = files.find_model_files(folder)
        if not paths:
            raise shoal.Error(f"[load_checkpoint] {folder} holds no model states. Give the folder and tag of a checkpoint.")
        self.accumulated = 0  # micro-steps that were accumulated when it was saved, and are not in it
        self.models = models if models is not None else [files.read(path) for path in paths]
        self.model_files = [Opened(path, values) for path, values in zip(paths, self.models)]
        paths = files.find_optimizer_files(folder)
        shards = [files.read(path) for path in paths]
        self.shard_files = [Opened(path, values) for path, values in zip(paths, shards)]
        self.shards = [values["optimizer_state_dict"] for values in shards]
        self.world = len(self.shards) or int(self.models[0].get("dp_world_size", 1))
        self.stage = int(self.shards[0]["zero_stage"]) if self.shards else (3 if len(self.models) > 1 else 0)
        self.shapes = self.models[0].get("param_shapes") or []

    @property
    def has_states(self) -> bool:
        """Whether it has states of an optimizer."""
        return bool(self.shards)

    def check_agreement(self, place: str) -> None:
        """Raises unless all that is read was saved at one time."""
        check_agreement(self.folder, place, self.model_files + self.shard_files)
        steps = [_first_step(shard) for shard in self.shards]
        for file, step in zip(self.shard_files, steps):
            if None not in (step, steps[0]) and step != steps[0]:
                raise shoal.Error(f"[{place}] {file.path} is of step {step:g} of the optimizer and {self.shard_files[0].path} of "
                                  f"{steps[0]:g}. A checkpoint is of one save: take another one.")

    def take_names(self, engine: Any) -> None:
        """For checkpoints that do not say what their states are of."""

    def slices(self, name: str | None) -> list[list[torch.Tensor]]:
        """Of each rank, the flats of the fp32 weights (None) or of a state of the optimizer."""
        if name is None:
            key = "fp32_flat_groups" if self.stage == 3 else "single_partition_of_fp32_groups"
            return [list(shard[key]) for shard in self.shards]
        found = []
        for rank in range(len(self.shards)):
            states = self.inner(rank)["state"]
            found.append([states.get(index, {}).get(name) for index in range(len(self.shapes))])
        return found

    def inner(self, rank: int) -> dict[str, Any]:
        """The state dict of the torch optimizer of a rank."""
        found = self.shards[rank]["optimizer_state_dict" if self.stage == 3 else "base_optimizer_state"]
        if not isinstance(found, dict):
            raise shoal.Error(f"[load_checkpoint] {self.folder} was saved with zero_optimization.elastic_checkpoint. Save it "
                              "with that key off.")
        return found

    def state_kinds(self) -> set[str]:
        """What the torch optimizer called the states of parameters, but for counts."""
        states = (self.inner(0).get("state") or {}).values()
        return {name for state in states for name, value in state.items() if torch.is_tensor(value) and value.numel() > 1}

    def names(self) -> list[str]:
        """The trained parameters that some rank has states of."""
        return [name for shapes in self.shapes for name in shapes]

    def step(self) -> Any:
        """The optimizer's count of steps, as it was kept: a number or a tensor."""
        inner = self.inner(0)
        counts = [state["step"] for state in inner["state"].values() if "step" in state]
        counts += [group["step"] for group in inner["param_groups"] if "step" in group]
        return counts[0] if counts else int(self.models[0].get("global_steps", 0))

    def applied_steps(self) -> int:
        """How many steps the optimizer's corrections count. Of a DeepSpeed's own, those that were not skipped."""
        model = self.models[0]
        return int(model.get("applied_steps", int(model.get("global_steps", 0)) - int(model.get("skipped_steps", 0))))

    def scaler(self) -> Any:
        """What was kept of the loss scale, or None."""
        return self.shards[0].get("loss_scaler") if self.shards else None

    def common(self) -> dict[str, Any]:
        """What is one for all ranks, beside the groups."""
        return {key: value for key, value in self.shards[0].items() if key not in _CUT_OVER_RANKS}

    def wholes(self, name: str | None, meta: bool = False) -> dict[str, torch.Tensor]:
        """Each trained parameter's state, whole, in fp32. meta: their shapes alone are wanted; nothing needs to be read."""
        ranks = self.slices(name)
        if meta:
            ranks = [[flat.to("meta") if flat is not None else None for flat in rank] for rank in ranks]
        found: dict[str, torch.Tensor] = {}
        for index, shapes in enumerate(self.shapes):
            flats = [rank[index] for rank in ranks]
            if any(flat is None for flat in flats):
                return {}
            if self.stage == 3:
                self._split_lone(shapes, flats, found)
            elif "param_slice_mappings" in self.shards[0]:
                self._split_mapped(index, shapes, flats, found)
            else:
                self._split_group(shapes, torch.cat([flat.flatten() for flat in flats]), found)
        return found

    def _split_mapped(self, group: int, shapes: dict[str, Any], flats: list[torch.Tensor], found: dict) -> None:
        """By each rank's own list of what its slice holds: it is right for round-robin orders and aligned parameters."""
        parts: dict[str, list[torch.Tensor]] = {name: [] for name in shapes}
        for shard, flat in zip(self.shards, flats):
            for name, address in shard["param_slice_mappings"][group].items():
                parts[name].append(flat.flatten()[address.start : address.start + address.numel])
        for name, shape in shapes.items():
            found[name] = (torch.cat(parts[name]) if parts[name] else torch.empty(0)).reshape(shape)  # of no elements no rank has a part

    def _split_group(self, shapes: dict[str, Any], flat: torch.Tensor, found: dict[str, torch.Tensor]) -> None:
        offset = 0
        for name, shape in shapes.items():
            numel = torch.Size(shape).numel()
            found[name] = flat[offset : offset + numel].reshape(shape)
            offset += numel

    def _split_lone(self, shapes: dict[str, Any], flats: list[torch.Tensor], found: dict[str, torch.Tensor]) -> None:
        offset = 0
        for name, shape in shapes.items():
            numel = torch.Size(shape).numel()
            share = partitions.lone_numel(numel, self.world)
            parts = [flat[offset : offset + share] for flat in flats]
            found[name] = torch.cat(parts)[:numel].reshape(shape)
            offset += share

    def frozen(self) -> dict[str, torch.Tensor]:
        shapes = self.models[0].get("frozen_param_shapes") or {}
        if not self.models[0].get("frozen_param_fragments"):
            return self._frozen_of_module()
        found = {}
        for name, shape in shapes.items():
            parts = [model["frozen_param_fragments"][name].flatten() for model in self.models]
            found[name] = torch.cat(parts)[: torch.Size(shape).numel()].reshape(shape)
        return found

    def _frozen_of_module(self) -> dict[str, torch.Tensor]:
        """DeepSpeed's stage 1 in bf16 lists no frozen parameters, and has them whole in the model's file."""
        if self.stage == 3:
            return {}
        trained = {name for shapes in self.shapes for name in shapes} | set(self.models[0].get("shared_params") or {})
        return {name: value for name, value in self.module().items() if name not in trained}

    def module(self) -> dict[str, torch.Tensor]:
        """Of a checkpoint without states of an optimizer: the weights of the model's file."""
        buffers = set(self.models[0].get("buffer_names", []))
        return {name: value for name, value in self.models[0]["module"].items() if name not in buffers}

    def buffers(self) -> dict[str, torch.Tensor]:
        model = self.models[0]
        return {name: model["module"][name] for name in model.get("buffer_names", []) if name in model["module"]}


def _first_step(shard: dict[str, Any]) -> float | None:
    """The count of steps in the states of a rank's file; None: it has none."""
    inner = shard.get("base_optimizer_state", shard.get("optimizer_state_dict"))
    states = inner.get("state") if isinstance(inner, dict) else None
    counts = [state["step"] for state in (states or {}).values() if isinstance(state, dict) and "step" in state]
    return float(counts[0]) if counts else None

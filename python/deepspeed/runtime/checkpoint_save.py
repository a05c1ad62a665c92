"""save_checkpoint: DeepSpeed's layout. Each parameter's states pass through every rank once, whole."""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any, Iterator, NamedTuple

import torch

import shoal
from shoal import _core, buffers, durable, state

from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad
from deepspeed.ops.kernel_optimizer import KernelOptimizer
from deepspeed.runtime import checkpoint_files as files
from deepspeed.runtime import checkpoint_list as lists
from deepspeed.runtime import partitions
from deepspeed.runtime.checkpoint_folder import PendingFolder
from deepspeed.runtime.fp16.loss_scaler import read_loss_scaler
from deepspeed.utils.logging import warning_once
from deepspeed.utils.tensor_fragment import fragment_address
from deepspeed.version import __version__

_PLACE = "save_checkpoint"
_MOMENTS = ("first_moment", "second_moment")
# What torch calls the states of an optimizer, and what the core does.
STATE_NAMES = {optimizer.name: dict(zip(optimizer.state_names, _MOMENTS)) for optimizer in _core.optimizers()}

ADAGRAD_NAMES = ("sum", "exp_avg_sq")  # torch's, and that of DeepSpeed's own class


def state_names(engine: Any) -> dict[str, str]:
    """What the checkpoint calls the states of the engine's optimizer, and what the core does."""
    if isinstance(engine.basic_optimizer, DeepSpeedCPUAdagrad):
        return {ADAGRAD_NAMES[1]: "first_moment"}
    return STATE_NAMES[engine.optimizer_type]


def kept_dtype(engine: Any, kind: str) -> torch.dtype:
    """In what the engine keeps a state between steps."""
    if kind != "weight":
        return torch.bfloat16 if engine.core_config.bf16_moments else torch.float32
    trained = {param.dtype for param in engine.module.parameters() if param.requires_grad}
    return engine.dtype if engine.core_config.narrow_masters and trained == {engine.dtype} else torch.float32


def save(
    engine: Any,
    save_dir: str,
    tag: str,
    client_state: dict[str, Any],
    save_latest: bool,
    exclude_frozen: bool,
    writer: type[Writer],
) -> bool:
    """Until it is complete nothing of it is seen under its tag; one of the same tag is replaced in one step. `latest` is
    written last. What fails on one rank fails on all, and leaves what was there before. tag: one for all ranks."""
    world, core = engine._shoal.world, engine._shoal._live(_PLACE)
    durable.act_together(world, _PLACE, lambda: _check_ready(engine._shoal, save_dir, tag))
    if core.accumulated > 0:
        warning_once(f"[save_checkpoint] {core.accumulated} micro-steps are accumulated: the checkpoint is of the last step and does "
                     "not hold them. They stay in memory, and training goes on with them.")
    pending: list[PendingFolder] = []
    with durable.undone_on_error(lambda: pending[0].remove() if pending else None):
        id = _core.gather_texts(world, os.urandom(9).hex())[0]
        folder = os.path.join(save_dir, tag)
        durable.act_together(world, _PLACE, lambda: pending.append(PendingFolder(folder, _PLACE, id)) if world.rank == 0 else None)
        path = _core.gather_texts(world, pending[0].path if pending else "")[0]
        record = {"id": id, "step": engine.global_steps, "rank": world.rank, "world": world.size}
        own = writer(engine, path, exclude_frozen)
        states = own.collect()
        written: list[lists.Entry] = []
        durable.act_together(world, _PLACE, lambda: written.extend(own.write(states, client_state, record)))
        entries = lists.entries_of(_core.gather_texts(world, lists.to_text(written)))
        listed = lists.FileList(id, engine.global_steps, world.size, core.accumulated, entries)
        durable.act_together(world, _PLACE, lambda: _publish(pending[0], listed, save_dir) if world.rank == 0 else None)
    durable.act_together(world, _PLACE, lambda: _finish(pending[0], save_dir, tag, save_latest) if world.rank == 0 else None)
    return True


def _check_ready(engine: shoal.Engine, save_dir: str, tag: str) -> None:
    engine.core.check_readable(_PLACE)
    engine.refuse_writes(_PLACE)
    files.check_path(save_dir, _PLACE)
    folder, above = os.path.realpath(os.path.join(save_dir, tag)), os.path.realpath(save_dir)
    if os.path.commonpath([folder, above]) == folder:
        raise shoal.Error(f"[save_checkpoint] the tag {tag!r} names no folder of its own in {save_dir}. Give a name.")
    if os.pardir in tag.split(os.sep):  # also where it leads back in: on the way are folders that need not be there
        raise shoal.Error(f"[save_checkpoint] the tag {tag!r} leads out of {save_dir} or of a folder in it. Give a name in it.")


def _publish(pending: PendingFolder, listed: lists.FileList, save_dir: str) -> None:
    for entry in listed.files.values():
        path = os.path.join(pending.path, entry.name)
        if not os.path.exists(path) or os.path.getsize(path) != entry.nbytes:
            raise shoal.Error(f"[save_checkpoint] {path} was written by rank {entry.rank} and is not seen by rank 0. Save to a disk "
                              "that all hosts share.")
    pending.carry_over(files.is_of_a_save)
    files.write_script(save_dir)
    pending.publish(listed)


def _finish(pending: PendingFolder, save_dir: str, tag: str, save_latest: bool) -> None:
    try:
        if save_latest:
            durable.write_text(os.path.join(save_dir, "latest"), tag)
    finally:
        pending.remove()


def save_model(engine: Any, save_dir: str, name: str, exclude_frozen: bool) -> bool:
    """The weights alone, whole, by rank 0."""
    if engine.zero_optimization_stage() == 3 and not engine.zero_gather_16bit_weights_on_model_save():
        return False
    whole = state.consolidate(engine._shoal, exclude_frozen=exclude_frozen)
    durable.act_together(engine._shoal.world, "save_16bit_model", lambda: _write_whole(save_dir, name, whole))
    return True


def _write_whole(save_dir: str, name: str, whole: dict[str, torch.Tensor] | None) -> None:
    if whole is not None:  # on rank 0
        os.makedirs(save_dir, exist_ok=True)
        files.write(os.path.join(save_dir, name), whole)


class Collected(NamedTuple):
    """What a rank writes, read already."""

    frozen: dict[str, torch.Size]
    fragments: dict[str, torch.Tensor]
    optimizer: dict[str, Any] | None


class Writer:
    states_in_model = False  # those of the optimizer: in the model's file, or in one of each rank

    def __init__(self, engine: Any, folder: str, exclude_frozen: bool = False):
        self.exclude_frozen = exclude_frozen
        self.engine = engine
        self.shoal = engine._shoal
        self.folder = folder
        self.stage = engine.zero_optimization_stage()
        self.rank, self.world = self.shoal.world.rank, self.shoal.world.size
        self.params = dict(engine.module.named_parameters())
        own, named = engine.basic_optimizer.param_groups if engine.basic_optimizer is not None else [], engine.named_groups()
        self.owners = [group for group in own if group["params"]]  # DeepSpeed drops groups without parameters
        self.held = [trained for group, trained in zip(own, named) if group["params"]]
        self.groups = self.held + named[len(own) :]

    def collect(self) -> Collected:
        """Reads the states; every rank calls it, since they pass through all."""
        frozen = {name: param.shape for name, param in self.params.items() if not param.requires_grad}
        if self.exclude_frozen:
            frozen = {}
        fragments = {name: self._frozen_fragment(name) for name in frozen}
        optimizer = self._optimizer_part() if self.engine.basic_optimizer is not None else None
        return Collected(frozen, fragments, optimizer)

    def write(self, states: Collected, client_state: dict[str, Any], record: dict[str, Any]) -> list[lists.Entry]:
        """This rank's files. Talks to nobody. record: of the save, for each file."""
        if not os.path.isdir(self.folder):
            raise shoal.Error(f"[save_checkpoint] rank {self.rank} does not see {self.folder}, which rank 0 made. Save to a disk that "
                              "all hosts share.")
        written = []

        def write(path: str, values: dict[str, Any]) -> None:
            written.append(lists.Entry(os.path.basename(path), self.rank, *durable.write(path, values)))

        own = {lists.SAVE_KEY: record}
        if self.stage == 3 or self.rank == 0:
            values = self._model_part(states.frozen, states.fragments) | own
            values["optimizer"] = states.optimizer if self.states_in_model else None
            values.update({key: value for key, value in client_state.items() if key not in values})
            write(files.model_file(self.folder, self.stage, self.rank), values)
        if states.optimizer is not None and not self.states_in_model:
            values = {"optimizer_state_dict": states.optimizer, "ds_config": self.engine.config, "ds_version": __version__} | own
            write(files.optimizer_file(self.folder, self.engine.bfloat16_enabled(), self.rank), values)
        return written

    def _model_part(self, frozen: dict, fragments: dict) -> dict[str, Any]:
        engine = self.engine
        scheduler = engine.lr_scheduler
        has_schedule = scheduler is not None and hasattr(scheduler, "state_dict")
        saved_buffers = buffers.read_all(engine.module)
        shapes = [OrderedDict((name, self.params[name].shape) for name, _ in group) for group in self._cut_groups()]
        shared = {}
        for name, param in engine.module.named_parameters(remove_duplicate=False):
            if name not in self.params and (param.requires_grad or not self.exclude_frozen):
                shared[name] = self.shoal.names[id(param)]
        return {
            "module": self._module_part(saved_buffers),
            "buffer_names": list(saved_buffers),
            "param_shapes": shapes,
            "frozen_param_shapes": OrderedDict(frozen),
            "frozen_param_fragments": OrderedDict(fragments),
            "shared_params": shared,
            "lr_scheduler": scheduler.state_dict() if has_schedule else None,
            "data_sampler": None,
            "random_ltd": None,
            "sparse_tensor_module_names": set(),
            "applied_steps": self.shoal.core.progress().applied_steps,
            "skipped_steps": engine.skipped_steps,
            "global_steps": engine.global_steps,
            "global_samples": engine.global_samples,
            "micro_steps": engine.micro_steps_at_boundary,
            "dp_world_size": self.world,
            "mp_world_size": 1,
            "ds_config": engine.config,
            "ds_version": __version__,
            "universal_checkpoint_info": {"universal_checkpoint_version": 0.4},
        }

    def _module_part(self, saved_buffers: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if self.stage < 3:
            tied: dict[int, torch.Tensor] = {}
            values = {}
            for name, param in self._written_params():
                if id(param) not in tied:
                    tied[id(param)] = buffers.host_copy(param)
                values[name] = tied[id(param)]
            return values | saved_buffers
        return {name: torch.empty(0, dtype=param.dtype) for name, param in self._written_params()} | saved_buffers

    def _written_params(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        for name, param in self.engine.module.named_parameters(remove_duplicate=False):
            if param.requires_grad or not self.exclude_frozen:
                yield name, param

    def _frozen_fragment(self, name: str) -> torch.Tensor:
        whole = self.shoal.read_state(name, "weight").to(self.params[name].dtype)
        if self.stage < 3:
            return whole
        return self._lone_share(whole)

    def _lone_share(self, whole: torch.Tensor) -> torch.Tensor:
        numel = partitions.lone_numel(whole.numel(), self.world)
        share = torch.zeros(numel, dtype=whole.dtype, device="cpu")
        mine = whole.flatten()[self.rank * numel : (self.rank + 1) * numel]
        share[: mine.numel()] = mine
        return share

    def _cut_groups(self) -> list[list[tuple[str, int]]]:
        return self._cut(self.groups)

    def _cut(self, groups: list[list[tuple[str, int]]]) -> list[list[tuple[str, int]]]:
        if self.stage < 3:
            return groups
        limit = float((self.engine.config.get("zero_optimization") or {}).get("sub_group_size", 1e9))
        return [sub for group in groups for sub in partitions.sub_groups(group, self.world, limit)]

    def _slices(self, kind: str) -> list[torch.Tensor] | None:
        """This rank's slice of each group, in DeepSpeed's cut and in the dtype that it is kept in; None if the optimizer keeps no
        such state. Stages 1 and 2 write weights without the padding of the last slice, and states of the optimizer with it."""
        found, kept = [], False
        for group in self._cut_groups():
            wholes = {name: self.shoal.read_state(name, kind) for name, _ in group}
            kept |= any(value is not None for value in wholes.values())
            for name, numel in group:  # an optimizer of the client's has none for what it does not hold
                wholes[name] = torch.zeros(numel, device="cpu") if wholes[name] is None else wholes[name]
            if self.stage == 3:
                found.append(torch.cat([self._lone_share(wholes[name]) for name, _ in group]))
                continue
            total = sum(numel for _, numel in group)
            values = torch.zeros(partitions.slice_numel(total, self.world), device="cpu")
            for part in partitions.group_parts(group, self.rank, self.world):
                whole = wholes[part.name].flatten()
                values[part.at : part.at + part.numel] = whole[part.begin : part.begin + part.numel]
            padding = self._padding(total) if kind == "weight" else 0
            found.append(values[: max(0, values.numel() - padding)].clone())
        dtype = kept_dtype(self.engine, kind)
        return [values.to(dtype) for values in found] if kept or kind == "weight" else None

    def _padding(self, total: int) -> int:
        return partitions.padding_of(total, self.world) if self.rank == self.world - 1 else 0

    def _optimizer_part(self) -> dict[str, Any]:
        step = self.shoal.core.progress().applied_steps
        weights = self._slices("weight")
        # A tensor each: one that states share would count once for each of them when it is loaded.
        states: dict[int, dict[str, Any]] = {index: {"step": self._step_as_kept(step)} for index in range(len(weights))}
        for name, kind in state_names(self.engine).items():
            for index, values in enumerate(self._slices(kind) or []):
                states[index][name] = values
        groups = [group | {"params": own} for group, own in zip(self._group_settings(step), self._flats_of_groups())]
        inner = {"state": states, "param_groups": groups}
        common = {
            "zero_stage": self.stage,
            "loss_scaler": self._loss_scaler(),
            "dynamic_loss_scale": self.engine.dynamic_loss_scale(),
            "overflow": self.engine.optimizer.overflow,
            "ds_version": __version__,
        }
        if self.stage == 3:
            return common | {"partition_count": self.world, "optimizer_state_dict": inner, "fp32_flat_groups": weights}
        return common | {
            "clip_grad": self.engine.gradient_clipping(),
            "base_optimizer_state": inner,
            "single_partition_of_fp32_groups": weights,
            "group_paddings": [self._padding(sum(numel for _, numel in group)) for group in self.groups],
            "partition_count": [self.world] * len(self.groups),
            "param_slice_mappings": [
                OrderedDict(
                    (part.name, fragment_address(numel=part.numel, start=part.at))
                    for part in partitions.group_parts(group, self.rank, self.world)
                )
                for group in self.groups
            ],
        }

    def _group_settings(self, step: int) -> list[dict[str, Any]]:
        """The optimizer's groups without their parameters; DeepSpeed's own optimizers count steps there too."""
        groups = [{key: value for key, value in group.items() if key != "params"} for group in self.owners]
        return [group | {"step": step} for group in groups] if isinstance(self.engine.basic_optimizer, KernelOptimizer) else groups

    def _flats_of_groups(self) -> list[list[int]]:
        """Which flats are a group's: one at stages 1 and 2, its sub-groups at stage 3."""
        found: list[list[int]] = []
        first = 0
        for group in self.groups:
            count = len(self._cut([group]))
            found.append(list(range(first, first + count)))
            first += count
        return found

    def _step_as_kept(self, step: int) -> Any:
        """torch's optimizers count in a tensor, DeepSpeed's in an integer; each reads back only its own."""
        return step if isinstance(self.engine.basic_optimizer, KernelOptimizer) else torch.tensor(float(step))

    def _loss_scaler(self) -> Any:
        """DeepSpeed takes the whole object over, its settings too."""
        return read_loss_scaler(self.engine)

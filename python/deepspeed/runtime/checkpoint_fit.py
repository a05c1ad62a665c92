"""What a load writes into an engine. It is made whole, and every name and shape compared, before the first write: a checkpoint
that does not fit changes nothing. checkpoint_load calls it, once on each rank."""

from __future__ import annotations

import contextlib
import copy
from dataclasses import dataclass
from typing import Any

import torch

import shoal
from shoal import buffers, durable

from deepspeed.runtime.base_optimizer import take_settings
from deepspeed.runtime.checkpoint_save import ADAGRAD_NAMES, kept_dtype, state_names
from deepspeed.runtime.checkpoint_saved import Saved
from deepspeed.runtime.group_settings import keeps_states
from deepspeed.utils.logging import warning_once


@dataclass(frozen=True)
class Wanted:
    """What load_checkpoint takes from a checkpoint besides the weights."""

    strict: bool = True  # whether the parameters must be those of the model, no fewer and no others
    optimizer: bool = True
    scheduler: bool = True
    counts: bool = True  # of steps and samples


_WITHOUT_STATES = "Load it with load_optimizer_states=False to begin with new states, or with the optimizer that it was saved with."
_TELLING = {"betas", "momentum", "alpha", "rho"}  # settings that some optimizers have and others have not


class Fit:
    def __init__(self, engine: Any, saved: Saved, wanted: Wanted, takes_states: bool):
        """Raises unless all of it fits. Talks to nobody, and changes nothing."""
        self.engine, self.saved = engine, saved
        self.params = dict(engine.module.named_parameters())
        if takes_states:
            saved.take_names(engine)
        self.weights = _weights_of(saved)
        self.buffers = saved.buffers()
        self._check_names(wanted.strict)
        self._check_shapes(self.weights)
        own = dict(engine.module.named_buffers(remove_duplicate=False))
        self.buffers = {name: value for name, value in self.buffers.items() if name in own}
        self._check_shapes(self.buffers, own)
        # The states of the optimizer are read one by one as they are written; here are their names in the checkpoint.
        self.states = self._find_states() if takes_states else {}
        self.groups = self._saved_groups() if takes_states else []
        if takes_states:
            self._check_optimizer()
            self._check_members()
        self.counts = self._saved_counts() if wanted.counts else {}
        self.progress = self._saved_progress(wanted.optimizer)
        has_schedule = wanted.scheduler and engine.lr_scheduler is not None
        self.schedule = saved.models[0].get("lr_scheduler") if has_schedule else None
        if has_schedule:
            self._check_schedule()

    def try_schedule(self) -> None:
        """Loads the schedule's state, on all ranks or on none: nobody knows what a schedule of the user's takes. Every rank calls it."""
        scheduler, optimizer = self.engine.lr_scheduler, self.engine.basic_optimizer
        groups = optimizer.param_groups if optimizer is not None else []
        settings = [{key: value for key, value in group.items() if key != "params"} for group in groups]
        before = copy.deepcopy(scheduler.state_dict()) if self.schedule is not None else None

        def undo() -> None:
            if before is not None:
                with contextlib.suppress(Exception):
                    scheduler.load_state_dict(before)
            take_settings(groups, settings)

        with durable.undone_on_error(undo):
            durable.act_together(self.engine._shoal.world, "load_checkpoint", self._load_schedule)

    def _check_schedule(self) -> None:
        """Raises unless it goes on where the saved one was. A schedule that is no schedule of torch checks its state itself."""
        own, folder = self.engine.lr_scheduler, self.saved.folder
        kind = type(own).__name__
        if self.schedule is None:
            if int(self.saved.models[0].get("global_steps", 0)) > 0:
                raise shoal.Error(f"[load_checkpoint] {folder} was saved without a schedule of the learning rate, and this engine has {kind}, "
                                  "which would begin anew. Load it with load_lr_scheduler_states=False if that is meant.")
        elif isinstance(own, torch.optim.lr_scheduler.LRScheduler) and isinstance(self.schedule, dict):
            other = sorted(name for name in self.schedule.keys() ^ own.state_dict().keys() if name[0] != "_" and name != "verbose")
            if other:
                raise shoal.Error(f"[load_checkpoint] {folder} was saved with another schedule of the learning rate than {kind}: only one of "
                                  f"them has {other[0]}. Use the schedule that it was saved with, or load_lr_scheduler_states=False.")

    def _load_schedule(self) -> None:
        if self.schedule is None:
            return
        try:
            self.engine.lr_scheduler.load_state_dict(self.schedule)
        except (KeyError, TypeError, AttributeError) as error:
            raise shoal.Error(
                f"[load_checkpoint] {type(self.engine.lr_scheduler).__name__} cannot take the schedule's state of {self.saved.folder} "
                f"({type(error).__name__}: {error}). Use the schedule that it was saved with, or load_lr_scheduler_states=False."
            ) from error

    def write(self) -> None:
        """All of it. Every rank calls it."""
        engine = self.engine
        self._tell_rounded("weight", self.weights)
        for name, value in self.weights.items():
            engine._shoal.write_part(name, "weight", value)
        buffers.write(engine.module, self.buffers)
        for kind, name in self.states.items():
            wholes = self.saved.wholes(name)
            self._tell_rounded(kind, wholes)
            for param, value in wholes.items():
                if param in self.params:
                    engine._shoal.write_part(param, kind, value)
        take_settings(engine.basic_optimizer.param_groups if self.groups else [], self.groups)
        for name, count in self.counts.items():
            setattr(engine, name, count)
        engine._shoal.core.finish_restore(self.progress)
        self._load_schedule()  # again: what it set in the groups was written over

    def _tell_rounded(self, kind: str, values: dict[str, torch.Tensor]) -> None:
        """A word where the engine keeps 16 bits of what was saved in others."""
        kept = kept_dtype(self.engine, kind)
        trained = [value.dtype for name, value in values.items() if name in self.params and self.params[name].requires_grad]
        if kept != torch.float32 and any(dtype != kept for dtype in trained):
            warning_once(f"[load_checkpoint] this run keeps each {kind.replace('_', ' ')} in {kept}, and {self.saved.folder} has "
                         f"another dtype: they are rounded.")

    def _check_names(self, strict: bool) -> None:
        """Without strict, what only one side has is left alone."""
        model, folder = self.engine.module, self.saved.folder
        missing = sorted(set(self.params) - set(self.weights))
        if missing and strict:
            raise shoal.Error(f"[load_checkpoint] {folder} has no values for {missing[:3]} ({len(missing)} in all). "
                              "Load it into the model that it was saved from, or with load_module_strict=False.")
        known = {name for name, _ in model.named_parameters(remove_duplicate=False)}
        known |= {name for name, _ in model.named_buffers(remove_duplicate=False)}
        known |= set(self.saved.models[0].get("shared_params") or {})  # other names of parameters that have values
        foreign = sorted((set(self.weights) | set(self.buffers)) - known)
        if foreign and strict:
            raise shoal.Error(f"[load_checkpoint] {folder} has values for {foreign[:3]} ({len(foreign)} in all), which the model does "
                              "not have. Load it into the model that it was saved from, or with load_module_strict=False.")
        self.weights = {name: value for name, value in self.weights.items() if name in self.params}

    def _check_shapes(self, values: dict[str, torch.Tensor], own: dict[str, torch.Tensor] | None = None) -> None:
        """own: of the engine, with all the names of values; None: its parameters."""
        for name, value in values.items():
            here = tuple((self.params if own is None else own)[name].shape)
            if tuple(value.shape) != here:
                raise shoal.Error(f"[load_checkpoint] {name} is {tuple(value.shape)} in {self.saved.folder} and {here} in the "
                                  "model. Load it into the model that it was saved from.")

    def _find_states(self) -> dict[str, str]:
        """By the core's name of a state what the checkpoint calls it, where it has it."""
        found = {}
        for name, kind in state_names(self.engine).items():
            for candidate in ADAGRAD_NAMES if self.engine.optimizer_type == "Adagrad" else (name,):
                shapes = self.saved.wholes(candidate, meta=True)
                if shapes:
                    self._check_shapes({param: value for param, value in shapes.items() if param in self.params})
                    self._check_all_have(candidate, shapes)
                    found[kind] = candidate
                    break
        return found

    def _check_all_have(self, state: str, shapes: dict[str, torch.Tensor]) -> None:
        """Or its zeros would be taken for those of the many steps that the others have made."""
        own = {id(param) for group in self.engine.basic_optimizer.param_groups for param in group["params"]}
        trained = {name: param for name, param in self.params.items() if param.requires_grad and id(param) in own and param.numel() > 0}
        missing = [name for name in trained if name not in shapes]
        if missing:
            raise shoal.Error(f"[load_checkpoint] {self.saved.folder} has no {state} of {missing[:3]} ({len(missing)} in all), which were not "
                              f"trained when it was saved. {_WITHOUT_STATES}")

    def _check_optimizer(self) -> None:
        """Raises unless the states and settings are those of such an optimizer."""
        kind, groups = type(self.engine.basic_optimizer).__name__, self.engine.basic_optimizer.param_groups
        for own, saved in zip(groups, self.groups):
            odd = sorted(_TELLING & (own.keys() ^ saved.keys())) if saved else []
            if odd:
                raise shoal.Error(f"[load_checkpoint] {self.saved.folder} was saved with another optimizer: its groups have "
                                  f"{'no ' if odd[0] in own else ''}{odd[0]}, and this engine has {kind}. {_WITHOUT_STATES}")
        kept = state_names(self.engine) if keeps_states(self.engine) else {}
        absent = sorted(name for name, state in kept.items() if state not in self.states)
        if absent and self.saved.applied_steps() > 0:
            raise shoal.Error(f"[load_checkpoint] {self.saved.folder} has no {absent[0]}, which {kind} keeps: it was saved with another "
                              f"optimizer. {_WITHOUT_STATES}")
        foreign = self.saved.state_kinds() - {*kept, *(ADAGRAD_NAMES if self.engine.optimizer_type == "Adagrad" else ())}
        if foreign:
            raise shoal.Error(f"[load_checkpoint] {self.saved.folder} was saved with another optimizer: it has {sorted(foreign)[0]}, which "
                              f"{kind} does not keep. {_WITHOUT_STATES}")

    def _check_members(self) -> None:
        """Or a parameter would go on with the rates of another group: settings are those of a place, and states those of a name."""
        own = self.engine.basic_optimizer.param_groups
        places = [place for place, group in enumerate(own) if group["params"] or len(self.saved.shapes) == len(own)]
        if len(places) != len(self.saved.shapes):  # it does not say what its groups hold
            return
        here = {id(param): place for place, group in enumerate(own) for param in group["params"]}
        for there, names in zip(places, self.saved.shapes):
            for name in names:
                place = here.get(id(self.params.get(name)), there)
                if place != there and self.groups[place] != self.groups[there]:
                    raise shoal.Error(f"[load_checkpoint] {name} is in group {there} of the optimizer in {self.saved.folder} and in group "
                                      f"{place} here, and the two have other settings. Give the optimizer the groups that it was saved "
                                      "with, or load it with load_optimizer_states=False to begin with new states and your settings.")

    def _saved_groups(self) -> list[dict[str, Any]]:
        groups = [_settings(group) for group in self.saved.inner(0)["param_groups"]]
        own = self.engine.basic_optimizer.param_groups
        if len(groups) == sum(bool(group["params"]) for group in own):  # without those that have no parameters
            rest = iter(groups)
            groups = [next(rest) if group["params"] else {} for group in own]
        if len(groups) != len(own):
            raise shoal.Error(f"[load_checkpoint] {self.saved.folder} has the settings of {len(groups)} groups of the optimizer, and this "
                              f"engine has {len(own)}. {_WITHOUT_STATES}")
        return groups

    def _saved_counts(self) -> dict[str, int]:
        """Attributes of the engine."""
        model = self.saved.models[0]
        counts = {name: int(model.get(name, 0)) for name in ("global_steps", "global_samples", "skipped_steps")}
        accumulation = self.engine.gradient_accumulation_steps()
        micro_steps = int(model.get("micro_steps", counts["global_steps"] * accumulation))
        if micro_steps % accumulation:  # saved at another accumulation: the next step begins with its first micro-step all the same
            micro_steps = counts["global_steps"] * accumulation
        return counts | {"micro_steps": micro_steps, "micro_steps_at_boundary": micro_steps}

    def _saved_progress(self, optimizer_states: bool) -> Any:
        progress = self.engine._shoal.core.progress()
        if self.counts:
            progress.skipped_steps = self.counts["skipped_steps"]
        if not optimizer_states:
            return progress
        progress.applied_steps = self.saved.applied_steps()
        scaler = self.saved.scaler()
        if self.engine.fp16_enabled() and scaler is not None:
            progress.loss_scale = float(scaler.cur_scale)
            progress.loss_scale_step = int(getattr(scaler, "cur_iter", 0))
            progress.loss_scale_last_overflow = int(getattr(scaler, "last_overflow_iter", -1))
            progress.loss_scale_hysteresis_left = int(getattr(scaler, "cur_hysteresis", 1))
        return progress


def _weights_of(saved: Saved) -> dict[str, torch.Tensor]:
    if saved.has_states:
        return saved.wholes(None) | saved.frozen()
    return saved.module() | saved.frozen()


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "step")}

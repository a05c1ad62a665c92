"""shoal.initialize and the engine of a model."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import warnings
import weakref
from typing import Any, Iterable, Iterator, Mapping

import torch
from torch import nn

from shoal import _core, aliases, buffers, checkpoint, clipping, compiling, construction, demand, devices, hooks, leaf_seed
from shoal import module_calls, optimizer_calls, own_gradients, owners, param_groups
from shoal import config as configs
from shoal.client_optimizer import ClientOptimizer
from shoal.known_modules import KnownModules
from shoal.model_checks import check_model, check_units
from shoal.own_weights import WrittenWeights
from shoal.owners import owner_of
from shoal.units import UnitRule, find_units, params_of_units, parts_of_root
from shoal.world import world as join_world
from shoal.world import world_size


def initialize(
    model: nn.Module,
    config: str | os.PathLike | Mapping[str, Any],
    *,
    units: UnitRule | Iterable[str | type] | None = None,
    groups: list[dict[str, Any]] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    seed: int = 0,
    world: _core.Group | None = None,
    device: torch.device | str | None = None,
) -> "Engine":
    """Takes the model's parameters over and returns the engine that trains it. Every rank calls it.

    config: DeepSpeed's JSON, as a path, a text or a dict.
    units: which modules are units; see shoal.find_units.
    groups: parameter groups as torch.optim has them: {"params": [...], "lr": ..., "weight_decay": ...}. All trainable parameters
        are in one.
    optimizer: a torch optimizer that runs on the shards in place of the config's. It must update elements one by one; its
        rates are its own to schedule.
    device: where the model is trained, cpu or cuda; parameters and buffers are brought there. None: where they are.
    """
    if groups is not None and optimizer is None:
        groups = param_groups.complete(groups, model)
    engine = Engine(model, config, units=units, groups=groups, optimizer=optimizer, seed=seed, world=world, device=device)
    if optimizer is not None:
        optimizer_calls.redirect(optimizer, engine)
    return engine


class Engine:
    """A model under training. Call it as the model; the module itself may be called too."""

    def __init__(
        self,
        model: nn.Module,
        config: str | os.PathLike | Mapping[str, Any],
        *,
        units: UnitRule | Iterable[str | type] | None = None,
        groups: list[dict[str, Any]] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        seed: int = 0,
        world: _core.Group | None = None,
        device: torch.device | str | None = None,
    ):
        check_model(model)
        self.device = devices.device_of(model, device)
        devices.make_current(self.device)
        ranks = world.size if world is not None else world_size()
        self.core_config = configs.parse(config, ranks)
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            raise _core.Error(f"[initialize] optimizer is {optimizer!r:.60}. Pass an optimizer of torch, made over the model's parameters.")
        groups = param_groups.checked(groups or (optimizer.param_groups if optimizer is not None else None), model)
        if optimizer is not None:
            names_another = "optimizer" in configs.load(config)
            self.core_config = configs.parse(_without_optimizer(config), ranks)
        if optimizer is not None and self.core_config.bf16_moments:
            raise _core.Error(
                f"[config bf16.bf16_optimizer_states] {type(optimizer).__name__}, an optimizer of torch, keeps states of its own, in "
                f"fp32. Remove the key, or use {configs.optimizer_names('or')} of the section optimizer."
            )
        self.world = world or join_world(self.core_config)
        self.module = model
        self.is_stepping = False  # the update is under way
        self._front: weakref.ref | None = None  # what stands around it for the user
        _prepare(model)
        aliases.check_none(model)
        if self.world.rank == 0:
            aliases.warn_of_unknown(model)
        modules = find_units(model, units)
        check_units(modules)
        self.names = {id(param): name for name, param in model.named_parameters()}
        self.unit_tuples = _declare(modules, param_groups.group_of(groups))
        self._indices: dict[str, int] | None = None
        self._owned_numels: dict[int, int] | None = None
        self._sharded: set[str] | None = None
        self.group_dicts = list(groups or [{"params": list(model.parameters())}])
        self.groups = [
            (
                float(group.get("lr", self.core_config.lr)),
                float(group.get("weight_decay", self.core_config.weight_decay)),
            )
            for group in (groups or [{}])
        ]
        construction.forget_shards(model)  # so that the core can give each one back as it takes the parameter over
        self.core: _core.Engine | None = _core.Engine(
            self.unit_tuples, self.core_config, self.world, self.groups, seed, device=self.device
        )
        devices.move_buffers(model, self.device)
        if self.world.size > 1:
            buffers.take_rank_0s(model, self.world)
        devices.make_current(self.device)  # the parameters' memory of before
        self.later: checkpoint.LaterSaves | None = None  # once save_later was called
        self.client: ClientOptimizer | None = None
        if optimizer is not None:
            index_of = {key: self._index(name) for key, name in self.names.items()}
            self.client = ClientOptimizer(optimizer, self.core, index_of, self.device, self.names)
            if names_another and self.world.rank == 0:
                warnings.warn("[config optimizer] has no effect: an optimizer was passed in.")
            if self.core_config.offloads_states and self.world.rank == 0:
                name = type(optimizer).__name__
                warnings.warn(f"[config offload_optimizer] the states of {name}, an optimizer of torch, stay in memory.")
        for name in configs.monitors_on(self.core_config) if self.world.rank == 0 else ():
            warnings.warn(f"[config {name}] has no effect: shoal.Engine logs nothing. Train through the package deepspeed, or log by yourself.")
        if self.core_config.inputs_on_host and self.device.type == "cuda" and self.world.rank == 0:
            warnings.warn(
                "[config activation_checkpointing.cpu_checkpointing] is for checkpoints of deepspeed.checkpointing: give the "
                "config to its configure(). Those of torch and of the model itself stay on the GPU."
            )
        self._units = modules
        self.trained = [(name, param) for name, param in model.named_parameters() if param.requires_grad]
        self._written = WrittenWeights(self)
        self._known_modules = KnownModules(model, self.names)
        leaves = leaf_seed.LeafSeed(self.device) if self.core_config.leaf_seed >= 0 else None
        self.uses = hooks.OpenUses(self.core, len(modules) - 1, leaves)
        self._watched = [module for path, module in modules if path] if self.core_config.stage == 3 else []
        for index, (_, module) in enumerate(modules):
            self.uses.handles += hooks.attach(module, index, self.uses)
            if module in self._watched:
                demand.watch(module, index, self.uses)
        sharded = {id(param) for _, param in params_of_units(modules)[-1][1] if self.is_sharded(param)}
        self.uses.handles += hooks.attach_alone(parts_of_root(modules, sharded) if sharded else [], self.uses)
        owners.add(self)
        clipping.watch(owner_of)
        module_calls.watch(owner_of)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            self.refuse_hooks()
        with self.explaining("forward"):
            return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def explaining(self, phase: str) -> Iterator[None]:
        """Around a pass: when the GPU's memory is full, the error says the unit, what the states take, and what would help."""
        try:
            yield
        except torch.OutOfMemoryError as error:
            core = self._live(phase)
            raise torch.OutOfMemoryError(core.explain_out_of_memory(phase, str(error))) from error

    def compile(self, **options: Any) -> None:
        """torch.compile, with its options, on the forward of each block that is a unit, in place. From then on a read of such
        a block's parameter outside the block gathers nothing, and raises at stage 3."""
        self._live("compile")
        for module in compiling.compile_units(self._units, self.device, options):
            demand.unwatch(module)

    def backward(self, loss: torch.Tensor, scale_by_accumulation: bool = True, retain_graph: bool = False) -> None:
        """Back-propagates the loss of this micro-step, divided by the accumulation steps."""
        core = self._live("backward")
        _check_loss("backward", loss)
        self.refuse_hooks()
        root = loss.float()
        scale = core.loss_scale
        scale *= core.begin_backward(root, engine_divides=scale_by_accumulation)
        try:
            with self.explaining("backward"):
                torch.autograd.backward(root, torch.full_like(root, scale, requires_grad=False), retain_graph=retain_graph)
        except BaseException as error:
            core.abandon_backward(str(error).partition("\n")[0] or type(error).__name__)
            raise
        core.finish_backward()

    def refuse_hooks(self) -> None:
        """Before a backward, which may be autograd's own: hooks of parameters that would see no gradient are an error."""
        own_gradients.refuse_hooks(self.trained)

    def refuse_writes(self, doing: str) -> None:
        """Before an update or a save: weights written in place that their masters or other ranks do not have are an error, and so is
        data that was put in their place."""
        self._live(doing).check_unchanged()
        self._written.refuse(doing)

    def unwritten(self, names: Iterable[str]) -> list[str]:
        """Those that nobody has written in place since the last step."""
        return self._written.unwritten(names)

    def forget_writes(self, names: Iterable[str]) -> None:
        """What was written of these parameters was in a gather: all ranks have it."""
        self._written.forget(names)

    @property
    def front(self) -> Any:
        """What the user has for this engine."""
        around = self._front() if self._front is not None else None
        return around if around is not None else self

    @front.setter
    def front(self, around: Any) -> None:
        self._front = weakref.ref(around)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of a step that is not to be taken, as torch's does; so do that of the model and of the optimizer. After
        step() there are none. Every rank calls it."""
        if self.core is None or self.core.accumulated == 0:
            return
        if not self.core.has_gradients:
            raise _core.Error(
                f"[zero_grad] {self.core.accumulated} of {self.core_config.accumulation_steps} micro-steps are accumulated: torch would drop them "
                "here, and DeepSpeed's ZeRO keeps them. Call it after the step() that ends a step, or engine.drop_gradients() to drop them."
            )
        self.drop_gradients()

    def drop_gradients(self) -> None:
        """Drops what has come since the last step, on every rank: the next backward begins a step."""
        self._live("drop_gradients").drop_gradients()

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale, for a backward() of its own. The engine divides by the accumulation steps."""
        core = self._live("scale")
        _check_loss("scale", loss)
        core.expect_scaled_loss()
        return loss.float() * core.loss_scale

    def step(self) -> _core.StepResult:
        """Ends the micro-step; at an accumulation boundary updates the weights."""
        core = self._live("step")
        own_gradients.refuse_set(self.trained)
        self.refuse_writes("step")
        self._known_modules.check()
        if self.client is not None:
            self.client.known.check()
        self.is_stepping = True
        try:
            result = core.step(functools.partial(self.client.update, core)) if self.client is not None else core.step()
        finally:
            self.is_stepping = False
        self._written.forget()
        if self.later is not None and result.boundary:
            self.later.poll()
        return result

    def save(self, folder: str | os.PathLike, step: int, keep_last: int = 0, extra: dict[str, str] | None = None) -> str:
        """Saves a checkpoint that any number of ranks can load, and returns its path. Every rank calls it, between passes. Between the
        micro-steps of a step it is of the last step, and what is accumulated stays in memory alone."""
        return checkpoint.save(self, folder, step, keep_last, extra)

    def save_later(self, folder: str | os.PathLike, step: int, keep_last: int = 0, extra: dict[str, str] | None = None) -> None:
        """save(), written behind training: takes a copy of the state in host memory (shoal.save_memory) and returns. The ranks
        notice in step() what has been written; wait_saved() waits for it. Until then the checkpoint is not there. One that is
        under way is waited for first. Buffers, and the states of an optimizer of torch, are written before it returns."""
        if self.later is None:
            self.later = checkpoint.LaterSaves(self)
        self.later.save(self, folder, step, keep_last, extra)

    def wait_saved(self) -> str | None:
        """Waits for the save that is under way, if any, and returns the path of the last that save_later() completed; None: none.
        Raises on every rank if it failed. Every rank calls it, at the end of a run for instance: destroy() waits too."""
        if self.later is None:
            return None
        saved = self.later.wait()
        return saved.path if saved is not None else None

    def load(self, path: str | os.PathLike) -> _core.LoadedCheckpoint:
        """Loads a checkpoint, or the latest of a folder. Every rank calls it. A save that is under way is waited for first."""
        return checkpoint.load(self, path)

    def memory(self) -> _core.MemoryReport:
        """Bytes of model states: planned, and held now."""
        return self._live("memory").memory()

    def read_state(self, name: str, kind: str) -> torch.Tensor | None:
        """One state of a parameter, whole, in fp32, in host memory; None if the optimizer keeps none. Every rank calls it."""
        return self._whole(self._index(name), self.owned_runs(name, kind))

    def owned_runs(self, name: str, kind: str) -> list[tuple[int, torch.Tensor]]:
        """What this rank owns of one state of a parameter, as (begin, fp32 values in host memory)."""
        index = self._index(name)
        if self.client is not None and kind != "weight":
            return self.client.owned_runs(kind, index)
        return self._live("state").owned_runs(_core.StateKind.__members__[kind], index)

    def owned_numel(self, name: str) -> int:
        """How many elements of a parameter this rank owns. The first time of a frozen one is between steps."""
        if self._owned_numels is None:
            self._owned_numels = {index: numel for index, _, numel in self._live("state").owned_parts()}
        index = self._index(name)
        if index not in self._owned_numels:
            self._owned_numels[index] = sum(values.numel() for _, values in self.owned_runs(name, "weight"))
        return self._owned_numels[index]

    def write_state(self, name: str, kind: str, value: torch.Tensor) -> None:
        """Writes one state of a parameter; every rank passes the same values. Between passes: after backward, the step that
        follows is taken from what was written."""
        core = self._live("state")
        if self.client is not None and kind != "weight":
            self.client.write(kind, self._index(name), value)
        else:
            core.edit_param(_core.StateKind.__members__[kind], self._index(name), value)
        if kind == "weight":
            core.finish_edits()

    def write_owned(self, name: str, kind: str, values: torch.Tensor) -> None:
        """Writes one state of a parameter; each rank passes the elements that it owns, in a row. Every rank calls it."""
        self.write_state(name, kind, self._joined(name, self.owned_runs(name, kind), values))

    def write_part(self, name: str, kind: str, value: torch.Tensor) -> None:
        """write_state for one of many: the last is followed by core.finish_restore."""
        if self.client is not None and kind != "weight":
            self.client.write(kind, self._index(name), value)
        else:
            self._live("state").write_param(_core.StateKind.__members__[kind], self._index(name), value)

    def read_grad(self, name: str) -> torch.Tensor | None:
        """The mean gradient of a parameter, whole, in fp32, in host memory. After backward, before step; every rank calls it."""
        return self._whole(self._index(name), self.owned_grads(name))

    def owned_grads(self, name: str) -> list[tuple[int, torch.Tensor]]:
        """What this rank owns of the mean gradient of a parameter, as (begin, fp32 values), without the loss scale."""
        core = self._live("gradient")
        return [(begin, values / core.loss_scale) for begin, values in core.gradient_runs(self._index(name))]

    def write_grad(self, name: str, value: torch.Tensor) -> None:
        """Puts another mean gradient in place of a parameter's, for the norm and the update of this step. After backward,
        before step; every rank passes the same values."""
        core = self._live("gradient")
        core.write_gradient(self._index(name), value.detach().float() * core.loss_scale)

    def write_owned_grads(self, name: str, values: torch.Tensor) -> None:
        """write_grad, where each rank passes the elements that it owns, in a row. Every rank calls it."""
        whole = self._joined(name, self.owned_grads(name), values)
        if whole is None:
            raise _core.Error(f"[gradient of {name}] no rank owns any of it: the parameter is frozen or empty.")
        self.write_grad(name, whole)

    def _index(self, name: str) -> int:
        if self._indices is None:
            infos = enumerate(self._live("state").params())
            self._indices = {each: index for index, info in infos for each in (info.name, *info.aliases)}
        if name not in self._indices:
            raise _core.Error(f"[state] there is no parameter {name}. Use the names of the module.")
        return self._indices[name]

    def _joined(self, name: str, runs: list[tuple[int, torch.Tensor]], values: torch.Tensor) -> torch.Tensor | None:
        """The whole of a parameter, of which each rank passes its runs, in a row."""
        numels = [run.numel() for _, run in runs]
        if values.numel() != sum(numels):
            raise _core.Error(f"[state of {name}] {values.numel()} values were passed, and this rank owns {sum(numels)}.")
        parts = values.detach().to("cpu", torch.float32).flatten().split(numels) if runs else []
        return self._whole(self._index(name), [(begin, part) for (begin, _), part in zip(runs, parts)])

    def _whole(self, index: int, runs: list[tuple[int, torch.Tensor]]) -> torch.Tensor | None:
        shape = self._live("state").params()[index].shape
        whole = torch.zeros(torch.Size(shape).numel() + 1, device="cpu", dtype=torch.float32)  # the last one counts who has something
        for begin, values in runs:
            whole[begin : begin + values.numel()] = values
            whole[-1] += 1
        _core.sum_over_ranks(self.world, whole)  # every element is one rank's, and zero elsewhere
        return whole[:-1].reshape(shape) if whole[-1].item() > 0 else None

    def destroy(self) -> None:
        """Gives memory back. At stage 3 the parameters stay sharded, for the next engine or for make_whole(). Waits for a save that
        is under way, so every rank calls it then, and raises if that or one that step() noticed has failed; while an exception is
        handled nobody waits, and that save is lost."""
        later, self.later = self.later, None
        try:
            if later is not None and sys.exc_info()[0] is None:
                later.wait()  # also where none is under way: one that failed in the last step is told
        finally:
            if later is not None:
                later.drop()
            self._take_off()

    def _take_off(self) -> None:
        self.uses.remove()
        for module in self._watched:
            demand.unwatch(module)
        self._watched = []
        self.core = None
        if self.client is not None:
            optimizer_calls.restore(self.client.optimizer)
        owners.remove(self)
        if not owners.any_lives():
            clipping.unwatch()
            module_calls.unwatch()

    def make_whole(self) -> None:
        """Destroys the engine and turns the parameters into ordinary, whole tensors. Every rank calls it."""
        self.destroy()
        _core.make_whole(self.unit_tuples, self.world)

    def is_sharded(self, param: nn.Parameter) -> bool:
        """Whether the parameter is one that this stage shards."""
        if self._sharded is None:
            self._sharded = {each for info in self._live("state").params() if info.sharded for each in (info.name, *info.aliases)}
        return self.names[id(param)] in self._sharded

    def unit_of(self, name: str) -> int:
        """The unit whose own parameter it is."""
        unit = self._live("unit").params()[self._index(name)].unit
        return next(index for index, (path, _) in enumerate(self.unit_tuples) if path == unit)

    def __reduce__(self) -> Any:
        raise TypeError("[engine] an engine cannot be copied or pickled. Save by save(), or copy engine.module whole under shoal.gathered.")

    def _live(self, place: str) -> _core.Engine:
        if self.core is None:
            raise _core.Error(f"[{place}] the engine was destroyed. Call initialize again.")
        return self.core


def _check_loss(place: str, loss: torch.Tensor) -> None:
    if not torch.is_tensor(loss):
        raise _core.Error(f"[{place}] the loss is {loss!r:.60}, and no tensor. Pass a scalar that the model computed.")
    if loss.numel() != 1 or not loss.requires_grad:
        has = "has" if loss.requires_grad else "has not"
        raise _core.Error(
            f"[{place}] the loss has {loss.numel()} elements and {has} a graph. Pass a scalar that the model computed."
        )


def _declare(modules: list, group_of: dict[int, int]) -> list:
    """Units for the core."""
    return [
        (unit, [(name, param, group_of.get(id(param), 0), False) for name, param in params])
        for unit, params in params_of_units(modules)
    ]


def _without_optimizer(config: str | os.PathLike | Mapping[str, Any]) -> dict[str, Any]:
    """The config for an engine whose weights are updated from outside: no states of the core's."""
    known = configs.load(config)
    if known.get("scheduler"):
        raise _core.Error(
            "[config scheduler] does not reach an optimizer that is passed in. Make a torch.optim.lr_scheduler over it."
        )
    return configs.with_section(known, "optimizer", {"type": "SGD", "params": {"lr": 0.0}})


def _prepare(model: nn.Module) -> None:
    """Gradients of before are not ours; parameters that stand empty get their shape."""
    for param in model.parameters():
        construction.find_shard(param)
    _core.restore_shapes(list(model.parameters()))
    for param in model.parameters():
        param.grad = None

"""DeepSpeedEngine: the surface of DeepSpeed's engine on shoal.Engine."""

from __future__ import annotations

import contextlib
import functools
import math
import types
import weakref
from typing import Any, Callable, Iterable, Iterator, Mapping

import torch
from torch import nn

import shoal
from shoal import durable, gathering, state
from shoal.engine import check_model
from shoal.known_groups import KnownGroups

from deepspeed import comm
from deepspeed.accelerator import rank_device
from deepspeed.ops.kernel_optimizer import KernelOptimizer
from deepspeed.runtime import checkpoint_load, checkpoint_plain, checkpoint_save, checkpoint_tag, client_states, first_states
from deepspeed.runtime import lr_schedules, optimizers, step_hooks
from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer
from deepspeed.runtime.buffer_dtypes import cast_buffers
from deepspeed.runtime.config import Source, check, translate, without_auto
from deepspeed.runtime.config_getters import ConfigGetters
from deepspeed.runtime.torch_autocast import autocast
from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload
from deepspeed.runtime.zero.partition_parameters import external_parameters, mark_sharded, unmark
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from deepspeed.utils.arguments import refuse
from deepspeed.utils.logging import warning_once
from deepspeed.utils.z3_leaf_module import apply_zero_leaf_module_config


class DeepSpeedEngine(ConfigGetters, nn.Module):
    """Made by deepspeed.initialize. What it has no attribute for is the model's."""

    def __init__(
        self,
        module: nn.Module,
        config: dict[str, Any],
        optimizer: torch.optim.Optimizer | Callable[[Iterable[Any]], torch.optim.Optimizer] | None = None,
        model_parameters: Iterable[Any] | None = None,
        lr_scheduler: Any = None,
        training_data: Any = None,
        collate_fn: Callable | None = None,
        source: Source = Source(),
    ):
        super().__init__()
        check_model(module)
        self.module = module
        self.config = config
        self._check_config(source, optimizer, lr_scheduler)
        apply_zero_leaf_module_config(module, self._section("zero_optimization").get("leaf_module"))
        basic = self._basic_optimizer(optimizer, model_parameters, source.origin)
        section = optimizers.section_of(basic, lr_scheduler) if basic is not None else None
        self.optimizer_type = section["type"] if section is not None else None
        outside = basic if section is None else None  # runs itself, on the shards
        self._frozen_for_inference = [] if basic is not None else _freeze(module)
        groups = basic.param_groups if basic is not None else None
        first = first_states.read(basic, section) if section is not None else None
        self._shoal = shoal.Engine(
            module,
            translate(config, section),
            groups=_with_rest(module, groups),
            optimizer=outside,
            device=_device_for(module),
        )
        with durable.undone_on_error(self._shoal.destroy):  # or nobody could, and the model would stay the engine's
            if section is not None:
                first_states.write(self._shoal, basic, first)
            self._set_up(basic, optimizer, section, lr_scheduler, training_data, collate_fn)

    def _set_up(
        self,
        basic: torch.optim.Optimizer | None,
        optimizer: Any,
        section: dict[str, Any] | None,
        lr_scheduler: Any,
        training_data: Any,
        collate_fn: Callable | None,
    ) -> None:
        """What stands around the engine. section: of an optimizer that is the engine's."""
        module, config = self.module, self.config
        if self._shoal.client is not None:
            self.optimizer_type = client_states.register(basic, self._shoal.client.keys)
        self.core_config = self._shoal.core_config
        cast_buffers(module, config, self.dtype)
        self.optimizer: Any = None
        if basic is not None:
            self.optimizer = self._optimizer_over(basic)
        elif self.zero_optimization_stage() == 3:
            self.optimizer = DeepSpeedZeRoOffload(module)
        self.basic_optimizer = basic
        self._known_groups = self._groups_of(basic) if section is not None else None
        self.client_optimizer = basic if optimizer is not None else None
        if basic is not None:
            _hold(basic, self)
        self.lr_scheduler = lr_schedules.make_scheduler(self.optimizer if basic is not None else None, basic, config, lr_scheduler)
        self.client_lr_scheduler = lr_scheduler
        self.global_steps = 0
        self.skipped_steps = 0
        self.micro_steps = 0
        self.micro_steps_at_boundary = 0  # when the last step ended: what checkpoints have
        self.global_samples = 0
        self._boundary: bool | None = None
        self._coalescing = False
        self._inside_no_sync = False
        self._last_norm: float | None = None
        self._step_applied = False
        self._is_compiled = False
        self.training_dataloader = self.deepspeed_io(training_data, collate_fn=collate_fn) if training_data is not None else None
        if self.zero_optimization_stage() == 3:
            for param in module.parameters():
                mark_sharded(param, persists=not self._shoal.is_sharded(param))
            for each in module.modules():
                external_parameters(each)
            if isinstance(self.optimizer, DeepSpeedOptimizer):
                self.optimizer.parameter_offload = DeepSpeedZeRoOffload(module)

    def _groups_of(self, basic: torch.optim.Optimizer) -> KnownGroups:
        groups = self._shoal.group_dicts
        rest = groups[-1]["params"] if len(groups) > len(basic.param_groups) else ()
        return KnownGroups(basic, self._shoal.names, runs_itself=False, rest=rest)

    def _optimizer_over(self, basic: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """What initialize returns: at stage 0 in fp32 the optimizer itself, as DeepSpeed does, else one over it."""
        stage = self.zero_optimization_stage()
        if isinstance(basic, KernelOptimizer):
            basic.held_by_engine = True
        if stage == 0 and self.dtype == torch.float32:
            basic.overflow = False
            return basic
        kind = (DeepSpeedOptimizer, DeepSpeedZeroOptimizer, DeepSpeedZeroOptimizer, DeepSpeedZeroOptimizer_Stage3)[stage]
        optimizer = kind(basic)
        optimizer.engine = self
        return optimizer

    def _check_config(self, source: Source, optimizer: Any, lr_scheduler: Any) -> None:
        """All of it, before anything is made of it; what is passed in stands in place of a section."""
        section, schedule = without_auto(self.config.get("optimizer")), without_auto(self.config.get("scheduler"))
        if section and optimizer is not None:
            warning_once("[config optimizer] has no effect: an optimizer was passed in.")
            section = None
        if schedule and (lr_scheduler is not None or not (section or optimizer is not None)):
            reason = "a schedule was passed in" if lr_scheduler is not None else "there is no optimizer"
            warning_once(f"[config scheduler] has no effect: {reason}.")
            schedule = None
        check(
            self.config,
            source,
            optimizers.to_check(section) if section else None,
            lr_schedules.to_check(schedule) if schedule else None,
        )

    def _basic_optimizer(self, optimizer: Any, model_parameters: Any, origin: str) -> torch.optim.Optimizer | None:
        if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
            made = optimizer(list(model_parameters or self.module.parameters())) if callable(optimizer) else optimizer
            if not isinstance(made, torch.optim.Optimizer):
                raise shoal.Error(
                    f"[initialize] optimizer is {made!r:.60}. Pass an optimizer of torch, or a function that makes one of parameters."
                )
            return made
        if optimizer is not None:
            return optimizer
        section = without_auto(self.config.get("optimizer"))
        if not section:
            return None
        params = list(model_parameters) if model_parameters is not None else []
        if not params:
            params = [param for param in self.module.parameters() if param.requires_grad]
        if not params:
            raise shoal.Error(
                "[initialize] every parameter of the model is frozen, and the config has an optimizer. Leave it out for inference."
            )
        return optimizers.from_config(section, params, origin)

    def __reduce__(self) -> Any:
        raise TypeError(
            "[engine] an engine cannot be copied or pickled. Use save_checkpoint, or copy engine.module under GatheredParameters."
        )

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name in ("module", "__deepcopy__"):  # a copy of the model would pass for one of the engine
                raise
            return getattr(super().__getattr__("module"), name)

    # Training.

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._tell_boundary()  # a backward that is not the engine's may follow
        if torch.is_grad_enabled():
            self._shoal.refuse_hooks()
        if self.fp16_auto_cast():
            args, kwargs = _to_half(args), _to_half(kwargs)
        with self._shoal.explaining("forward"), autocast(self.torch_autocast_dtype(), self.device):
            return self.module(*args, **kwargs)

    def backward(
        self,
        loss: torch.Tensor,
        retain_graph: bool = False,
        scale_wrt_gas: bool = True,
        allreduce_gradients: bool = True,
    ) -> torch.Tensor:
        if not allreduce_gradients:
            raise shoal.Error("[backward] allreduce_gradients=False is not supported. Call backward inside no_sync().")
        if self.basic_optimizer is None:
            raise shoal.Error("[backward] the engine has no optimizer: it was made for inference. Give it one.")
        self._tell_boundary()
        self._shoal.backward(loss, scale_by_accumulation=scale_wrt_gas, retain_graph=retain_graph)
        if self._inside_no_sync:
            self.micro_steps += 1  # no step() follows, which counts the others
        return loss / self.gradient_accumulation_steps() if scale_wrt_gas else loss

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale, for loss.backward() without the engine."""
        if self.basic_optimizer is None:
            raise shoal.Error("[scale] the engine has no optimizer: it was made for inference. Give it one.")
        return self._shoal.scale(loss)

    def step(self, lr_kwargs: dict[str, Any] | None = None) -> None:
        if self._coalescing:
            raise shoal.Error("[step] is called inside coalesce_grad_reduction. Leave it first: one block is one step.")
        if self.basic_optimizer is None:
            raise shoal.Error("[step] the engine has no optimizer: it was made for inference. Give it one.")
        backwards = self._shoal._live("step").accumulated
        around = step_hooks.of(self) if self._ends_step() and backwards > 0 else ()
        step_hooks.call_before(around)
        self._take_groups()
        self._tell_boundary()
        result = self._shoal.step()
        if result.applied:
            step_hooks.call_after(around)
        self.micro_steps += 1
        self._tell_boundary()
        self._step_applied = result.applied
        if not result.boundary:
            return
        self.global_steps += 1
        self.micro_steps_at_boundary = self.micro_steps
        if self.managed_gradient_accumulation():
            self.global_samples += self.train_batch_size()
        else:
            self.global_samples += backwards * self.train_micro_batch_size_per_gpu() * self.world_size
        self.skipped_steps = result.skipped_steps
        self._last_norm = result.grad_norm
        self.optimizer.overflow = not result.applied
        if result.applied and self.lr_scheduler is not None:
            self.lr_scheduler.step(**(lr_kwargs or {}))

    def named_groups(self) -> list[list[tuple[str, int]]]:
        """The trained parameters of each group of the optimizer, as (name, numel)."""
        names = self._shoal.names
        return [
            [(names[id(param)], param.numel()) for param in group["params"] if param.requires_grad and id(param) in names]
            for group in self._shoal.group_dicts
        ]

    def own_weights(self) -> list[torch.Tensor]:
        """Of each group of the optimizer what this rank owns of the fp32 weights, in a row. Between steps."""
        self._shoal._live("state")
        found = []
        for group in self.basic_optimizer.param_groups:
            trained = [param for param in group["params"] if param.requires_grad and id(param) in self._shoal.names]
            parts = [state.read_own(param, "weight") for param in trained]
            found.append(torch.cat([torch.empty(0, device=self.device), *parts]))
        return found

    def _ends_step(self) -> bool:
        """Whether the step() of now updates weights."""
        return not self.managed_gradient_accumulation() or self.is_gradient_accumulation_boundary()

    def _take_groups(self) -> None:
        groups = self.basic_optimizer.param_groups
        if self._known_groups is not None:
            self._known_groups.check()
            first_states.refuse_late(self.basic_optimizer)
        values = [(float(group["lr"]), float(group.get("weight_decay", 0.0))) for group in groups]
        values += [(0.0, 0.0)] * (len(self._shoal.groups) - len(values))
        core = self._shoal._live("step")
        for number, (lr, weight_decay) in enumerate(values):
            if not (math.isfinite(lr) and math.isfinite(weight_decay)):
                raise shoal.Error(
                    f"[step] lr and weight_decay of the optimizer's group {number} are {lr} and {weight_decay}. Give numbers."
                )
        core.set_groups(values)
        if self._shoal.client is None and "betas" in groups[0]:
            unlike = [tuple(group["betas"]) for group in groups if tuple(group["betas"]) != tuple(groups[0]["betas"])]
            if unlike:
                raise shoal.Error(
                    f"[step] groups have betas {tuple(groups[0]['betas'])} and {unlike[0]}: the engine has one pair for all groups. "
                    "Give the schedule one momentum."
                )
            core.set_betas(*(float(beta) for beta in groups[0]["betas"]))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drops the gradients of a step that is not to be taken. After step() there are none."""
        core = self._shoal.core
        if core is None or core.accumulated == 0:
            return
        counted = self.managed_gradient_accumulation() and self._boundary is None
        if counted and not core.has_gradients:
            raise shoal.Error(
                f"[zero_grad] {core.accumulated} of {self.gradient_accumulation_steps()} micro-steps are accumulated: torch would "
                "drop them here, and DeepSpeed's ZeRO keeps them. Call it after the step() that ends a step, or "
                "engine.drop_gradients() to drop them."
            )
        core.drop_gradients()

    def drop_gradients(self) -> None:
        """Drops what has come since the last step, on every rank: the next backward begins a step."""
        if self._shoal.core is not None:
            self._shoal.core.drop_gradients()

    def is_gradient_accumulation_boundary(self) -> bool:
        if self._boundary is not None:
            return self._boundary
        if not self.managed_gradient_accumulation():
            return False  # the user ends steps, by step()
        return (self.micro_steps + 1) % self.gradient_accumulation_steps() == 0

    def set_gradient_accumulation_boundary(self, is_boundary: bool | None) -> None:
        if is_boundary not in (None, False, True):
            raise shoal.Error(f"[boundary] {is_boundary!r} is no boundary. Pass True, False or None.")
        if not self.managed_gradient_accumulation():
            raise shoal.Error("[boundary] with managed_gradient_accumulation false, each step() ends a step. Set no boundary.")
        self._boundary = is_boundary
        self._tell_boundary()

    def _tell_boundary(self) -> None:
        """DeepSpeed counts calls of step(), and the core backwards: what the former says holds."""
        if self._shoal.core is not None and self.managed_gradient_accumulation():
            self._shoal.core.set_boundary(self.is_gradient_accumulation_boundary())

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards inside end no step."""
        before, outer = self._boundary, self._inside_no_sync
        self._inside_no_sync = True
        self.set_gradient_accumulation_boundary(False)
        try:
            yield
        finally:
            self._inside_no_sync = outer
            self.set_gradient_accumulation_boundary(before)

    @contextlib.contextmanager
    def coalesce_grad_reduction(self) -> Iterator[None]:
        """Backwards inside add up, and step() after it takes them together. Each is reduced as it comes: the sum is the same."""
        if self._coalescing or not self.managed_gradient_accumulation() or self.zero_optimization_stage() == 0:
            what = "is open already" if self._coalescing else "needs managed_gradient_accumulation, and a stage of 1 to 3"
            raise NotImplementedError(f"[coalesce_grad_reduction] it {what}.")
        before = self._boundary
        self._coalescing = True
        self.set_gradient_accumulation_boundary(True)
        try:
            yield
        finally:
            self._coalescing = False
            self.set_gradient_accumulation_boundary(before)

    def was_step_applied(self) -> bool:
        return self._step_applied

    def get_global_grad_norm(self) -> float | None:
        return self._last_norm

    def allreduce_gradients(self, *args: Any, **kwargs: Any) -> None:
        """Gradients are reduced in backward."""

    # Where it runs.

    @property
    def cur_scale(self) -> float:
        """The loss scale of now; loss_scale() is the config's."""
        return self._shoal._live("loss scale").loss_scale

    @property
    def device(self) -> torch.device:
        return self._shoal.device

    @property
    def dtype(self) -> torch.dtype:
        return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[self.core_config.precision.name]

    @property
    def global_rank(self) -> int:
        return self._shoal.world.rank

    @property
    def world_size(self) -> int:
        return self._shoal.world.size

    @property
    def local_rank(self) -> int:
        return comm.get_local_rank()

    def get_lr(self) -> list[float]:
        return [group["lr"] for group in self.basic_optimizer.param_groups]

    def get_type(self) -> list[str]:
        return [type(self.basic_optimizer).__name__]

    def get_mom(self) -> list[Any]:
        return [group.get("betas", group.get("momentum")) for group in self.basic_optimizer.param_groups]

    # Saving and loading.

    def module_state_dict(
        self, destination: Any = None, prefix: str = "", keep_vars: bool = False, exclude_frozen_parameters: bool = False
    ) -> dict[str, torch.Tensor]:
        values = self.module.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        if exclude_frozen_parameters:
            for name, param in self.module.named_parameters(remove_duplicate=False):
                if not param.requires_grad:
                    values.pop(prefix + name, None)
        return values

    def load_module_state_dict(self, checkpoint: dict[str, Any], strict: bool = True, custom_load_fn: Any = None) -> None:
        """Takes the weights of rank 0. checkpoint: a state dict under "module", as in DeepSpeed's files, or the dict itself."""
        refuse("load_module_state_dict", "Load them yourself under zero.GatheredParameters.", custom_load_fn=custom_load_fn)
        if not isinstance(checkpoint, Mapping):
            raise shoal.Error(f"[load_module_state_dict] {checkpoint!r:.60} is no state dict. Pass one, or one under \"module\".")
        inner = checkpoint.get("module")
        with shoal.gathered(self.module.parameters(), written_by=0):
            self.module.load_state_dict(inner if isinstance(inner, dict) else checkpoint, strict=strict)

    def _zero3_consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> dict | None:
        return state.consolidate(self._shoal, exclude_frozen=exclude_frozen_parameters)

    def _consolidated_16bit_state_dict(self, exclude_frozen_parameters: bool = False) -> dict | None:
        return state.consolidate(self._shoal, exclude_frozen=exclude_frozen_parameters)

    def save_16bit_model(self, save_dir: str, save_filename: str = "pytorch_model.bin", exclude_frozen_parameters: bool = False) -> bool:
        return checkpoint_save.save_model(self, save_dir, save_filename, exclude_frozen_parameters)

    save_fp16_model = save_16bit_model

    def save_checkpoint(
        self,
        save_dir: str,
        tag: str | None = None,
        client_state: dict[str, Any] | None = None,
        save_latest: bool = True,
        exclude_frozen_parameters: bool = False,
    ) -> bool:
        if client_state is not None and not isinstance(client_state, Mapping):
            raise shoal.Error(f"[save_checkpoint] client_state is {client_state!r:.60}. Pass a dict.")
        tag = checkpoint_tag.agree(self, str(tag) if tag is not None else f"global_step{self.global_steps}")
        writer = checkpoint_plain.PlainWriter if self.zero_optimization_stage() == 0 else checkpoint_save.Writer
        return checkpoint_save.save(self, save_dir, tag, client_state or {}, save_latest, exclude_frozen_parameters, writer)

    def load_checkpoint(
        self,
        load_dir: str,
        tag: str | None = None,
        load_module_strict: bool = True,
        load_optimizer_states: bool = True,
        load_lr_scheduler_states: bool = True,
        load_module_only: bool = False,
        custom_load_fn: Any = None,
    ) -> tuple[str | None, dict[str, Any] | None]:
        refuse("load_checkpoint", "Load the weights yourself under zero.GatheredParameters.", custom_load_fn=custom_load_fn)
        client = self._shoal.client
        what = checkpoint_load.Wanted(
            strict=load_module_strict,
            optimizer=load_optimizer_states and not load_module_only,
            scheduler=load_lr_scheduler_states and not load_module_only,
        )
        before = client.take_states() if client is not None and what.optimizer else {}
        with durable.undone_on_error(lambda: client.put_states(before) if client is not None else None):
            found = checkpoint_load.load(self, load_dir, tag, what)
        if found[0] is None:
            if client is not None:
                client.put_states(before)
        elif client is not None and what.optimizer:
            client.set_step(self._shoal.core.progress().applied_steps)
        return found

    # The rest.

    def deepspeed_io(
        self,
        dataset: Any,
        batch_size: int | None = None,
        route: str = "train",
        pin_memory: bool = True,
        data_sampler: Any = None,
        collate_fn: Callable | None = None,
        num_local_io_workers: int | None = None,
    ) -> Any:
        """A loader of this rank's part of the data: shuffled for the route "train", in order for others."""
        if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
            raise shoal.Error(
                f"[initialize] training_data is {dataset!r:.60}, and has no length or no items. Pass a torch.utils.data.Dataset, or "
                "make the loader yourself."
            )
        world = self._shoal.world
        sampler = data_sampler or torch.utils.data.DistributedSampler(
            dataset, num_replicas=world.size, rank=world.rank, shuffle=route == "train"
        )
        return torch.utils.data.DataLoader(
            dataset,
            batch_size=batch_size or self.train_micro_batch_size_per_gpu(),
            sampler=sampler,
            collate_fn=collate_fn,
            num_workers=num_local_io_workers or 0,
            pin_memory=pin_memory and self.device.type == "cuda",
            drop_last=bool(self.config.get("dataloader_drop_last")),
        )

    def set_train_batch_size(self, train_batch_size: int) -> None:
        if train_batch_size != self.train_batch_size():
            raise shoal.Error("[set_train_batch_size] the batch cannot change under an engine. Call initialize again.")

    def set_train_micro_batch_size(self, micro_batch_size: int) -> None:
        if micro_batch_size != self.train_micro_batch_size_per_gpu():
            raise shoal.Error("[set_train_micro_batch_size] the batch cannot change under an engine. Call initialize again.")

    def offload_states(self, *args: Any, **kwargs: Any) -> None:
        raise shoal.Error("[offload_states] states do not move during a run. Use offload_optimizer, or destroy the engine.")

    def reload_states(self, *args: Any, **kwargs: Any) -> None:
        raise shoal.Error("[reload_states] states do not move during a run. Use offload_optimizer, or destroy the engine.")

    def compile(
        self,
        backend: Any = "inductor",
        compile_kwargs: dict[str, Any] | None = None,
        schedule: Any = None,
        compiled_autograd_enabled: bool = False,
    ) -> None:
        """torch.compile on the forward of each block, in place. A second call does nothing."""
        refuse(
            "compile",
            "The forwards of blocks are compiled, each by itself; leave it out.",
            schedule=schedule,
            compiled_autograd_enabled=compiled_autograd_enabled,
        )
        if self.is_compiled:
            return
        options = dict(compile_kwargs or {})
        if "backend" in options:
            warning_once("[compile] backend in compile_kwargs has no effect: the argument backend counts.")
        self._shoal.compile(**options | {"backend": backend})
        self._is_compiled = True

    @property
    def is_compiled(self) -> bool:
        return self._is_compiled

    def empty_partition_cache(self) -> None:
        """Nothing is kept gathered between passes."""

    def destroy(self) -> None:
        if self._shoal.core is None:
            return
        self._shoal.destroy()
        if self.basic_optimizer is not None:
            _let_go(self.basic_optimizer)
        if isinstance(self.basic_optimizer, KernelOptimizer):
            self.basic_optimizer.held_by_engine = False
        for param in self._frozen_for_inference:
            param.requires_grad_(True)
        if self.zero_optimization_stage() == 3:
            for param in self.module.parameters():
                if not gathering.is_sharded(param):
                    unmark(param)


def _hold(optimizer: torch.optim.Optimizer, engine: DeepSpeedEngine) -> None:
    """zero_grad() and step() of an optimizer that is the engine's: the first drops the engine's gradients, the second is its own."""
    target = weakref.ref(engine)
    before = vars(optimizer).get("step")  # of a schedule of torch, which counts calls

    def zero_grad(self: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        type(self).zero_grad(self, set_to_none)
        if target() is not None:
            target().zero_grad(set_to_none)

    @functools.wraps(before or type(optimizer).step)
    def step(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        if target() is not None and not target()._shoal.stepping:
            raise shoal.Error(f"[{type(self).__name__}] is an engine's, which updates by itself. Call engine.step().")
        return before(*args, **kwargs) if before is not None else type(self).step(self, *args, **kwargs)

    step.before = before
    optimizer.zero_grad = types.MethodType(zero_grad, optimizer)
    optimizer.step = types.MethodType(step, optimizer)


def _let_go(optimizer: torch.optim.Optimizer) -> None:
    vars(optimizer).pop("zero_grad", None)
    held = vars(optimizer).pop("step", None)
    before = getattr(held, "before", None)
    if before is not None:
        optimizer.step = before


def _device_for(module: nn.Module) -> torch.device:
    """A model on a GPU stays there; others are brought to the accelerator."""
    on_gpus = {param.device for param in module.parameters() if param.is_cuda}
    return on_gpus.pop() if len(on_gpus) == 1 else rank_device()


def _freeze(module: nn.Module) -> list[nn.Parameter]:
    """Without an optimizer nothing is trained, and nothing is kept for training."""
    frozen = [param for param in module.parameters() if param.requires_grad]
    for param in frozen:
        param.requires_grad_(False)
    return frozen


def _with_rest(module: nn.Module, groups: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """The groups, and one that stands still for parameters that the optimizer was not given."""
    if groups is None:
        return None
    given = {id(param) for group in groups for param in group["params"]}
    rest = [param for param in module.parameters() if param.requires_grad and id(param) not in given]
    return [*groups, {"params": rest, "lr": 0.0, "weight_decay": 0.0}] if rest else list(groups)


def _to_half(value: Any) -> Any:
    if torch.is_tensor(value):
        return value.half() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(_to_half(inner) for inner in value)
    if isinstance(value, dict):
        return {key: _to_half(inner) for key, inner in value.items()}
    return value

"""DeepSpeedEngine: the surface of DeepSpeed's engine on shoal.Engine."""

from __future__ import annotations

from typing import Any, Callable, Iterable

import torch
from torch import nn

import shoal
from shoal import durable, gathering, optimizer_calls, state
from shoal.engine import check_model
from shoal.known_groups import KnownGroups

from deepspeed import comm
from deepspeed.accelerator import rank_device
from deepspeed.ops.kernel_optimizer import KernelOptimizer
from deepspeed.runtime import client_states, first_states, group_settings, lr_schedules, optimizers
from deepspeed.runtime import observing, step_hooks
from deepspeed.runtime.accumulation import Accumulation, NoSyncError
from deepspeed.runtime.base_optimizer import DeepSpeedOptimizer
from deepspeed.runtime.buffer_dtypes import cast_buffers
from deepspeed.runtime.checkpoint_methods import CheckpointMethods
from deepspeed.runtime.config_translation import Source, check, translate, without_auto
from deepspeed.runtime.torch_autocast import autocast
from deepspeed.runtime.zero.parameter_offload import DeepSpeedZeRoOffload
from deepspeed.runtime.zero.partition_parameters import external_parameters, mark_sharded, unmark
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer
from deepspeed.utils.arguments import refuse
from deepspeed.utils.logging import warning_once
from deepspeed.utils.z3_leaf_module import apply_zero_leaf_module_config


class DeepSpeedEngine(Accumulation, CheckpointMethods, nn.Module):
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
        named = without_auto(config.get("optimizer"))
        basic = optimizers.choose(optimizer, named, module, model_parameters, source.origin)
        section = optimizers.section_of(basic, lr_scheduler) if basic is not None else None
        self.optimizer_type = section["type"] if section is not None else None
        outside = basic if section is None else None  # runs itself, on the shards
        self._frozen_for_inference = [] if basic is not None else _freeze(module)
        groups = basic.param_groups if basic is not None else None
        first = first_states.read(basic, section) if section is not None else None
        self._shoal = shoal.Engine(
            module,
            translate(config, section),
            groups=group_settings.with_rest(module, groups),
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
        comm.configure(self._observed)
        self.monitor = observing.open_monitor(self._observed, self._shoal.world)
        cast_buffers(module, config, self.dtype)
        self.optimizer: Any = None
        if basic is not None:
            self.optimizer = self._optimizer_over(basic)
        elif self.zero_optimization_stage() == 3:
            self.optimizer = DeepSpeedZeRoOffload(module)
        self.basic_optimizer = basic
        self._known_groups = self._groups_of(basic) if section is not None else None
        self.client_optimizer = basic if optimizer is not None else None
        self._shoal.front = self
        if basic is not None:
            optimizer_calls.redirect(basic, self)
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
        self._observer = observing.Observer(self, self.monitor)
        if self.dump_state():
            observing.dump_state(self)

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
        if self._shoal.core is None and self.training and torch.is_grad_enabled():
            raise shoal.Error(
                "[forward] the engine was destroyed. Call initialize again. A Trainer of transformers destroys its engine when train() "
                "begins, and goes on with it where there was an evaluate() or a train() before: then set trainer.model_wrapped = "
                "trainer.model first."
            )
        self._tell_boundary()  # a backward that is not the engine's may follow
        if torch.is_grad_enabled():
            self._shoal.refuse_hooks()
        if self.fp16_auto_cast():
            args, kwargs = _to_half(args), _to_half(kwargs)
        with self._observer.forward(), self._shoal.explaining("forward"), autocast(self.torch_autocast_dtype(), self.device):
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
        with self._observer.backward():
            self._shoal.backward(loss, scale_by_accumulation=scale_wrt_gas, retain_graph=retain_graph)
        if self._inside_no_sync:
            self.micro_steps += 1  # no step() follows, which counts the others
        scaled = loss / self.gradient_accumulation_steps() if scale_wrt_gas else loss
        self._observer.take_loss(scaled)
        return scaled

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss times the loss scale, for loss.backward() without the engine."""
        if self.basic_optimizer is None:
            raise shoal.Error("[scale] the engine has no optimizer: it was made for inference. Give it one.")
        return self._shoal.scale(loss)

    @property
    def is_stepping(self) -> bool:
        """The update is under way."""
        return self._shoal.is_stepping

    def step(self, lr_kwargs: dict[str, Any] | None = None) -> None:
        if self._inside_no_sync:
            raise NoSyncError("[step] is called inside no_sync, whose backwards end no step. Leave it first.")
        if self._coalescing:
            raise shoal.Error("[step] is called inside coalesce_grad_reduction. Leave it first: one block is one step.")
        if self.basic_optimizer is None:
            raise shoal.Error("[step] the engine has no optimizer: it was made for inference. Give it one.")
        with self._observer.step():
            is_boundary = self._step(lr_kwargs)
        self._observer.after_step(is_boundary)

    def _step(self, lr_kwargs: dict[str, Any] | None) -> bool:
        """Whether it ended a step."""
        backwards = self._shoal._live("step").accumulated
        around = step_hooks.of(self) if self._ends_step() and backwards > 0 else ()
        step_hooks.call_before(around)
        group_settings.take(self)
        self._tell_boundary()
        result = self._shoal.step()
        if result.applied:
            step_hooks.call_after(around)
        self.micro_steps += 1
        self._tell_boundary()
        self._step_applied = result.applied
        if not result.boundary:
            return False
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
        return True

    @property
    def timers(self) -> Any:
        return self._observer.timers

    @property
    def tput_timer(self) -> Any:
        return self._observer.throughput

    @property
    def flops_profiler(self) -> Any:
        return self._observer.profiler

    @property
    def summary_events(self) -> list[tuple[str, Any, int]]:
        """What the monitors were given last."""
        return self._observer.events

    def get_wall_clock_timers(self) -> dict[str, float]:
        """Milliseconds by name at the last step(), with wall_clock_breakdown."""
        return self._observer.cache

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
        self._observer.settle()
        self._shoal.destroy()
        if self.basic_optimizer is not None:
            optimizer_calls.restore(self.basic_optimizer)
        if isinstance(self.basic_optimizer, KernelOptimizer):
            self.basic_optimizer.held_by_engine = False
        for param in self._frozen_for_inference:
            param.requires_grad_(True)
        if self.zero_optimization_stage() == 3:
            for param in self.module.parameters():
                if not gathering.is_sharded(param):
                    unmark(param)


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


def _to_half(value: Any) -> Any:
    if torch.is_tensor(value):
        return value.half() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(_to_half(inner) for inner in value)
    if isinstance(value, dict):
        return {key: _to_half(inner) for key, inner in value.items()}
    return value

"""What DeepSpeed's engine answers about its config. DeepSpeedEngine inherits it; nothing here does anything."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any, Mapping

import torch

from deepspeed.runtime.config_object import DeepSpeedConfig, observed_sections
from deepspeed.runtime.torch_autocast import GRAD_SCALER, autocast_dtype


class ConfigGetters:
    """Of an engine with `config`, as the user gave it, and `core_config`, as Shoal read it."""

    config: Mapping[str, Any]
    core_config: Any
    client_optimizer: Any

    def zero_optimization_stage(self) -> int:
        return self.core_config.stage

    def zero_optimization(self) -> bool:
        return self.core_config.stage > 0

    def zero_optimization_partition_weights(self) -> bool:
        return self.core_config.stage == 3

    def zero_optimization_partition_gradients(self) -> bool:
        return self.core_config.stage >= 2

    def train_batch_size(self) -> int:
        return self.core_config.train_batch_size

    def train_micro_batch_size_per_gpu(self) -> int:
        return self.core_config.micro_batch_size

    def gradient_accumulation_steps(self) -> int:
        return self.core_config.accumulation_steps

    def gradient_clipping(self) -> float:
        return self.core_config.gradient_clipping

    def fp16_enabled(self) -> bool:
        return self.core_config.precision.name == "fp16"

    def fp16_auto_cast(self) -> bool:
        return self.fp16_enabled() and self._section("fp16").get("auto_cast", False)

    def bfloat16_enabled(self) -> bool:
        return self.core_config.precision.name == "bf16"

    def torch_autocast_enabled(self) -> bool:
        return autocast_dtype(self.config) is not None

    def torch_autocast_dtype(self) -> torch.dtype | None:
        return autocast_dtype(self.config)

    def managed_gradient_accumulation(self) -> bool:
        return self.core_config.managed_gradient_accumulation

    @functools.cached_property
    def _config(self) -> DeepSpeedConfig:
        """The config as DeepSpeed's object, with the batch that the engine runs."""
        batch = {
            "train_batch_size": self.train_batch_size(),
            "train_micro_batch_size_per_gpu": self.train_micro_batch_size_per_gpu(),
            "gradient_accumulation_steps": self.gradient_accumulation_steps(),
        }
        return DeepSpeedConfig({**self.config, **batch})

    @functools.cached_property
    def _observed(self) -> SimpleNamespace:
        return observed_sections({key: value for key, value in self.config.items() if value != "auto"})

    def steps_per_print(self) -> Any:
        return self.config.get("steps_per_print")

    def zero_gather_16bit_weights_on_model_save(self) -> bool:
        zero = self._section("zero_optimization")
        names = ("gather_16bit_weights_on_model_save", "gather_fp16_weights_on_model_save")
        return any(bool(zero.get(prefix + name)) for prefix in ("stage3_", "") for name in names)

    def dump_state(self) -> bool:
        return self._observed.dump_state

    def wall_clock_breakdown(self) -> bool:
        return self._observed.wall_clock_breakdown

    def memory_breakdown(self) -> bool:
        return self._observed.memory_breakdown

    def flops_profiler_enabled(self) -> bool:
        return self._observed.flops_profiler_config.enabled

    def flops_profiler_recompute_fwd_factor(self) -> float:
        return self._observed.flops_profiler_config.recompute_fwd_factor

    def flops_profiler_profile_step(self) -> int:
        return self._observed.flops_profiler_config.profile_step

    def flops_profiler_module_depth(self) -> int:
        return self._observed.flops_profiler_config.module_depth

    def flops_profiler_top_modules(self) -> int:
        return self._observed.flops_profiler_config.top_modules

    def flops_profiler_detailed(self) -> bool:
        return self._observed.flops_profiler_config.detailed

    def flops_profiler_output_file(self) -> str | None:
        return self._observed.flops_profiler_config.output_file

    def get_batch_info(self) -> tuple[int, int, int]:
        return self.train_batch_size(), self.train_micro_batch_size_per_gpu(), self.gradient_accumulation_steps()

    def loss_scale(self) -> float:
        """The config's: 0 for a scale that adapts. The scale of now is engine.cur_scale, or optimizer.cur_scale."""
        return float(self.loss_scale_settings().get("loss_scale", 0.0))

    def dynamic_loss_scale(self) -> bool:
        return (self.fp16_enabled() or self.core_config.scales_loss) and self.loss_scale() == 0

    def loss_scale_settings(self) -> Mapping[str, Any]:
        """The section fp16; of torch_autocast in float16, what stands in its place."""
        return GRAD_SCALER if self.core_config.scales_loss else self._section("fp16")

    def fp16_master_weights_and_gradients(self) -> bool:
        return self.fp16_enabled() and self.core_config.narrow_masters

    def bf16_master_weights_and_gradients(self) -> bool:
        return self.bfloat16_enabled() and self.core_config.narrow_masters

    def bf16_optimizer_states(self) -> bool:
        return self.core_config.bf16_moments

    def optimizer_name(self) -> str | None:
        """The class of the optimizer that was passed in, or the config's word."""
        if self.client_optimizer is not None:
            return type(self.client_optimizer).__name__
        return self._section("optimizer").get("type")

    def optimizer_params(self) -> dict[str, Any] | None:
        return self._section("optimizer").get("params")

    def scheduler_name(self) -> str | None:
        return self._section("scheduler").get("type")

    def scheduler_params(self) -> dict[str, Any] | None:
        return self._section("scheduler").get("params")

    def zero_offload_optimizer(self) -> dict[str, Any] | None:
        return self._section("zero_optimization").get("offload_optimizer")

    def zero_offload_param(self) -> dict[str, Any] | None:
        return self._section("zero_optimization").get("offload_param")

    def zero_cpu_offload(self) -> bool:
        return (self.zero_offload_optimizer() or {}).get("device") == "cpu"

    def _section(self, name: str) -> dict[str, Any]:
        """What the user wrote there; "auto" stands for the default."""
        section = self.config.get(name)
        return {key: value for key, value in section.items() if value != "auto"} if isinstance(section, Mapping) else {}

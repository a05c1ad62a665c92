"""DeepSpeedConfig: a config as an object that can be read. Values are as they were written, with DeepSpeed's defaults; whether
the engine takes them is told by initialize."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Mapping

import torch

from shoal.world import world_size

from deepspeed.comm.config import DeepSpeedCommsConfig
from deepspeed.compile.config import CompileConfig
from deepspeed.monitor.config import get_monitor_config
from deepspeed.profiling.config import DeepSpeedFlopsProfilerConfig
from deepspeed.runtime.activation_checkpointing.config import DeepSpeedActivationCheckpointingConfig
from deepspeed.runtime.config_errors import DeepSpeedConfigError
from deepspeed.runtime.config_translation import load_config
from deepspeed.runtime.precision_config import get_bfloat16_config, get_float16_config
from deepspeed.runtime.swap_tensor.aio_config import get_aio_config
from deepspeed.runtime.zero.config import get_zero_config
from deepspeed.utils.arguments import refuse
from deepspeed.utils.config import get_timers_config
from deepspeed.utils.logging import logger

# Keys at the top level, and their defaults.
_PLAIN = {
    "train_batch_size": None,
    "train_micro_batch_size_per_gpu": None,
    "gradient_accumulation_steps": None,
    "managed_gradient_accumulation": True,
    "steps_per_print": None,
    "dump_state": False,
    "disable_python_gc": False,
    "disable_allgather": False,
    "prescale_gradients": False,
    "gradient_predivide_factor": 1.0,
    "gradient_clipping": 1.0,
    "zero_allow_untested_optimizer": False,
    "zero_force_ds_cpu_optimizer": True,
    "wall_clock_breakdown": False,
    "memory_breakdown": False,
    "dataloader_drop_last": False,
    "log_level": None,
}
_SMALL_NAMES = ("adagrad", "adam", "adamw", "lamb", "lion", "muon")  # types that DeepSpeed writes in small letters
_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def observed_sections(given: Mapping[str, Any]) -> SimpleNamespace:
    """What a config says of logs, monitors, timers and the profiler, whatever stands in its other sections."""
    return SimpleNamespace(
        comms_config=DeepSpeedCommsConfig(given),
        monitor_config=get_monitor_config(given),
        flops_profiler_config=DeepSpeedFlopsProfilerConfig(given),
        timers_config=get_timers_config(given),
        wall_clock_breakdown=given.get("wall_clock_breakdown", False),
        memory_breakdown=given.get("memory_breakdown", False),
        dump_state=given.get("dump_state", False),
    )


class DeepSpeedConfig:
    """config: a dict, a path, or base64 of a text."""

    def __init__(self, config: Any, mpu: Any = None, mesh_device: Any = None):
        refuse("DeepSpeedConfig", "All ranks are data-parallel; leave it out.", mesh_device=mesh_device)
        self._param_dict = load_config(config)
        self.world_size = mpu.get_data_parallel_world_size() if mpu is not None else world_size()
        given = {key: value for key, value in self._param_dict.items() if value != "auto"}
        for key, default in _PLAIN.items():
            setattr(self, key, given.get(key, default))
        self.gradient_allreduce_op = str(given.get("gradient_allreduce_op", "mean")).lower()
        self.communication_data_type = self._dtype(given, "communication_data_type", None)
        self.seq_parallel_communication_data_type = self._dtype(given, "seq_parallel_communication_data_type", "fp32")
        self._read_sections(given)
        self._read_optimizer(given)
        self._complete_batch()

    def _read_sections(self, given: Mapping[str, Any]) -> None:
        self.zero_config = get_zero_config(given)
        self.zero_optimization_stage = self.zero_config.stage
        self.zero_enabled = self.zero_optimization_stage > 0
        self.float16_config = get_float16_config(given)
        self.bfloat16_config = get_bfloat16_config(given)
        if self.float16_config.enabled and self.bfloat16_config.enabled:
            raise DeepSpeedConfigError("[config bf16.enabled] true, and fp16.enabled is true as well. Switch one of them off.")
        self.activation_checkpointing_config = DeepSpeedActivationCheckpointingConfig(given)
        vars(self).update(vars(observed_sections(given)))
        self.aio_config = get_aio_config(given)
        section = given.get("compile") or {}
        self.compile_config = CompileConfig(**{key: section[key] for key in section if key in CompileConfig.model_fields})
        autocast = given.get("torch_autocast") or {}
        self.torch_autocast_enabled = bool(autocast.get("enabled", False))
        self.torch_autocast_dtype = autocast.get("dtype")
        self.torch_autocast_lower_precision_safe_modules = autocast.get("lower_precision_safe_modules")
        types = given.get("data_types") or {}
        self.grad_accum_dtype = types.get("grad_accum_dtype")
        self.param_dtype = types.get("param_dtype")
        self.buffer_dtype = types.get("buffer_dtype")
        self.keep_in_fp32_modules = types.get("keep_in_fp32_modules", "auto")
        checkpoint = given.get("checkpoint") or {}
        validation = str(checkpoint.get("tag_validation", "Warn")).upper()
        if validation not in ("WARN", "IGNORE", "FAIL"):
            raise DeepSpeedConfigError(f"[config checkpoint.tag_validation] {validation!r} is not known. Give Warn, Ignore or Fail.")
        self.checkpoint_tag_validation_enabled = validation != "IGNORE"
        self.checkpoint_tag_validation_fail = validation == "FAIL"
        self.load_universal_checkpoint = checkpoint.get("load_universal", False)
        self.use_node_local_storage = checkpoint.get("use_node_local_storage", False)

    def _read_optimizer(self, given: Mapping[str, Any]) -> None:
        optimizer, scheduler = given.get("optimizer") or {}, given.get("scheduler") or {}
        self.optimizer_name = optimizer.get("type")
        if str(self.optimizer_name).lower() in _SMALL_NAMES:
            self.optimizer_name = self.optimizer_name.lower()
        self.optimizer_params = optimizer.get("params")
        self.optimizer_legacy_fusion = optimizer.get("legacy_fusion", False)
        self.scheduler_name = scheduler.get("type")
        self.scheduler_params = scheduler.get("params")

    @staticmethod
    def _dtype(given: Mapping[str, Any], key: str, default: str | None) -> torch.dtype | None:
        word = given.get(key, default)
        if word is None:
            return None
        if str(word).lower() not in _DTYPES:
            raise DeepSpeedConfigError(f"[config {key}] {word!r} is not known. Give fp32, bf16 or fp16.")
        return _DTYPES[str(word).lower()]

    def _complete_batch(self) -> None:
        batch, micro, steps = self.train_batch_size, self.train_micro_batch_size_per_gpu, self.gradient_accumulation_steps
        if batch is None and micro is None:
            raise DeepSpeedConfigError(
                "[config train_batch_size] Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided."
            )
        if steps is None:
            steps = 1 if batch is None or micro is None else batch // micro // self.world_size
        micro = micro if micro is not None else batch // self.world_size // steps
        batch = batch if batch is not None else micro * steps * self.world_size
        if min(batch, micro, steps) < 1 or batch != micro * steps * self.world_size:
            raise DeepSpeedConfigError(
                "[config train_batch_size] Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
                f"gradient_acc_step * world_size {batch} != {micro} * {steps} * {self.world_size}."
            )
        self.train_batch_size, self.train_micro_batch_size_per_gpu, self.gradient_accumulation_steps = batch, micro, steps

    def print_user_config(self) -> None:
        logger.info("  json = %s", json.dumps(self._param_dict, sort_keys=True, indent=4, default=str))

    def print(self, name: str) -> None:
        logger.info("%s:", name)
        for key in sorted(vars(self)):
            if key != "_param_dict":
                logger.info("  %s %s %s", key, "." * (29 - len(key)), getattr(self, key))
        self.print_user_config()

"""What to use in place of what DeepSpeed has and Shoal has not, by the beginning of a name."""

from __future__ import annotations

_DATA_PARALLEL = "All ranks are data-parallel here: stage 3 shards a model that is larger than a rank."
_TRAINS = "Shoal trains; for inference use the model itself, or a server such as vLLM."
_OWN_KERNELS = "Shoal compiles no kernels at run time: models run on torch's own."

_BY_PREFIX = {
    "": "It is a part of DeepSpeed's inside; docs/from_deepspeed.md lists the names that are here.",
    "accelerator": "Use deepspeed.accelerator.get_accelerator(): CPUs and CUDA.",
    "autotuning": "Use `shoal plan`, which says what fits, and `placement: auto`.",
    "checkpoint": "Any checkpoint loads on any number of ranks, at any stage; ds_to_universal and zero_to_fp32 are here.",
    "comm": "Use torch.distributed, whose names deepspeed.comm has.",
    "compile": "Use engine.compile(backend, compile_kwargs).",
    "compression": "Use torch.ao.quantization, or prune before training.",
    "datastates": "Use engine.save_checkpoint.",
    "elasticity": "A checkpoint resumes on any number of ranks: choose the batch yourself.",
    "env_report": "Use `shoal doctor`.",
    "inference": _TRAINS,
    "io": "Use engine.save_checkpoint; offload to a disk is `offload_optimizer` and `offload_param` with device nvme.",
    "launcher": "Use the `deepspeed` command, torchrun, mpirun or srun.",
    "linear": "Use PEFT: LoRA trains at every stage.",
    "model_implementations": _TRAINS,
    "module_inject": _TRAINS,
    "moe": f"Use the experts of the model itself (transformers' Mixtral trains). {_DATA_PARALLEL}",
    "monitor": "Use tensorboard, csv_monitor or wandb in the config, or MonitorMaster.",
    "nvme": "Use `shoal doctor`, which measures a disk.",
    "ops.adam": "Use FusedAdam or DeepSpeedCPUAdam.",
    "ops.aio": "Offload to a disk is `offload_optimizer` and `offload_param` with device nvme.",
    "ops.gds": "Offload to a disk is `offload_optimizer` and `offload_param` with device nvme.",
    "ops": _OWN_KERNELS,
    "ops.lamb": "Use the type Lamb in the config's optimizer section, and pass no optimizer.",
    "ops.sparse_attention": "Use torch.nn.attention.flex_attention.",
    "pipe": _DATA_PARALLEL,
    "profiling": "Use FlopsProfiler or get_model_profile; for single calls torch.profiler, or torch.utils.flop_counter.",
    "runtime.bf16_optimizer": "Use the optimizer that initialize returns.",
    "runtime.comm": "Gradients are reduced in backward, exactly.",
    "runtime.compiler": "Use engine.compile(backend, compile_kwargs).",
    "runtime.data_pipeline": "Order and length of samples are the data loader's: use a sampler of your own.",
    "runtime.domino": _DATA_PARALLEL,
    "runtime.eigenvalue": "Use torch.func.hessian or a power iteration of your own.",
    "runtime.fp16": "Use the optimizer that initialize returns, with fp16 in the config.",
    "runtime.fp16.onebit": "Use AdamW: gradients are reduced exactly.",
    "runtime.hybrid_engine": "Gather with zero.GatheredParameters and generate with the model itself.",
    "runtime.pipe": _DATA_PARALLEL,
    "runtime.progressive_layer_drop": "Drop layers in the model itself.",
    "runtime.quantize": "Use torch.ao.quantization.",
    "runtime.rollout": "Gather with zero.GatheredParameters and generate with the model itself.",
    "runtime.sequence_parallel": f"There is no sequence parallelism; recompute activations for long sequences. {_DATA_PARALLEL}",
    "runtime.superoffload": "Use offload_optimizer: the host updates while the GPU works on.",
    "runtime.swap_tensor": "Offload to a disk is `offload_optimizer` and `offload_param` with device nvme.",
    "runtime.tensor_parallel": _DATA_PARALLEL,
    "runtime.zenflow": "Use offload_optimizer: the host updates while the GPU works on.",
    "runtime.zero.mics": "Set zero_optimization.mics_shard_size, and use zero.Init.",
    "runtime.zero.muon": "Use torch.optim.Muon outside an engine, or AdamW.",
    "sequence": f"There is no sequence parallelism; recompute activations for long sequences. {_DATA_PARALLEL}",
    "utils.nvtx": "Use torch.cuda.nvtx.",
    "utils.timer": "Use SynchronizedWallClockTimer or ThroughputTimer.",
    # Names of the package itself.
    "DeepSpeedHybridEngine": "Gather with zero.GatheredParameters and generate with the model itself.",
    "DeepSpeedTransformerConfig": _OWN_KERNELS,
    "DeepSpeedTransformerLayer": _OWN_KERNELS,
    "InferenceEngine": _TRAINS,
    "PipelineEngine": _DATA_PARALLEL,
    "PipelineModule": _DATA_PARALLEL,
    "add_tuning_arguments": "Write the schedule into the config.",
    "default_inference_config": _TRAINS,
    "replace_transformer_layer": _TRAINS,
}


def alternative_to(name: str) -> str:
    """A sentence for a dotted name that begins with `deepspeed`."""
    parts = name.split(".")[1:]
    prefixes = (".".join(parts[:count]) for count in range(len(parts), -1, -1))
    return next(_BY_PREFIX[prefix] for prefix in prefixes if prefix in _BY_PREFIX)

"""Whole fp32 weights from a checkpoint in DeepSpeed's layout, without an engine.

    python -m deepspeed.utils.zero_to_fp32 <checkpoint folder> <output folder> [--safe_serialization] [--tag TAG]
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import torch

from shoal import Error

from deepspeed.runtime import checkpoint_files as files
from deepspeed.runtime.checkpoint_load import Saved


def get_fp32_state_dict_from_zero_checkpoint(
    checkpoint_dir: str, tag: str | None = None, exclude_frozen_parameters: bool = False, lazy_mode: bool = False
) -> dict[str, torch.Tensor]:
    """The state dict with weights in fp32; tied names hold one tensor."""
    tag = tag if tag is not None else files.read_latest(checkpoint_dir)
    if tag is None:
        raise Error(f"[zero_to_fp32] {checkpoint_dir} has no file named latest. Give the tag.")
    saved = Saved(os.path.join(checkpoint_dir, tag))
    result = {name: value.float() for name, value in saved.buffers().items() if value.is_floating_point()}
    result |= {name: value for name, value in saved.buffers().items() if not value.is_floating_point()}
    result |= {name: value.float().clone() for name, value in saved.wholes(None).items()}
    if not exclude_frozen_parameters:
        result |= {name: value.float().clone() for name, value in saved.frozen().items()}
    for alias, owner in (saved.models[0].get("shared_params") or {}).items():
        if owner in result:
            result[alias] = result[owner]
    return result


def convert_zero_checkpoint_to_fp32_state_dict(
    checkpoint_dir: str,
    output_dir: str,
    max_shard_size: str = "5GB",
    safe_serialization: bool = False,
    tag: str | None = None,
    exclude_frozen_parameters: bool = False,
) -> None:
    """Writes them as pytorch_model.bin, or as model.safetensors. One file, whatever `max_shard_size`."""
    values = get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag, exclude_frozen_parameters)
    os.makedirs(output_dir, exist_ok=True)
    if not safe_serialization:
        files.write(os.path.join(output_dir, "pytorch_model.bin"), values)
        return
    from safetensors.torch import save_file

    own: dict[int, str] = {}
    for name, value in values.items():
        own.setdefault(value.data_ptr(), name)
    distinct = {name: values[name].contiguous() for name in own.values()}
    save_file(distinct, os.path.join(output_dir, "model.safetensors"), metadata={"format": "pt"})


def load_state_dict_from_zero_checkpoint(model: torch.nn.Module, checkpoint_dir: str, tag: str | None = None) -> Any:
    """Loads them into a model on the CPU, and returns it."""
    model = model.cpu()
    model.load_state_dict(get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag), strict=False)
    return model


def get_model_state_file(checkpoint_dir: str, zero_stage: int) -> str:
    return files.find_model_files(checkpoint_dir)[0]


def get_optim_files(checkpoint_dir: str) -> list[str]:
    return files.find_optimizer_files(checkpoint_dir)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Whole fp32 weights from a checkpoint.")
    parser.add_argument("checkpoint_dir")
    parser.add_argument("output_dir")
    parser.add_argument("--max_shard_size", default="5GB")
    parser.add_argument("--safe_serialization", action="store_true")
    parser.add_argument("-t", "--tag", default=None)
    parser.add_argument("--exclude_frozen_parameters", action="store_true")
    parser.add_argument("-d", "--debug", action="store_true")
    options = parser.parse_args(arguments)
    convert_zero_checkpoint_to_fp32_state_dict(
        options.checkpoint_dir,
        options.output_dir,
        options.max_shard_size,
        options.safe_serialization,
        options.tag,
        options.exclude_frozen_parameters,
    )


if __name__ == "__main__":
    main()

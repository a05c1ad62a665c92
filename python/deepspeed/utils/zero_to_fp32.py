"""Whole fp32 weights from a checkpoint in DeepSpeed's layout, without an engine.

    python -m deepspeed.utils.zero_to_fp32 <checkpoint folder> <output folder> [--safe_serialization] [--tag TAG]
"""

from __future__ import annotations

import argparse
import json
import os
import re
from typing import Any

import torch

from shoal import Error, _core, durable

from deepspeed.runtime import checkpoint_files as files
from deepspeed.runtime.checkpoint_universal import open_checked


def get_fp32_state_dict_from_zero_checkpoint(
    checkpoint_dir: str, tag: str | None = None, exclude_frozen_parameters: bool = False, lazy_mode: bool = False
) -> dict[str, torch.Tensor]:
    """The state dict with weights in fp32; tied names hold one tensor. lazy_mode: what was one piece on disk and is fp32
    already stays mapped to its file instead of being copied."""
    tag = tag if tag is not None else files.read_latest(checkpoint_dir)
    if tag is None:
        raise Error(f"[zero_to_fp32] {checkpoint_dir} has no file named latest. Give the tag.")
    saved = open_checked(os.path.join(checkpoint_dir, str(tag)), _core.make_single_group(), "zero_to_fp32", needs_states=False)
    result = {name: value.float() for name, value in saved.buffers().items() if value.is_floating_point()}
    result |= {name: value for name, value in saved.buffers().items() if not value.is_floating_point()}
    trained = saved.wholes(None) if saved.has_states else saved.module()
    for values in (trained, {} if exclude_frozen_parameters else saved.frozen()):
        result |= {name: value.float() if lazy_mode else value.float().clone() for name, value in values.items()}
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
    """Writes them as pytorch_model.bin, or as model.safetensors; above `max_shard_size`, in numbered files and an index."""
    values = get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag, exclude_frozen_parameters, lazy_mode=True)
    os.makedirs(output_dir, exist_ok=True)
    if safe_serialization:  # it holds no tensor twice
        own: dict[int, str] = {}
        for name, value in values.items():
            own.setdefault(id(value), name)
        values = {name: values[name].contiguous() for name in own.values()}
    stem, suffix = ("model", ".safetensors") if safe_serialization else ("pytorch_model", ".bin")
    shards = cut(values, nbytes_of(max_shard_size))
    names = [stem + suffix]
    if len(shards) > 1:
        names = [f"{stem}-{number:05d}-of-{len(shards):05d}{suffix}" for number in range(1, len(shards) + 1)]
    for name, shard in zip(names, shards):
        _write_shard(os.path.join(output_dir, name), shard, safe_serialization)
    if len(shards) > 1:
        total = sum(value.nbytes for value in values.values())
        index = {"metadata": {"total_size": total}, "weight_map": {key: name for name, shard in zip(names, shards) for key in shard}}
        durable.write_text(os.path.join(output_dir, stem + suffix + ".index.json"), json.dumps(index, indent=2))


def nbytes_of(size: str | int) -> int:
    """ "5GB" in bytes; units of 1000, and with an i of 1024."""
    match = re.fullmatch(r"\s*(\d+)\s*(?:([KMGT])(I?))?B?\s*", str(size).upper())
    if match is None or int(match[1]) == 0:
        raise Error(f"[zero_to_fp32] --max_shard_size {size!r} is not a size. Write 5GB or 800MB.")
    return int(match[1]) * (1024 if match[3] else 1000) ** ("KMGT".index(match[2]) + 1 if match[2] else 0)


def cut(values: dict[str, torch.Tensor], limit: int) -> list[dict[str, torch.Tensor]]:
    """In order, as many as fit; what is tied stays together, and what is larger than the limit is alone."""
    shards: list[dict[str, torch.Tensor]] = [{}]
    home: dict[int, dict[str, torch.Tensor]] = {}
    filled = 0
    for name, value in values.items():
        if id(value) in home:
            home[id(value)][name] = value
            continue
        if shards[-1] and filled + value.nbytes > limit:
            shards.append({})
            filled = 0
        shards[-1][name] = value
        home[id(value)] = shards[-1]
        filled += value.nbytes
    return shards


def _write_shard(path: str, values: dict[str, torch.Tensor], safe: bool) -> None:
    if not safe:
        # Views of a mapped file would be written with the whole of it; what is tied stays tied.
        copies = {id(value): value.clone() for value in values.values()}
        files.write(path, {name: copies[id(value)] for name, value in values.items()})
        return
    from safetensors.torch import save_file

    save_file(values, path + ".part", metadata={"format": "pt"})
    os.replace(path + ".part", path)


def load_state_dict_from_zero_checkpoint(model: torch.nn.Module, checkpoint_dir: str, tag: str | None = None) -> Any:
    """Loads them into a model on the CPU, and returns it."""
    model = model.cpu()
    model.load_state_dict(get_fp32_state_dict_from_zero_checkpoint(checkpoint_dir, tag), strict=False)
    return model


def get_model_state_file(checkpoint_dir: str, zero_stage: int) -> str:
    """The first file of model states; the name follows the stage."""
    path = files.model_file(checkpoint_dir, zero_stage, 0)
    if not os.path.exists(path):
        raise FileNotFoundError(f"[zero_to_fp32] {path} is not there. Give the folder of a tag and the stage it was saved at.")
    return path


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
    if options.debug:
        whole = get_fp32_state_dict_from_zero_checkpoint(options.checkpoint_dir, options.tag, lazy_mode=True)
        for name, value in whole.items():
            print(name, tuple(value.shape))


if __name__ == "__main__":
    main()

"""Says of every DeepSpeed config in a folder whether the package deepspeed takes it: a table in Markdown.

    python tools/check_configs FOLDER

Files are *.json, *.hjson and *.conf; those without a key of DeepSpeed are passed over. "auto" stands for the default, as in
initialize without Hugging Face, and the steps of a schedule are filled in as it does. Where the three batch keys name a number of ranks, that number is taken.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import shoal.config  # noqa: E402
from shoal import Error  # noqa: E402

from deepspeed.runtime import config as configs  # noqa: E402
from deepspeed.runtime import lr_schedules, optimizers  # noqa: E402

MARKS = ("zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "fp16", "bf16")


def ranks_of(config: dict[str, Any]) -> int:
    """The world that train_batch_size, the micro-batch and the accumulation belong to; 1 where they leave it open."""
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    batch, micro, steps = (config.get(key) if isinstance(config.get(key), int) else None for key in keys)
    if batch is None or micro is None:
        return 1
    return max(1, batch // (micro * (steps or 1))) if steps is not None else math.gcd(batch // micro or 1, 8)


def with_steps(schedule: Any) -> Any:
    """The section with the number of steps that Hugging Face fills in, where it is left to it."""
    found = configs.without_auto(schedule)
    params = schedule.get("params") if isinstance(schedule, dict) else None
    if isinstance(params, dict) and "auto" in params.values() and schedule.get("type") in ("WarmupDecayLR", "WarmupCosineLR"):
        found["params"] = {"total_num_steps": 100_000, **found["params"]}
    return found


def mistakes_of(config: dict[str, Any]) -> list[str]:
    """What the config is refused for; nothing where it is taken."""
    section, schedule = configs.without_auto(config.get("optimizer")), with_steps(config.get("scheduler"))
    try:
        wanted = configs.translate(
            config, optimizers.to_check(section) if section else None, lr_schedules.to_check(schedule) if schedule else None
        )
        shoal.config.parse(wanted, ranks_of(config))
    except Error as error:
        lines = str(error).splitlines()
        return [line.strip() for line in lines[1:]] or lines
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    logging.disable()
    taken = refused = 0
    print("| config | verdict |\n|---|---|")
    for path in sorted(each for each in folder.rglob("*") if each.suffix in (".json", ".hjson", ".conf")):
        try:
            config = configs.load_config(str(path))
        except Error as error:
            config, mistakes = None, [str(error)]
        if config is not None:
            if not any(mark in config for mark in MARKS):
                continue
            mistakes = mistakes_of(config)
        taken, refused = taken + (not mistakes), refused + bool(mistakes)
        print(f"| {path.relative_to(folder)} | {'refused: ' + ' '.join(mistakes) if mistakes else 'taken'} |")
    print(f"\n{taken} taken, {refused} refused.")
    return 0 if taken + refused else 1


if __name__ == "__main__":
    sys.exit(main())

"""A checkpoint as a universal one, whose parameters are cut over no ranks.

    python -m deepspeed.checkpoint.ds_to_universal --input_folder <folder>/<tag> --output_folder <folder>/<tag>_universal

Shoal needs no conversion to resume on another number of ranks; a real DeepSpeed does.
"""

from __future__ import annotations

import argparse

from deepspeed.runtime.checkpoint_universal import convert
from deepspeed.utils.logging import logger


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A checkpoint as a universal one.")
    parser.add_argument("--input_folder", required=True)
    parser.add_argument("--output_folder", required=True)
    parser.add_argument("--num_extract_workers", type=int, default=None, help="not used: files are mapped, not copied first")
    parser.add_argument("--num_merge_workers", type=int, default=None, help="not used: files are mapped, not copied first")
    parser.add_argument("--keep_temp_folder", action="store_true", help="not used: there is none")
    parser.add_argument("--no_strict", dest="strict", action="store_false", help="not used: there is no tensor parallelism")
    parser.add_argument("--inject_missing_state", action="store_true", help="not needed: it is done where it is missing")
    return parser.parse_args(arguments)


def main(options: argparse.Namespace | None = None) -> None:
    options = options if options is not None else parse_arguments()
    for name in ("num_extract_workers", "num_merge_workers", "keep_temp_folder"):
        if getattr(options, name, None):
            logger.info("[ds_to_universal] --%s is not used: one process maps the files and writes each parameter once.", name)
    convert(options.input_folder, options.output_folder)


if __name__ == "__main__":
    main()

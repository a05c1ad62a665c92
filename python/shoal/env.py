"""`python -m shoal.env`: what this installation is, for reports of trouble."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys

import torch

import shoal


def facts() -> list[tuple[str, str]]:
    def version(name: str) -> str:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            return "not installed"

    found = [
        ("shoal", f"{shoal.__version__} ({shoal._core.__file__})"),
        ("python", sys.version.split()[0]),
        ("torch", torch.__version__),
        ("system", platform.platform()),
        ("threads", str(torch.get_num_threads())),
        ("GPUs", str(torch.cuda.device_count()) if torch.cuda.is_available() else "none"),
    ]
    where = importlib.util.find_spec("deepspeed")
    if where is not None and where.origin is not None:
        found.append(("import deepspeed", where.origin))
    return found + [(name, version(name)) for name in ("deepspeed", "transformers", "accelerate", "peft", "trl")]


if __name__ == "__main__":
    for name, value in facts():
        print(f"{name:17} {value}")

"""The command `shoal` of an installed wheel: runs the C++ program that lies in the package shoal, with the libraries of this
Python's torch. A package of its own, since importing shoal would import torch, which the program does not need."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def main() -> None:
    folders = {name: _folder_of(name) for name in ("shoal", "torch")}
    for name, folder in folders.items():
        if folder is None:
            sys.exit(f"[shoal] the package {name} is not installed beside {sys.executable}. Run pip install {name}.")
    program = folders["shoal"] / "bin" / "shoal"
    if not program.is_file():
        sys.exit(f"[shoal] {program} is not there: this is no installed wheel. Build the command: make build.")
    libraries = [str(folders["torch"] / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
    os.environ.setdefault("SHOAL_PYTHON", sys.executable)  # for `shoal tokenize`
    os.execv(program, ["shoal", *sys.argv[1:]])


def _folder_of(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None

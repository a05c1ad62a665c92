"""The build backend of pyproject.toml: scikit-build-core, for the torch of the environment that Shoal is installed into.

pip builds in an environment of its own, in which that torch cannot be imported. Asked apart from it, the same Python says where its torch is;
that is what CMake builds against, and the wheel depends on that minor version. Where there is none (uv and `python -m build` give another Python,
VIRTUAL_ENV names the one they install into), the newest torch that Shoal knows is fetched for the build, and the wheel depends on it.
SHOAL_TORCH=<folder of the package torch> names another.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from scikit_build_core import build as real

ROOT = Path(__file__).resolve().parents[2]
# -E: without what pip puts before the path of the environment in which it builds.
WHERE = "import importlib.util as u; s = u.find_spec('torch'); print(s.origin if s and s.origin else '')"


class Unsupported(Exception):
    """A torch that Shoal does not build against."""


def supported_range() -> tuple[tuple[int, int], tuple[int, int]]:
    """Oldest and newest, as cmake/TorchWheel.cmake says."""
    text = (ROOT / "cmake/TorchWheel.cmake").read_text()
    found = [re.search(rf"^set\(SHOAL_TORCH_{which} (\d+)\.(\d+)\)", text, re.M) for which in ("OLDEST", "NEWEST")]
    oldest, newest = [(int(match[1]), int(match[2])) for match in found]
    return oldest, newest


def minor_of(folder: Path) -> tuple[int, int]:
    match = re.search(r"^__version__ = ['\"](\d+)\.(\d+)", (folder / "version.py").read_text(), re.M)
    return int(match[1]), int(match[2])


def ask(python: str) -> Path | None:
    done = subprocess.run([python, "-E", "-c", WHERE], capture_output=True, text=True, check=False)
    origin = done.stdout.strip()
    return Path(origin).parent if done.returncode == 0 and origin else None


def find_torch() -> Path | None:
    """The folder of the package torch to build against."""
    if named := os.environ.get("SHOAL_TORCH"):
        if not (Path(named) / "version.py").is_file():
            raise Unsupported(f"[build] SHOAL_TORCH={named} is no package torch. Name the folder that has its version.py.")
        return Path(named)
    pythons = [sys.executable]
    if environment := os.environ.get("VIRTUAL_ENV"):
        pythons.insert(0, str(Path(environment) / "bin/python"))
    for python in pythons:
        if Path(python).exists() and (folder := ask(python)):
            return folder
    for entry in sys.path:  # the one that was fetched for the build
        if (Path(entry) / "torch/version.py").is_file():
            return Path(entry) / "torch"
    return None


def requirement(folder: Path | None) -> str:
    """What the wheel depends on: this minor version of torch, or without one any that Shoal builds against."""
    oldest, newest = supported_range()
    if folder is None:
        return f"torch>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    minor = minor_of(folder)
    if minor < oldest:
        raise Unsupported(f"[build] {folder} is torch {minor[0]}.{minor[1]}, and Shoal needs {oldest[0]}.{oldest[1]} or newer. Install a newer torch first.")
    if minor > newest:
        print(f"[build] torch {minor[0]}.{minor[1]} is newer than {newest[0]}.{newest[1]}, up to which Shoal was tried.", file=sys.stderr)
    return f"torch=={minor[0]}.{minor[1]}.*"


def dynamic_metadata(field: str, settings: dict, _project: dict | None = None) -> list[str]:
    """scikit-build-core's question for the dependencies of the wheel."""
    if field != "dependencies" or settings:
        raise RuntimeError(f"shoal_build provides dependencies and takes no settings, not {field}: {settings}")
    return [requirement(find_torch())]


def settings_with_torch(config_settings: dict | None) -> dict:
    settings = dict(config_settings or {})
    folder = find_torch()
    if folder is not None:
        settings["cmake.define.SHOAL_TORCH_DIR"] = str(folder)
        minor = minor_of(folder)
        settings.setdefault("wheel.build-tag", f"{minor[0]}{minor[1]}torch")
    return settings


def get_requires_for_build_wheel(config_settings: dict | None = None) -> list[str]:
    folder = find_torch()
    wanted = requirement(folder)
    return real.get_requires_for_build_wheel(config_settings) + ([] if folder else [wanted])


def build_wheel(wheel_directory: str, config_settings: dict | None = None, metadata_directory: str | None = None) -> str:
    return real.build_wheel(wheel_directory, settings_with_torch(config_settings), metadata_directory)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: dict | None = None) -> str:
    return real.prepare_metadata_for_build_wheel(metadata_directory, settings_with_torch(config_settings))


def get_requires_for_build_editable(config_settings: dict | None = None) -> list[str]:
    return get_requires_for_build_wheel(config_settings)


def build_editable(wheel_directory: str, config_settings: dict | None = None, metadata_directory: str | None = None) -> str:
    return real.build_editable(wheel_directory, settings_with_torch(config_settings), metadata_directory)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: dict | None = None) -> str:
    return real.prepare_metadata_for_build_editable(metadata_directory, settings_with_torch(config_settings))


def get_requires_for_build_sdist(config_settings: dict | None = None) -> list[str]:
    return real.get_requires_for_build_sdist(config_settings)


def build_sdist(sdist_directory: str, config_settings: dict | None = None) -> str:
    return real.build_sdist(sdist_directory, config_settings)

"""deepspeed.launcher."""

from __future__ import annotations

import importlib


def __getattr__(name: str):
    """Not at once: `python -m deepspeed.launcher.runner` would warn that the module is there before it runs."""
    if name == "runner":
        return importlib.import_module("deepspeed.launcher.runner")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Arguments that DeepSpeed has and Shoal cannot honour: none is dropped in silence."""

from __future__ import annotations

from typing import Any

from shoal import Error

from deepspeed.utils.logging import warning_once


def refuse(place: str, remedy: str, **given: Any) -> None:
    """Raises for the first argument that is set: not None, False or empty."""
    for name, value in given.items():
        if value:
            raise Error(f"[{place}] {name}={value!r} is not supported. {remedy}")


def without_effect(place: str, reason: str, **given: Any) -> None:
    """Warns, once, of each argument that is set."""
    for name, value in given.items():
        if value:
            warning_once(f"[{place}] {name}={value!r} has no effect: {reason}.")

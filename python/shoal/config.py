"""Configs as Python users give them (a path, JSON text, a dict) into the JSON that the core reads."""

from __future__ import annotations

import copy
import json
import math
import os
from typing import Any, Mapping

from shoal import _core


def read(config: str | os.PathLike | Mapping[str, Any]) -> tuple[str, str]:
    """The config as JSON text, and what to call it in messages. A file is passed on as it is, comments too."""
    if isinstance(config, Mapping):
        return to_text(config), "config"
    text = os.fspath(config)
    if text.lstrip().startswith("{"):
        return text, "config"
    try:
        with open(text, encoding="utf-8") as file:
            return file.read(), f"config {text}"
    except OSError as error:
        raise _core.Error(f"[config {text}] the file cannot be read: {error.strerror}. Give the path of a JSON file.") from None


def load(config: str | os.PathLike | Mapping[str, Any]) -> dict[str, Any]:
    """The config as a dict. Comments and trailing commas, which Python's reader does not know, go through the core."""
    if isinstance(config, Mapping):
        return dict(config)
    text, origin = read(config)
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(_core.plain_json(text, origin))


def to_text(config: Mapping[str, Any]) -> str:
    """A dict as JSON text; infinite numbers, which JSON has not, mean that the key is absent."""
    return json.dumps(_finite(config), default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): _finite(inner)
            for key, inner in value.items()
            if not (isinstance(inner, float) and not math.isfinite(inner))
        }
    if isinstance(value, (list, tuple)):
        return [_finite(inner) for inner in value]
    return value


def parse(config: str | os.PathLike | Mapping[str, Any], world_size: int) -> _core.Config:
    """The checked config for so many ranks. Raises shoal.Error that lists every mistake."""
    text, origin = read(config)
    return _core.Config.from_text(text, world_size, origin)


def with_section(config: Mapping[str, Any], name: str, section: Any) -> dict[str, Any]:
    """A copy of the config with one section replaced; None takes it out."""
    result = dict(copy.deepcopy(dict(config)))
    result.pop(name, None)
    if section is not None:
        result[name] = section
    return result

"""Configs as Python users give them (a path, JSON text, a dict) into the JSON that the core reads."""

from __future__ import annotations

import copy
import json
import math
import os
from typing import Any, Mapping

from shoal import _core, durable


def read(config: str | os.PathLike | Mapping[str, Any]) -> tuple[str, str]:
    """The config as JSON text, and what to call it in messages. A file is passed on as it is, comments too."""
    if isinstance(config, Mapping):
        return to_text(config), "config"
    if not isinstance(config, (str, os.PathLike)):
        raise _core.Error(f"[config] is {config!r:.60}. Give a dict, the path of a JSON file, or JSON text.")
    text = os.fspath(config)
    if text.lstrip().startswith("{"):
        return text, "config"
    try:
        return durable.read_text(text, f"config {text}"), f"config {text}"
    except OSError as error:
        raise _core.Error(f"[config {text}] the file cannot be read: {error.strerror}. Give the path of a JSON file.") from None
    except UnicodeDecodeError as error:
        raise _core.Error(f"[config {text}] byte {error.start} is not UTF-8. Save it as UTF-8.") from None


def load(config: str | os.PathLike | Mapping[str, Any]) -> dict[str, Any]:
    """The config as a dict. Comments and trailing commas, which Python's reader does not know, go through the core."""
    return dict(config) if isinstance(config, Mapping) else from_text(*read(config))


def from_text(text: str, origin: str) -> dict[str, Any]:
    """JSON text as a dict; mistakes, a key that is given twice among them, are told by the core, with their line."""
    try:
        found = json.loads(text, object_pairs_hook=_each_once)
    except ValueError:
        found = json.loads(_core.plain_json(text, origin))
    if not isinstance(found, dict):
        raise _core.Error(f"[{origin}] the text is not a JSON object. It begins with {{ and ends with }}.")
    return found


def optimizer_names(word: str) -> str:
    """The engine's own optimizers in a sentence: all but the last by commas, the last behind the word."""
    *names, last = [optimizer.name for optimizer in _core.optimizers()]
    return f"{', '.join(names)} {word} {last}"


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is given twice")
    return found


def to_text(config: Mapping[str, Any]) -> str:
    """A dict as JSON text; infinite numbers, which JSON has not, mean that the key is absent."""
    return json.dumps(_finite(config), default=str)


def _finite(value: Any, path: str = "") -> Any:
    if isinstance(value, Mapping):
        return {
            str(key): _finite(inner, f"{path}.{key}" if path else str(key))
            for key, inner in value.items()
            if not (isinstance(inner, float) and math.isinf(inner))
        }
    if isinstance(value, (list, tuple)):
        return [_finite(inner, path) for inner in value]
    if isinstance(value, float) and math.isnan(value):
        raise _core.Error(f"[config {path}] is NaN. Give a number, or leave the key out.")
    return value


def monitors_on(config: _core.Config) -> list[str]:
    """The monitors that a config switches on. `shoal train` and the package deepspeed write to them, shoal.Engine does not."""
    effective = json.loads(config.to_json())
    return [name for name in ("tensorboard", "csv_monitor", "wandb") if effective.get(name, {}).get("enabled")]


def parse(config: str | os.PathLike | Mapping[str, Any], world_size: int, origin: str | None = None) -> _core.Config:
    """The checked config for so many ranks. Raises shoal.Error that lists every mistake. origin: what to call the config there,
    where it is not the path itself."""
    text, name = read(config)
    try:
        return _core.Config.from_text(text, world_size, origin or name)
    except _core.Error as error:
        if not isinstance(config, Mapping):
            raise
        told = str(error).replace("[line 1, ", "[").replace(" (line 1)", "")  # lines of a text that only we have seen
        raise _core.Error(told) from None


def with_section(config: Mapping[str, Any], name: str, section: Any) -> dict[str, Any]:
    """A copy of the config with one section replaced; None takes it out."""
    result = dict(copy.deepcopy(dict(config)))
    result.pop(name, None)
    if section is not None:
        result[name] = section
    return result

"""From the configs that DeepSpeed's users write to those that Shoal reads."""

from __future__ import annotations

import base64
import binascii
import copy
import math
import os
from typing import Any, Mapping, NamedTuple

from shoal import _core
from shoal import config as configs
from shoal.world import world_size

from deepspeed.utils.logging import warning_once


class Source(NamedTuple):
    """The text of a config, None where a dict was given, and what to call it in messages."""

    text: str | None = None
    origin: str = "config"


def read_config(config: Any) -> tuple[dict[str, Any], Source]:
    """A dict, a path, JSON text or base64 of it, as a dict."""
    if isinstance(config, Mapping):
        return dict(config), Source()
    text = os.fspath(config)
    if not os.path.exists(text) and not text.lstrip().startswith("{"):
        try:
            text = base64.urlsafe_b64decode(text).decode("utf-8")
        except (binascii.Error, UnicodeDecodeError, ValueError):
            pass  # a path that is not there: the reader says so
    source = Source(*configs.read(text))
    return configs.from_text(*source), source


def load_config(config: Any) -> dict[str, Any]:
    return read_config(config)[0]


def check(config: Mapping[str, Any], source: Source, optimizer: Any = None, scheduler: Any = None) -> None:
    """Raises what the core finds in the config as it was written, the sections of the optimizer and the schedule in it, if
    they are in use. Where nothing had to be translated, mistakes are told by their lines."""
    wanted = translate(config, optimizer, scheduler)
    if source.text is not None and wanted == config:
        _core.Config.from_text(source.text, world_size(), source.origin)
    else:
        configs.parse(wanted, world_size(), source.origin)


def translate(config: Mapping[str, Any], optimizer: Any = None, scheduler: Any = None) -> dict[str, Any]:
    """The config for Shoal: "auto" (but in our own section) and what is unknown at the top level left out, and these two sections in place of its own."""
    known = set(_core.top_level_keys())
    result: dict[str, Any] = {}
    others = {key: value for key, value in config.items() if key not in ("optimizer", "scheduler")}
    for key, value in copy.deepcopy(others).items():
        if key not in known:
            warning_once(f"[config {key}] is not a key that Shoal knows, and is ignored. docs/config.md lists the keys.")
        else:
            result[key] = value if key == "shoal" else without_auto(value)  # there "auto" is a value like others
    result = {key: value for key, value in result.items() if value != "auto"}
    for key, section in (("optimizer", optimizer), ("scheduler", scheduler)):
        if section is not None:
            result[key] = without_auto(section)
    _translate_zero(result)
    _drop_what_is_off(result)
    if isinstance(result.get("checkpoint"), dict):
        result["checkpoint"].pop("load_universal", None)  # load_checkpoint reads it
        if str(result["checkpoint"].get("tag_validation")).lower() in ("warn", "ignore", "fail"):
            result["checkpoint"].pop("tag_validation")  # save_checkpoint reads it
    if isinstance(result.get("fp16"), dict) and isinstance(result["fp16"].get("auto_cast"), bool):
        result["fp16"].pop("auto_cast")  # the engine's forward reads it
    if not any(key in result for key in ("train_batch_size", "train_micro_batch_size_per_gpu")):
        result["train_micro_batch_size_per_gpu"] = 1
    return result


def _translate_zero(config: dict[str, Any]) -> None:
    zero = config.get("zero_optimization")
    if isinstance(zero, bool):
        config["zero_optimization"] = {"stage": 1 if zero else 0}
        return
    if not isinstance(zero, dict):
        return
    for name, value in zero.items():
        if isinstance(value, float) and math.isfinite(value) and name != "stage":  # HF's 0.9 * hidden_size^2
            zero[name] = int(value)
    for prefix in ("stage3_", ""):  # save_16bit_model reads it
        for name in ("gather_16bit_weights_on_model_save", "gather_fp16_weights_on_model_save"):
            zero.pop(prefix + name, None)
    if zero.pop("load_from_fp32_weights", True) is False:
        warning_once("[config zero_optimization.load_from_fp32_weights] has no effect: weights are loaded from fp32 always.")
    if not zero.get("parameter_alignment", 1):
        zero.pop("parameter_alignment")


def _drop_what_is_off(config: dict[str, Any]) -> None:
    """Sections that ask for nothing, which the reader would refuse."""
    section = config.get("weight_quantization")
    if isinstance(section, dict) and section.get("enabled") is False:
        config.pop("weight_quantization")
    if config.get("data_parallel_size") == world_size():
        config.pop("data_parallel_size")


def without_auto(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_auto(inner) for key, inner in value.items() if inner != "auto"}
    return value

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

from deepspeed.runtime.config_errors import DeepSpeedConfigError, config_errors
from deepspeed.runtime.torch_autocast import autocast_dtype, scale_loss, scales_loss
from deepspeed.utils.logging import warning_once


# Sections that observing.py carries out, with their keys.
_OBSERVED = {
    "flops_profiler": {"enabled", "recompute_fwd_factor", "profile_step", "module_depth", "top_modules", "detailed", "output_file"},
    "comms_logger": {"enabled", "verbose", "prof_all", "debug", "prof_ops"},
}


class Source(NamedTuple):
    """The text of a config, None where a dict was given, and what to call it in messages."""

    text: str | None = None
    origin: str = "config"


def read_config(config: Any) -> tuple[dict[str, Any], Source]:
    """A dict, a path, text (JSON or Hjson) or base64 of it, as a dict."""
    if isinstance(config, Mapping):
        return dict(config), Source()
    with config_errors():
        try:
            text = os.fspath(config)
        except TypeError:
            raise DeepSpeedConfigError(
                f"[config] {type(config).__name__} is no config. Expected a string path to an existing deepspeed config, or a "
                "dictionary or a valid base64."
            ) from None
        decoded = None if os.path.exists(text) or text.lstrip().startswith("{") else _from_base64(text)
        source = Source(*configs.read(text)) if decoded is None else Source(decoded)
        return configs.from_text(*source), source


def _from_base64(text: str) -> str | None:
    """None: it is none, or of no text with a key in it. Then it is a path that is not there, and the reader says so."""
    try:
        decoded = base64.urlsafe_b64decode(text).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return decoded if ":" in decoded else None


def load_config(config: Any) -> dict[str, Any]:
    return read_config(config)[0]


def check(config: Mapping[str, Any], source: Source, optimizer: Any = None, scheduler: Any = None) -> None:
    """Raises what the core finds in the config as it was written, the sections of the optimizer and the schedule in it, if
    they are in use. Where nothing had to be translated, mistakes are told by their lines."""
    with config_errors():
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
            warning_once(f"[config {key}] is not a key that Shoal knows, and is ignored. {_core.explain_unknown(str(key))}")
        else:
            result[key] = value if key == "shoal" else without_auto(value)  # there "auto" is a value like others
    result = {key: value for key, value in result.items() if value != "auto"}
    for key, section in (("optimizer", optimizer), ("scheduler", scheduler)):
        if section is not None:
            result[key] = without_auto(section)
    _translate_fp16(result)
    _translate_zero(result)
    _drop_what_is_off(result)
    if isinstance(result.get("checkpoint"), dict):
        result["checkpoint"].pop("load_universal", None)  # load_checkpoint reads it
        if str(result["checkpoint"].get("tag_validation")).lower() in ("warn", "ignore", "fail"):
            result["checkpoint"].pop("tag_validation")  # save_checkpoint reads it
    if isinstance(result.get("fp16"), dict) and isinstance(result["fp16"].get("auto_cast"), bool):
        result["fp16"].pop("auto_cast")  # the engine's forward reads it
    if scales_loss(result):
        scale_loss(result)
    if autocast_dtype(result) is not None:
        result.pop("torch_autocast")  # so does this
    _take_what_is_observed(result)
    if isinstance(result.get("data_types"), dict):
        for key in ("buffer_dtype", "keep_in_fp32_modules"):  # read before the engine is made
            result["data_types"].pop(key, None)
    if not any(key in result for key in ("train_batch_size", "train_micro_batch_size_per_gpu")):
        result["train_micro_batch_size_per_gpu"] = 1
    return result


def _take_what_is_observed(config: dict[str, Any]) -> None:
    """Monitors, profile, log of collectives and the like: observing.py carries them out. Of monitors the core checks the keys."""
    for name in ("memory_breakdown", "dump_state"):
        if isinstance(config.get(name), bool):
            config.pop(name)
    for name in ("tensorboard", "csv_monitor", "wandb"):
        if isinstance(config.get(name), dict) and config[name].get("enabled") in (0, 1):
            config[name]["enabled"] = False
    for name, known in _OBSERVED.items():
        if isinstance(config.get(name), dict) and config[name].keys() <= known:
            config.pop(name)  # else the core says which key is wrong
    throughput = config["timers"].get("throughput") if isinstance(config.get("timers"), dict) else None
    if isinstance(throughput, dict):
        for name in ("enabled", "synchronized"):
            if isinstance(throughput.get(name), bool):
                throughput.pop(name)


def _translate_fp16(config: dict[str, Any]) -> None:
    section = config.get("fp16")
    if isinstance(section, dict) and section.get("auto_cast") in (0, 1):
        section["auto_cast"] = bool(section["auto_cast"])


def _translate_zero(config: dict[str, Any]) -> None:
    zero = config.get("zero_optimization")
    if not isinstance(zero, dict):
        return
    for name, value in zero.items():
        if isinstance(value, float) and math.isfinite(value) and name != "stage":  # HF's 0.9 * hidden_size^2
            zero[name] = int(value)
    for prefix in ("stage3_", ""):  # save_16bit_model reads it
        for name in ("gather_16bit_weights_on_model_save", "gather_fp16_weights_on_model_save"):
            if zero.get(prefix + name) in (False, True, "auto", None):  # 0 and 1 too; else the core says what is wrong
                zero.pop(prefix + name, None)
    if zero.pop("load_from_fp32_weights", True) is False:
        warning_once("[config zero_optimization.load_from_fp32_weights] has no effect: weights are loaded from fp32 always.")


def _drop_what_is_off(config: dict[str, Any]) -> None:
    """A key that asks for nothing, which the reader would refuse."""
    if config.get("data_parallel_size") == world_size():
        config.pop("data_parallel_size")


def without_auto(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_auto(inner) for key, inner in value.items() if inner != "auto"}
    return value

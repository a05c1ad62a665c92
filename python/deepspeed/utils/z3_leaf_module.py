"""Leaf modules: blocks that are gathered as one. Shoal's units are, so the mark only has to be seen."""

from __future__ import annotations

from typing import Any, Callable, Iterable, Mapping

from torch import nn

from deepspeed.utils.logging import warning_once


def _matches(module: nn.Module, wanted: Iterable[type | str]) -> bool:
    kind = type(module)
    names = (kind.__name__, f"{kind.__module__}.{kind.__qualname__}")
    return any(name in names if isinstance(name, str) else isinstance(module, name) for name in wanted)


def _mark(model: nn.Module, wanted: list[type | str], value: bool, raise_if_not_found: bool) -> list[nn.Module]:
    found = [module for module in model.modules() if _matches(module, wanted)]
    if not found and raise_if_not_found:
        raise ValueError(f"[set_z3_leaf_modules] no module of {wanted} is in {type(model).__name__}. Check the names.")
    for module in found:
        module._z3_leaf = value
    return found


def set_z3_leaf_modules(
    model: nn.Module, leaf_module_classes: list[type | str], raise_if_not_found: bool = True
) -> list[nn.Module]:
    return _mark(model, leaf_module_classes, True, raise_if_not_found)


def unset_z3_leaf_modules(
    model: nn.Module, leaf_module_classes: list[type | str], raise_if_not_found: bool = True
) -> list[nn.Module]:
    return _mark(model, leaf_module_classes, False, raise_if_not_found)


def set_z3_leaf_modules_by_name(
    model: nn.Module, module_names: list[str], flag: bool = True, raise_if_not_found: bool = True
) -> tuple[list[nn.Module], list[str]]:
    """Marks modules by their full names. Returns them, and the names that lead to none."""
    return _mark_by_name(model, module_names, str.__eq__, flag, raise_if_not_found)


def set_z3_leaf_modules_by_suffix(
    model: nn.Module, module_name_suffixes: list[str], flag: bool = True, raise_if_not_found: bool = True
) -> tuple[list[nn.Module], list[str]]:
    """Marks modules by how their names end. Returns them, and the endings that no name has."""
    return _mark_by_name(model, module_name_suffixes, str.endswith, flag, raise_if_not_found)


def _mark_by_name(
    model: nn.Module, wanted: list[str], matches: Callable[[str, str], bool], flag: bool, raise_if_not_found: bool
) -> tuple[list[nn.Module], list[str]]:
    found: dict[int, nn.Module] = {}
    missing = []
    for word in wanted:
        modules = [module for name, module in model.named_modules() if matches(name, word)]
        found |= {id(module): module for module in modules}
        missing += [] if modules else [word]
    if missing and raise_if_not_found:
        raise ValueError(f"[set_z3_leaf_modules] no module is named {missing} in {type(model).__name__}. Check the names.")
    for module in found.values():
        module._z3_leaf = flag
    return list(found.values()), missing


def set_z3_leaf_module(model: nn.Module, flag: bool) -> None:
    model._z3_leaf = flag


def z3_leaf_module(model: nn.Module) -> bool:
    return getattr(model, "_z3_leaf", False)


def z3_leaf_parameter(model: nn.Parameter) -> bool:
    """Whether a parameter belongs to a leaf module; the engine's units need no mark on parameters, so none has one."""
    return hasattr(model, "ds_z3_leaf_module")


def apply_zero_leaf_module_config(model: nn.Module, leaf_cfg: Any) -> list[nn.Module]:
    """Marks the modules that zero_optimization.leaf_module names, a section or an object with its fields. None: nothing."""
    if leaf_cfg is None:
        return []
    fields = leaf_cfg.get if isinstance(leaf_cfg, Mapping) else lambda key: getattr(leaf_cfg, key, None)
    found = set_z3_leaf_modules(model, list(fields("classes") or []), raise_if_not_found=False)
    by_name, missing = set_z3_leaf_modules_by_name(model, list(fields("names") or []), raise_if_not_found=False)
    by_suffix, unmatched = set_z3_leaf_modules_by_suffix(model, list(fields("name_suffixes") or []), raise_if_not_found=False)
    if missing or unmatched:
        warning_once(f"[config zero_optimization.leaf_module] no module of {type(model).__name__} is named {[*missing, *unmatched]}.")
    return list({id(module): module for module in (*found, *by_name, *by_suffix)}.values())


def get_z3_leaf_modules(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if z3_leaf_module(module)]

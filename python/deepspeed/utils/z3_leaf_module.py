"""Leaf modules: blocks that are gathered as one. Shoal's units are, so the mark only has to be seen."""

from __future__ import annotations

from typing import Callable, Iterable

from torch import nn


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


def get_z3_leaf_modules(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if z3_leaf_module(module)]

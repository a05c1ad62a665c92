"""Leaf modules: blocks that are gathered as one. Shoal's units are, so the mark only has to be seen."""

from __future__ import annotations

from typing import Iterable

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


def set_z3_leaf_module(model: nn.Module, flag: bool) -> None:
    model._z3_leaf = flag


def z3_leaf_module(model: nn.Module) -> bool:
    return getattr(model, "_z3_leaf", False)


def get_z3_leaf_modules(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if z3_leaf_module(module)]

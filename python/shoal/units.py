"""Which modules of a model are units: gathered for their forward and backward, released after.

Repeated blocks (the children of a ModuleList or Sequential) are units, large embeddings and heads are units, and what is
left is the root's.
"""

from __future__ import annotations

from typing import Callable, Iterable, Sequence

from torch import nn

from shoal import _core

# An embedding or head of at least this many elements is a unit of its own.
LARGE_NUMEL = 1_000_000

UnitRule = Callable[[str, nn.Module], bool]


def find_units(model: nn.Module, rule: UnitRule | Iterable[str | type] | None = None) -> list[tuple[str, nn.Module]]:
    """The modules of `model` that are units, in the order of their first appearance, the root (named "") last.

    `rule` names them instead: a function of name and module, or names and classes (by type or by name).
    """
    is_unit = _rule_of(model, rule)
    found: list[tuple[str, nn.Module]] = []

    def visit(name: str, module: nn.Module) -> None:
        for child_name, child in module.named_children():
            path = f"{name}.{child_name}" if name else child_name
            if is_unit(path, child) and next(child.parameters(), None) is not None:
                found.append((path, child))
            else:
                visit(path, child)

    visit("", model)
    unique: dict[int, tuple[str, nn.Module]] = {}
    for path, module in found:
        unique.setdefault(id(module), (path, module))
    return [*unique.values(), ("", model)]


def _rule_of(model: nn.Module, rule: UnitRule | Iterable[str | type] | None) -> UnitRule:
    if rule is None:
        blocks = _blocks(model)
        return lambda name, module: id(module) in blocks or _is_large(module)
    if callable(rule):
        return rule
    wanted: Sequence[str | type] = list(rule) if isinstance(rule, Iterable) and not isinstance(rule, str) else [rule]
    types = tuple(word for word in wanted if isinstance(word, type))
    words = {word for word in wanted if isinstance(word, str)}
    for word in wanted:
        if not isinstance(word, (str, type)):
            raise _core.Error(f"[units] {word!r} is no unit. Give names or classes of modules, or a function of name and module.")
        if not any(_is_named(word, name, module) for name, module in model.named_modules()):
            shown = word.__name__ if isinstance(word, type) else word
            raise _core.Error(
                f"[units] no module of {type(model).__name__} is named {shown} or of that class. Look into model.named_modules()."
            )
    return lambda name, module: isinstance(module, types) or name in words or type(module).__name__ in words


def _is_named(word: str | type, name: str, module: nn.Module) -> bool:
    return isinstance(module, word) if isinstance(word, type) else word in (name, type(module).__name__)


def _blocks(model: nn.Module) -> set[int]:
    """Children of the outermost lists of modules that hold at least two of one class."""
    blocks: set[int] = set()

    def visit(module: nn.Module) -> None:
        if isinstance(module, (nn.ModuleList, nn.Sequential)):
            children = [child for child in module.children() if next(child.parameters(), None) is not None]
            classes = [type(child) for child in children]
            repeated = [child for child in children if classes.count(type(child)) > 1]
            if isinstance(module, nn.ModuleList) and repeated:
                blocks.update(id(child) for child in repeated)
                return
            if isinstance(module, nn.Sequential) and len(repeated) > 1:
                blocks.update(id(child) for child in repeated)
        for child in module.children():
            if id(child) not in blocks:
                visit(child)

    visit(model)
    return blocks


def _is_large(module: nn.Module) -> bool:
    own = list(module.parameters(recurse=False))
    return not any(True for _ in module.children()) and sum(_numel(param) for param in own) >= LARGE_NUMEL


def _numel(param: nn.Parameter) -> int:
    return getattr(param, "ds_numel", None) or param.numel()


def parts_of_root(modules: list[tuple[str, nn.Module]], params: set[int]) -> list[nn.Module]:
    """The modules below the root and outside of all other units that have one of these parameters, by id, somewhere in them.
    modules: the units."""
    units = {id(module) for path, module in modules if path}
    found = []

    def visit(module: nn.Module) -> bool:
        has = any(id(param) in params for param in module.parameters(recurse=False))
        for child in module.children():
            if id(child) not in units:
                has = visit(child) or has
        if has:
            found.append(module)
        return has

    for child in modules[-1][1].children():
        if id(child) not in units:
            visit(child)
    return list({id(module): module for module in found}.values())


def params_of_units(modules: list[tuple[str, nn.Module]]) -> list[tuple[str, list[tuple[str, nn.Parameter]]]]:
    """Of each unit its name and its parameters by the model's names: tied ones in every unit that uses them, and in the
    root what is in no other."""
    prefixes = tuple(f"{path}." for path, _ in modules if path)
    found = []
    for path, module in modules:
        params = []
        # Wrappers of torch (checkpoint_wrapper) leave a part of the names out when they are asked themselves.
        for local, param in nn.Module.named_parameters(module, remove_duplicate=False):
            name = f"{path}.{local}" if path else local
            if path or not name.startswith(prefixes):
                params.append((name, param))
        found.append((path or "root", params))
    return found

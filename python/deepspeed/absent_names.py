"""Modules and names that DeepSpeed has and Shoal has not: they can be imported, and are refused when they are used.

names.txt lists what the real package has. A module of that list that is not here is made empty; a name of the list that a
module has not is looked for where DeepSpeed takes it from, and else is a class that raises NotImplementedError when it is
called or asked for an attribute. It may be subclassed and stand in isinstance; it is false. Constants have their values.
What is not in the list stays an ImportError or an AttributeError.
"""

from __future__ import annotations

import abc
import ast
import functools
import importlib
import importlib.abc
import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, NoReturn

from deepspeed.alternatives import alternative_to

# Modules that others look for to learn whether a feature works; they are not made. OpenFold asks for its attention kernel so.
PROBED = ("deepspeed.ops.deepspeed4science",)


class _Names:
    """Of one module of the real package."""

    def __init__(self, is_package: bool):
        self.is_package = is_package
        self.plain: set[str] = set()
        self.constants: dict[str, Any] = {}
        self.sources: dict[str, tuple[str, str]] = {}  # the module that a name comes from, and its name there
        self.stars: list[str] = []  # modules of which all names are here too


@functools.cache
def table() -> dict[str, _Names]:
    """What the real package has, by module. tools/list_deepspeed_names.py has the grammar."""
    found: dict[str, _Names] = {}
    names = _Names(True)
    for line in Path(__file__).with_name("names.txt").read_text().splitlines():
        if line.startswith("#"):
            continue
        if not line.startswith(" "):
            names = found[line.rstrip("/")] = _Names(line.endswith("/"))
        elif line.startswith(" < "):
            _, source, *words = line.split()
            for word in words:
                name, _, alias = word.partition(":")
                if name == "*":
                    names.stars.append(source)
                else:
                    names.sources[alias or name] = (source, name)
        elif " = " in line:
            name, _, value = line.strip().partition(" = ")
            names.constants[name] = ast.literal_eval(value)
        else:
            names.plain.update(line.split())
    return {module: names for module, names in found.items() if not module.startswith(PROBED)}


def _origin(module: str, name: str, seen: frozenset[str] = frozenset()) -> tuple[str, str] | None:
    """Where the real package defines what `module` has under the name; a module's origin is itself. None: it has no such name."""
    names = table().get(module)
    if names is None or module in seen:
        return None
    if name in names.plain or name in names.constants:
        return module, name
    if name in names.sources:
        source, there = names.sources[name]
        return _origin(source, there, seen | {module}) or (_as_module(source, there) or (source, there))
    for star in names.stars:
        found = _origin(star, name, seen | {module}) if not name.startswith("_") else None
        if found is not None:
            return found
    return _as_module(module, name)


def _as_module(module: str, name: str) -> tuple[str, str] | None:
    return (f"{module}.{name}", "") if f"{module}.{name}" in table() else None


@functools.cache
def _exporters() -> dict[tuple[str, str], list[tuple[str, str]]]:
    """The modules that have what is defined elsewhere, and under which name, by where it is defined."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for module, names in table().items():
        here = set(names.sources)
        for star in names.stars:
            here |= table()[star].plain if star in table() else set()
        for name in here:
            origin = _origin(module, name)
            if origin is not None and origin[1]:
                found.setdefault(origin, []).append((module, name))
    return found


def look_up(module: str, name: str) -> Any:
    """What stands for a name that a module has not: what Shoal has elsewhere, a constant, a module, or a refusal."""
    own = sys.modules.get(module)
    if name.startswith("__") or getattr(getattr(own, "__spec__", None), "_initializing", False):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    if _is_own(f"{module}.{name}"):
        return importlib.import_module(f"{module}.{name}")
    origin = _origin(module, name)
    if origin is None:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    there, known_as = origin
    if not known_as:
        return importlib.import_module(there)
    for place, alias in [origin, *_exporters().get(origin, [])]:
        found = _own_value(place, alias)
        if found is not _NOTHING:
            return found
    found = _in_package_above(there, known_as)
    if found is not _NOTHING:
        return found
    constants = table()[there].constants if there in table() else {}
    return constants[known_as] if known_as in constants else absent(f"{module}.{name}")


_NOTHING = object()


def _own_value(module: str, name: str) -> Any:
    """What a module of Shoal's own holds under the name."""
    if not _is_own(module):
        return _NOTHING
    return vars(importlib.import_module(module)).get(name, _NOTHING)


def _in_package_above(module: str, name: str) -> Any:
    """A class or a function that Shoal defines in the nearest package of its own, where DeepSpeed has it further below."""
    while "." in module and not _is_own(module):
        module = module.rpartition(".")[0]
    found = _own_value(module, name)
    return found if getattr(found, "__module__", None) == module else _NOTHING


@functools.cache
def _is_own(module: str) -> bool:
    path = Path(__file__).parent.joinpath(*module.split(".")[1:])
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


class _Absent(abc.ABCMeta):
    """The class of the stand-ins, and of what is derived from one."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(cls)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        _refuse(cls)

    def __iter__(cls) -> NoReturn:
        _refuse(cls)

    def __getitem__(cls, key: Any) -> NoReturn:
        _refuse(cls)

    def __bool__(cls) -> bool:
        return False

    def __repr__(cls) -> str:
        return f"<{cls.__module__}.{cls.__qualname__}, which Shoal has not>"


def is_absent(value: Any) -> bool:
    """Whether it is a stand-in, or derived from one."""
    return isinstance(value, _Absent)


def _refuse(kind: type) -> NoReturn:
    name = next(each for each in kind.__mro__ if "_is_stand_in" in vars(each))
    raise NotImplementedError(refusal(f"{name.__module__}.{name.__qualname__}"))


def refusal(name: str) -> str:
    return f"[{name}] DeepSpeed has this, and Shoal has not. {alternative_to(name)}"


@functools.cache
def absent(name: str) -> type:
    """The stand-in for a name of the real package."""
    module, _, short = name.rpartition(".")

    def refuse_instance(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(type(self) if not isinstance(self, type) else self)

    body = {"__module__": module, "__qualname__": short, "_is_stand_in": True, "__doc__": refusal(name)}
    bases = (Exception,) if short.endswith(("Error", "Exception")) else ()  # it may stand behind `except`
    return _Absent(short, bases, body | {"__new__": refuse_instance, "__setstate__": refuse_instance})


class _EmptyModule(importlib.abc.Loader):
    """Loads a module that has nothing of its own."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = ModuleType(spec.name)
        module.__doc__ = refusal(spec.name)
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__getattr__"] = attributes_of(module.__name__)


class _Finder(importlib.abc.MetaPathFinder):
    """Before all others: lets them find Shoal's own modules, and finds those that only the real package has."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith("deepspeed."):
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if not isinstance(finder, _Finder) else None
            if spec is not None:
                _have_attributes(spec)
                return spec
        names = table().get(fullname)
        if names is None:
            return None
        return importlib.machinery.ModuleSpec(fullname, _EmptyModule(), is_package=names.is_package)


def _have_attributes(spec: importlib.machinery.ModuleSpec) -> None:
    """The module of the spec will answer for names that only the real one has."""
    execute = spec.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        module.__dict__.setdefault("__getattr__", attributes_of(module.__name__))

    spec.loader.exec_module = exec_module


def attributes_of(module: str) -> Callable[[str], Any]:
    """The __getattr__ of a module."""
    return functools.partial(look_up, module)


def install() -> None:
    """Once, before the first module below `deepspeed` is imported."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())

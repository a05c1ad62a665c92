"""Sections of a config as objects that can be read: fields by DeepSpeed's names, with its defaults. What the engine does
with a key is told by docs/config.md; here values are only converted and kept."""

from __future__ import annotations

import difflib
import enum
import json
from typing import Any, ClassVar, Iterable, Mapping

from deepspeed.runtime.config_errors import DeepSpeedConfigError


class Field:
    """One key: its default, what it takes, and its other name. A type of None takes anything."""

    def __init__(self, default: Any, kind: type | None = None, alias: str | None = None, least: float | None = None,
                 most: float | None = None, nullable: bool = False):  # fmt: skip
        self.default = default
        self.kind = kind if kind is not None or default is None else type(default)
        self.alias, self.least, self.most = alias, least, most
        self.nullable = nullable or default is None

    def get_default(self) -> Any:
        if isinstance(self.default, type):
            return self.default()
        return list(self.default) if isinstance(self.default, list) else self.default

    def is_required(self) -> bool:
        return False

    def convert(self, value: Any) -> Any:
        """The value as the field's type. Raises ValueError with what it takes."""
        if value is None and self.nullable or self.kind is None:
            return value
        converted = _convert(self.kind, value)
        low = self.least is not None and converted < self.least
        if low or (self.most is not None and converted > self.most):
            raise ValueError(f"{value!r} is out of range. Give {self._range()}.")
        return converted

    def _range(self) -> str:
        parts = [f"at least {self.least}"] if self.least is not None else []
        return " and ".join(parts + ([f"at most {self.most}"] if self.most is not None else []))


def _convert(kind: type, value: Any) -> Any:
    if issubclass(kind, DeepSpeedConfigModel):
        if isinstance(value, kind):
            return value
        if isinstance(value, Mapping):
            return kind(**value)
        raise ValueError(f"{value!r} is not an object.")
    if issubclass(kind, enum.Enum):
        words = ", ".join(str(each.value) for each in kind)
        if value not in [each.value for each in kind]:
            raise ValueError(f"{value!r} is not known. Give one of {words}.")
        return kind(value).value
    if kind is bool:
        words = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
        if str(value).lower() in words:
            return words[str(value).lower()]
        raise ValueError(f"{value!r} is neither true nor false.")
    if kind is int:
        if isinstance(value, int):
            return int(value)
        if isinstance(value, (float, str)) and float(value) == int(float(value)):
            return int(float(value))
        raise ValueError(f"{value!r} is not a whole number.")
    if kind is float:
        if isinstance(value, bool):
            raise ValueError(f"{value!r} is not a number.")
        return float(value)
    if kind is list:
        return [value] if isinstance(value, str) else list(value)
    return kind(value)


class DeepSpeedConfigModel:
    """The base of a section. Fields are class attributes of type Field; "auto" stands for the default."""

    model_fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls) -> None:
        own = {name: field for name, field in vars(cls).items() if isinstance(field, Field)}
        cls.model_fields = {**cls.model_fields, **own}
        for name in own:
            delattr(cls, name)

    def __init__(self, strict: bool = False, **data: Any):
        given = {key: value for key, value in data.items() if strict or value != "auto"}
        names = {field.alias: name for name, field in self.model_fields.items() if field.alias}
        found = {names.get(key, key): value for key, value in given.items()}
        for key in found:
            if key not in self.model_fields:
                near = difflib.get_close_matches(key, self.model_fields, 1)
                hint = f'Did you mean "{near[0]}"?' if near else "docs/config.md lists the keys."
                raise DeepSpeedConfigError(f"[config {type(self).__name__}.{key}] unknown key. {hint}")
        object.__setattr__(self, "model_fields_set", set(found))
        for name, field in self.model_fields.items():
            setattr(self, name, found[name] if name in found else field.get_default())
        self.settle()

    def settle(self) -> None:
        """What follows from the fields together; for sections that have such rules."""

    def __setattr__(self, name: str, value: Any) -> None:
        field = self.model_fields.get(name)
        try:
            object.__setattr__(self, name, value if field is None else field.convert(value))
        except (ValueError, TypeError) as error:
            if isinstance(error, DeepSpeedConfigError):
                raise
            raise DeepSpeedConfigError(f"[config {type(self).__name__}.{name}] {error}") from None

    def model_dump(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in self.model_fields}

    dict = model_dump

    def __eq__(self, other: Any) -> bool:
        return type(self) is type(other) and self.model_dump() == other.model_dump()

    __hash__ = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in self.model_dump().items())})"


def _plain(value: Any) -> Any:
    return value.model_dump() if isinstance(value, DeepSpeedConfigModel) else value


class DeepSpeedConfigObject:
    """A section whose fields are plain attributes."""

    def repr(self) -> dict[str, Any]:
        return self.__dict__

    def __repr__(self) -> str:
        return json.dumps(self.__dict__, sort_keys=True, indent=4, default=str)


class pp_int(int):  # noqa: N801  (DeepSpeed's name)
    """An integer that prints with commas, or as the text it was given."""

    def __new__(cls, value: float, custom_print_str: str | None = None) -> pp_int:
        found = super().__new__(cls, value)
        found.custom_print_str = custom_print_str
        return found

    def __repr__(self) -> str:
        return self.custom_print_str or f"{int(self):,}"


def get_config_default(config: type[DeepSpeedConfigModel], field_name: str) -> Any:
    if field_name not in config.model_fields:
        raise DeepSpeedConfigError(f"[config {field_name}] is no field of {config.__name__}.")
    return config.model_fields[field_name].get_default()


def get_scalar_param(param_dict: Mapping[str, Any], param_name: str, param_default_value: Any) -> Any:
    return param_dict.get(param_name, param_default_value)


get_list_param = get_dict_param = get_scalar_param


def dict_raise_error_on_duplicate_keys(ordered_pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """For json.load's object_pairs_hook."""
    pairs = list(ordered_pairs)
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [key for key, _ in pairs]
        twice = sorted({key for key in names if names.count(key) > 1})
        raise DeepSpeedConfigError(f"[config] Duplicate keys in DeepSpeed config: {twice}. Remove one of each.")
    return found

"""Converts JSON values to the annotated types of dataclass fields."""

from __future__ import annotations

import dataclasses
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints


def as_type(hint: Any, value: Any) -> Any:
    """Convert a JSON value to an annotated type: lists become tuples, objects dataclasses.

    Raises:
        TypeError: the value has another type, or a field is missing or unknown.
        UnicodeEncodeError: a string contains half a surrogate pair.
    """
    if isinstance(hint, type) and dataclasses.is_dataclass(hint) and isinstance(value, dict):
        return _as_dataclass(hint, value)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal and value in args:
        return value
    if origin is UnionType:
        return None if value is None else as_type(args[0], value)
    if origin is tuple and isinstance(value, list | tuple):
        kinds = [args[0]] * len(value) if args[-1] is ... else args
        if len(kinds) == len(value):
            return tuple(as_type(kind, item) for kind, item in zip(kinds, value, strict=True))
    if hint in (int, str, bool) and type(value) is hint:
        if hint is str:
            value.encode()
        return value
    raise TypeError(f"{value!r} is not {_describe(hint)}")


def _as_dataclass(kind: type, value: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    if unknown := [name for name in value if name not in hints]:
        raise TypeError(f"there is no field {unknown[0]!r}; the fields are {', '.join(hints)}")
    needed = (field.name for field in dataclasses.fields(kind) if _has_no_default(field))
    if missing := [name for name in needed if name not in value]:
        raise TypeError(f"the field {missing[0]!r} is missing")
    return kind(**{name: as_type(hints[name], item) for name, item in value.items()})


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


_DESCRIPTIONS = {int: "a whole number", str: "a text", bool: "true or false"}


def _describe(hint: Any) -> str:
    """Return the name of a type in terms of JSON, for error messages."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return f"one of {', '.join(args)}"
    if origin is tuple:
        return "a list"
    return _DESCRIPTIONS.get(hint, "an object")

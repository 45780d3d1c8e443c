"""Typed reading of actions: every complaint names the action and the field, and is a `BadAction`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from lakepact.delta.errors import BadAction
from lakepact.errors import json_kind

JsonDict: TypeAlias = dict[str, Any]

INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


def json_object(value: object, where: str) -> JsonDict:
    if not isinstance(value, dict):
        raise BadAction(f"{where}: expected an object, found {json_kind(value)}")
    return value


def text(document: Mapping[str, Any], name: str, where: str) -> str:
    value = _present(document, name, where)
    if not isinstance(value, str):
        raise BadAction(f"{where}: {name!r} must be a string, found {json_kind(value)}")
    return value


def filled_text(document: Mapping[str, Any], name: str, where: str) -> str:
    value = text(document, name, where)
    if not value:
        raise BadAction(f"{where}: {name!r} must not be empty")
    return value


def optional_text(document: Mapping[str, Any], name: str, where: str) -> str | None:
    return None if document.get(name) is None else text(document, name, where)


def boolean(document: Mapping[str, Any], name: str, where: str) -> bool:
    value = _present(document, name, where)
    if not isinstance(value, bool):
        raise BadAction(f"{where}: {name!r} must be true or false, found {json_kind(value)}")
    return value


def optional_boolean(document: Mapping[str, Any], name: str, where: str, default: bool) -> bool:
    return default if document.get(name) is None else boolean(document, name, where)


def integer(document: Mapping[str, Any], name: str, where: str, least: int = INT64_MIN, most: int = INT64_MAX) -> int:
    value = _present(document, name, where)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadAction(f"{where}: {name!r} must be a whole number, found {json_kind(value)}")
    if not least <= value <= most:
        raise BadAction(f"{where}: {name!r} must be between {least} and {most}, found {value}")
    return value


def optional_integer(
    document: Mapping[str, Any], name: str, where: str, least: int = INT64_MIN, most: int = INT64_MAX
) -> int | None:
    return None if document.get(name) is None else integer(document, name, where, least, most)


def text_list(document: Mapping[str, Any], name: str, where: str) -> tuple[str, ...]:
    values = _present(document, name, where)
    if not isinstance(values, list):
        raise BadAction(f"{where}: {name!r} must be an array, found {json_kind(values)}")
    for value in values:
        if not isinstance(value, str):
            raise BadAction(f"{where}: the elements of {name!r} must be strings, found {json_kind(value)}")
    return tuple(values)


def optional_text_list(document: Mapping[str, Any], name: str, where: str) -> tuple[str, ...] | None:
    return None if document.get(name) is None else text_list(document, name, where)


def text_map(document: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    values = json_object(_present(document, name, where), f"{where}: {name!r}")
    for key, value in values.items():
        if not isinstance(value, str):
            raise BadAction(f"{where}: {name!r}: the value of {key!r} must be a string, found {json_kind(value)}")
    return values


def nullable_text_map(document: Mapping[str, Any], name: str, where: str) -> dict[str, str | None]:
    values = json_object(_present(document, name, where), f"{where}: {name!r}")
    for key, value in values.items():
        if value is not None and not isinstance(value, str):
            raise BadAction(
                f"{where}: {name!r}: the value of {key!r} must be a string or null, found {json_kind(value)}"
            )
    return values


def optional_nullable_text_map(document: Mapping[str, Any], name: str, where: str) -> dict[str, str | None] | None:
    return None if document.get(name) is None else nullable_text_map(document, name, where)


def _present(document: Mapping[str, Any], name: str, where: str) -> Any:
    value = document.get(name)
    if value is None:
        raise BadAction(f"{where}: {name!r} is missing")
    return value

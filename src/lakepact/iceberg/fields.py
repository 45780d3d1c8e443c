"""Typed reading of JSON that came from outside. Whatever is wrong is said with its place, and is a `Malformed`.

Numbers are held to the ranges of the specification: Java clients read ids as 32 or 64 bits, and metadata they cannot
read would lock them out of the table.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from lakepact.errors import json_kind
from lakepact.iceberg.errors import Malformed
from lakepact.limits import JSON_DEPTH

JsonObject: TypeAlias = dict[str, Any]
"""A JSON object as orjson loads it. By convention nobody changes one that somebody else can see."""

INT32_MIN: Final = -(2**31)
INT32_MAX: Final = 2**31 - 1
INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

MAX_DEPTH: Final = JSON_DEPTH.most
"""How deep a body may nest. orjson stops writing at 254, and metadata wraps a body in a few levels of its own."""


def json_object(value: object, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise Malformed(f"{where}: expected an object, found {json_kind(value)}")
    return value


def json_list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise Malformed(f"{where}: expected an array, found {json_kind(value)}")
    return value


def text(document: JsonObject, name: str, where: str) -> str:
    value = _present(document, name, where)
    if not isinstance(value, str):
        raise Malformed(f"{where}: {name!r} must be a string, found {json_kind(value)}")
    return value


def filled_text(document: JsonObject, name: str, where: str) -> str:
    value = text(document, name, where)
    if not value:
        raise Malformed(f"{where}: {name!r} must not be empty")
    return value


def optional_text(document: JsonObject, name: str, where: str) -> str | None:
    return None if document.get(name) is None else text(document, name, where)


def boolean(document: JsonObject, name: str, where: str) -> bool:
    value = _present(document, name, where)
    if not isinstance(value, bool):
        raise Malformed(f"{where}: {name!r} must be true or false, found {json_kind(value)}")
    return value


def int32(document: JsonObject, name: str, where: str) -> int:
    return _integer(_present(document, name, where), f"{where}: {name!r}", INT32_MIN, INT32_MAX)


def int64(document: JsonObject, name: str, where: str) -> int:
    return _integer(_present(document, name, where), f"{where}: {name!r}", INT64_MIN, INT64_MAX)


def optional_int32(document: JsonObject, name: str, where: str) -> int | None:
    return None if document.get(name) is None else int32(document, name, where)


def optional_int64(document: JsonObject, name: str, where: str) -> int | None:
    return None if document.get(name) is None else int64(document, name, where)


def int32_list(document: JsonObject, name: str, where: str) -> list[int]:
    values = json_list(_present(document, name, where), f"{where}: {name!r}")
    return [_integer(value, f"{where}: an element of {name!r}", INT32_MIN, INT32_MAX) for value in values]


def int64_list(document: JsonObject, name: str, where: str) -> list[int]:
    values = json_list(_present(document, name, where), f"{where}: {name!r}")
    return [_integer(value, f"{where}: an element of {name!r}", INT64_MIN, INT64_MAX) for value in values]


def text_list(document: JsonObject, name: str, where: str) -> list[str]:
    values = json_list(_present(document, name, where), f"{where}: {name!r}")
    for value in values:
        if not isinstance(value, str):
            raise Malformed(f"{where}: the elements of {name!r} must be strings, found {json_kind(value)}")
    return values


def text_map(document: JsonObject, name: str, where: str) -> dict[str, str]:
    values = json_object(_present(document, name, where), f"{where}: {name!r}")
    for key, value in values.items():
        if not isinstance(value, str):
            raise Malformed(f"{where}: {name!r}: the value of {key[:80]!r} must be a string, found {json_kind(value)}")
    return values


def without_nulls(document: JsonObject, *names: str) -> JsonObject:
    """The object without these fields where they are null.

    For many optional fields Java's reader takes "absent" and refuses "null": what a lenient client sends must not
    be stored as it came.
    """
    if all(document.get(name, document) is not None for name in names):
        return document
    return {name: value for name, value in document.items() if value is not None or name not in names}


def check_depth(value: object, where: str, limit: int = MAX_DEPTH) -> None:
    """Refuse what nests too deeply, before anything walks it by recursion."""
    level = [value]
    for _ in range(limit):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
    raise Malformed(f"{where}: nested more than {limit} levels deep")


def _present(document: JsonObject, name: str, where: str) -> Any:
    value = document.get(name)
    if value is None:
        raise Malformed(f"{where}: {name!r} is missing")
    return value


def _integer(value: object, where: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed(f"{where} must be a whole number, found {json_kind(value)}")
    if not least <= value <= most:
        raise Malformed(f"{where} must be between {least} and {most}, found {value}")
    return value

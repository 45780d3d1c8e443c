"""Default values of columns, in the JSON form of single values. A default no reader can read locks readers out."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Final

from lakepact.iceberg.errors import Malformed
from lakepact.iceberg.fields import INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN
from lakepact.iceberg.types import decimal_scale, family, fixed_length

_HEXADECIMAL: Final = re.compile(r"[0-9a-fA-F]*", re.ASCII)
_DECIMAL_CHARACTERS: Final = 128
"""More than any decimal of 38 digits takes."""

_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", re.ASCII)
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"(\d\d:\d\d(?::\d\d)?)(?:\.(\d{1,9}))?", re.ASCII)
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d(?::\d\d)?)(?:\.\d{1,9})?(.*)", re.ASCII)
_UTC: Final = frozenset({"Z", "+00:00", "+00", "+0000", "+00:00:00"})


def check_default(value: object, type_name: str, where: str) -> None:
    """Refuse a default that is not a value of this (spelled) primitive type."""
    if not _fits(value, type_name):
        raise Malformed(f"{where}: {str(value)[:80]!r} is not a value of type {type_name}")


def _fits(value: object, type_name: str) -> bool:
    if isinstance(value, str):
        return _text_fits(value, type_name)
    match family(type_name):
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return _whole(value, INT32_MIN, INT32_MAX)
        case "long":
            return _whole(value, INT64_MIN, INT64_MAX)
        case "float" | "double":
            # Java's reader takes 1.0 and refuses 1.
            return isinstance(value, float)
        case _:
            return False


def _whole(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _text_fits(value: str, type_name: str) -> bool:
    match family(type_name):
        case "string":
            return True
        case "uuid":
            return _UUID.fullmatch(value) is not None
        case "binary":
            return _is_hexadecimal(value)
        case "fixed":
            return _is_hexadecimal(value) and len(value) == 2 * (fixed_length(type_name) or 0)
        case "decimal":
            return _decimal_fits(value, type_name)
        case "date":
            return _DATE.fullmatch(value) is not None and _parses(date.fromisoformat, value)
        case "time":
            found = _TIME.fullmatch(value)
            return found is not None and _parses(time.fromisoformat, found[1])
        case "timestamp" | "timestamp_ns":
            return _timestamp_fits(value, frozenset({""}))
        case "timestamptz" | "timestamptz_ns":
            return _timestamp_fits(value, _UTC)
        case _:
            return False


def _is_hexadecimal(value: str) -> bool:
    return len(value) % 2 == 0 and _HEXADECIMAL.fullmatch(value) is not None


def _decimal_fits(value: str, type_name: str) -> bool:
    if len(value) > _DECIMAL_CHARACTERS:
        return False
    try:
        parsed = Decimal(value)
    except InvalidOperation:
        return False
    return parsed.is_finite() and -int(parsed.as_tuple().exponent) == decimal_scale(type_name)


def _timestamp_fits(value: str, zones: frozenset[str]) -> bool:
    found = _TIMESTAMP.fullmatch(value)
    return found is not None and found[3] in zones and _parses(datetime.fromisoformat, f"{found[1]}T{found[2]}")


def _parses(parse: Callable[[str], object], value: str) -> bool:
    try:
        parse(value)
    except ValueError:
        return False
    return True

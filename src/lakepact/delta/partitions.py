"""Values of partition columns: strings in actions, typed when they are compared.

A `timestamp` is written in UTC with its zone, `2026-01-31T12:00:00.000000Z`: without one every engine takes it in the
zone of its own session. Both spellings are read.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Final

from lakepact.delta.errors import BadAction
from lakepact.delta.schema import DataType, Primitive

_INTEGERS: Final = {"long": 63, "integer": 31, "short": 15, "byte": 7}
_WHOLE: Final = re.compile(r"[+-]?\d+")
_TIMESTAMP: Final = re.compile(r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d:\d\d)(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?")


def value_text(value: object, type_: DataType) -> str | None:
    """A Python value as an action spells it."""
    name = type_.name if isinstance(type_, Primitive) else "?"
    match value:
        case None:
            return None
        case bool():
            text = "true" if value else "false"
        case dt.datetime() if name == "timestamp":
            if value.tzinfo is None:
                raise BadAction(f"partition value {value}: a timestamp needs its time zone")
            text = value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        case dt.datetime():
            text = value.isoformat(" ")
        case dt.date():
            text = value.isoformat()
        case float():
            text = _float_text(value)
        case int() | str() | Decimal():
            text = str(value)
        case _:
            raise BadAction(f"partition value of type {type(value).__name__} cannot be spelled in an action")
    check_value(text, type_, "partition value")
    return text or None


def canonical_text(text: str | None, type_: DataType, zone: dt.tzinfo = dt.UTC) -> str | None:
    """A value from a directory's name as an action spells it. `zone`: in which times without one were written."""
    value = _typed(text, type_, "partition value", zone)
    if value is None or not isinstance(type_, Primitive) or type_.name not in ("timestamp", "timestamp_ntz"):
        return text or None
    return value_text(value, type_)


def typed(text: str | None, type_: DataType) -> object:
    """What a spelling means, so that two spellings of one value are equal. The empty string is null."""
    return _typed(text, type_, "partition value", dt.UTC)


def check_value(text: str | None, type_: DataType, where: str) -> None:
    _typed(text, type_, where, dt.UTC)


def _typed(text: str | None, type_: DataType, where: str, zone: dt.tzinfo) -> object:
    if text is None or text == "":
        return None
    if not isinstance(type_, Primitive):
        raise BadAction(f"{where}: a column of type {type(type_).__name__.lower()} cannot partition a table")
    try:
        return _of(text, type_, zone)
    except (ValueError, InvalidOperation, OverflowError):
        raise BadAction(f"{where}: {text[:100]!r} is not a {type_.name}") from None


def _of(text: str, type_: Primitive, zone: dt.tzinfo) -> object:
    decimal = type_.decimal
    if decimal is not None:
        number = Decimal(text)
        if not number.is_finite() or abs(number) >= Decimal(10) ** (decimal[0] - decimal[1]):
            raise ValueError(text)
        return number
    match type_.name:
        case "long" | "integer" | "short" | "byte":
            if (
                not _WHOLE.fullmatch(text)
                or not -(2 ** _INTEGERS[type_.name]) <= int(text) < 2 ** _INTEGERS[type_.name]
            ):
                raise ValueError(text)
            return int(text)
        case "float" | "double":
            value = float(text)
            return "NaN" if math.isnan(value) else value
        case "boolean":
            return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else int("?")
        case "date":
            return dt.date.fromisoformat(text)
        case "timestamp" | "timestamp_ntz":
            return _timestamp(text, zone, has_zone=type_.name == "timestamp")
        case _:
            return text


def _timestamp(text: str, zone: dt.tzinfo, *, has_zone: bool) -> dt.datetime:
    found = _TIMESTAMP.fullmatch(text)
    if found is None or (found[4] and not has_zone):
        raise ValueError(text)
    value = dt.datetime.fromisoformat(
        f"{found[1]}T{found[2] or '00:00:00'}{(found[3] or '').ljust(7, '0') if found[3] else ''}"
    )
    if not has_zone:
        return value
    offset = dt.datetime.fromisoformat(f"{found[1]}T00:00:00{found[4]}").tzinfo if found[4] else zone
    return value.replace(tzinfo=offset).astimezone(dt.UTC)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)

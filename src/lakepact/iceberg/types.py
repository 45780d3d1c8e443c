"""Primitive types by name: their one spelling, what is comparable about them, and since which format they exist.

A type in a schema is a name (`long`, `decimal(10, 2)`) or an object (`struct`, `list`, `map`); the objects are the
business of `schemas`. `variant` is written like a primitive, but nothing can be partitioned or sorted by it.
"""

from __future__ import annotations

import re
from typing import Final

from lakepact.iceberg.errors import Malformed
from lakepact.limits import TYPE_CHARACTERS

_SIMPLE: Final = frozenset(
    {
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "timestamp_ns",
        "timestamptz_ns",
        "string",
        "uuid",
        "binary",
        "unknown",
        "variant",
        "geometry",
        "geography",
    }
)
_FIXED: Final = re.compile(r"fixed\[\s*(\d{1,9})\s*\]", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)", re.ASCII)
_GEOMETRY: Final = re.compile(r"geometry\s*\(([^)]*)\)", re.IGNORECASE)
_GEOGRAPHY: Final = re.compile(r"geography\s*\(([^,)]*)(?:,([^)]*))?\)", re.IGNORECASE)
"""Whitespace inside of the parentheses is stripped afterwards: to match it here as well would take cubic time."""

_ALGORITHMS: Final = frozenset({"spherical", "vincenty", "thomas", "andoyer", "karney"})
_DEFAULT_CRS: Final = "OGC:CRS84"
_MAX_PRECISION: Final = 38

SINCE: Final = {
    "timestamp_ns": 3,
    "timestamptz_ns": 3,
    "variant": 3,
    "unknown": 3,
    "geometry": 3,
    "geography": 3,
}
"""The format version a type needs, by family; the others have always been there."""


def spelled(name: str, where: str) -> str:
    """The type as every reader spells it. Unknown types are refused: no client could read the table."""
    TYPE_CHARACTERS.check(len(name), f"{where}: 'type'")
    lower = name.lower()
    if lower in _SIMPLE:
        return lower
    if found := _FIXED.fullmatch(lower):
        return f"fixed[{int(found[1])}]"
    if found := _DECIMAL.fullmatch(lower):
        precision, scale = int(found[1]), int(found[2])
        if precision > _MAX_PRECISION:
            raise Malformed(f"{where}: {name!r}: the precision of a decimal is at most {_MAX_PRECISION}")
        return f"decimal({precision}, {scale})"
    if (found := _GEOMETRY.fullmatch(name)) and (crs := found[1].strip()):
        return f"geometry({crs})"
    if (found := _GEOGRAPHY.fullmatch(name)) and (crs := found[1].strip()):
        if found[2] is None:
            return f"geography({crs})"
        if (algorithm := found[2].strip().lower()) in _ALGORITHMS:
            return f"geography({crs}, {algorithm})"
    raise Malformed(f"{where}: {name[:80]!r} is not a type")


def family(name: str) -> str:
    """The type without its parameters: `decimal(10, 2)` is a `decimal`."""
    for number, character in enumerate(name):
        if character in "([":
            return name[:number]
    return name


def comparable(name: str) -> str:
    """Equal for two spelled names exactly if they are the same type. Coordinate systems ignore case and default."""
    match family(name):
        case "geometry":
            found = _GEOMETRY.fullmatch(name)
            return f"geometry({(found[1].strip() if found else _DEFAULT_CRS).upper()})"
        case "geography":
            found = _GEOGRAPHY.fullmatch(name)
            crs = found[1].strip() if found else _DEFAULT_CRS
            algorithm = ((found[2] if found else None) or "spherical").strip()
            return f"geography({crs.upper()}, {algorithm.lower()})"
        case _:
            return name


def fixed_length(name: str) -> int | None:
    """The length of a spelled `fixed`; None for other types."""
    found = _FIXED.fullmatch(name)
    return int(found[1]) if found else None


def decimal_scale(name: str) -> int | None:
    """The scale of a spelled `decimal`; None for other types."""
    found = _DECIMAL.fullmatch(name)
    return int(found[2]) if found else None

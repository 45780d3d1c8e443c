"""Transforms of partition and sort fields: their one spelling, and which types they take."""

from __future__ import annotations

import re
from typing import Final

from lakepact.iceberg.errors import Malformed
from lakepact.iceberg.fields import INT32_MAX
from lakepact.iceberg.types import family
from lakepact.limits import TYPE_CHARACTERS

VOID: Final = "void"
_PLAIN: Final = frozenset({"identity", "year", "month", "day", "hour", VOID})
_WITH_WIDTH: Final = re.compile(r"(bucket|truncate)\[(\d+)\]", re.IGNORECASE | re.ASCII)

_TIMESTAMPS: Final = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_TAKES: Final = {
    "bucket": _TIMESTAMPS | {"int", "long", "date", "time", "string", "binary", "fixed", "decimal", "uuid"},
    "truncate": frozenset({"int", "long", "string", "binary", "decimal"}),
    "year": _TIMESTAMPS | {"date"},
    "month": _TIMESTAMPS | {"date"},
    "day": _TIMESTAMPS | {"date"},
    "hour": _TIMESTAMPS,
}
_NOT_BY_IDENTITY: Final = frozenset({"variant", "geometry", "geography"})


def spelled(transform: str, where: str) -> str:
    """The transform as every reader spells it. One that this release does not know is kept as it is."""
    TYPE_CHARACTERS.check(len(transform), f"{where}: 'transform'")
    lower = transform.lower()
    if lower in _PLAIN:
        return lower
    if found := _WITH_WIDTH.fullmatch(transform):
        width = int(found[2]) if len(found[2]) < 12 else 0
        if not 0 < width <= INT32_MAX:
            raise Malformed(f"{where}: {transform[:80]!r}: the width must be between 1 and {INT32_MAX}")
        return f"{found[1].lower()}[{width}]"
    return transform


def takes(transform: str, type_name: str) -> bool:
    """Whether a spelled transform can be applied to a spelled type."""
    source = family(type_name)
    kind = family(transform)
    if kind == "identity":
        return source not in _NOT_BY_IDENTITY
    # What an unknown transform takes is unknown too; void takes everything.
    return source in _TAKES.get(kind, frozenset({source}))

"""Statistics of a data file from its Parquet footer, and the `add` action for it.

No statistics are always right, wrong ones lose rows. So there is no minimum and maximum for a column of which a row
group has none, for binary, boolean and nested columns, and for floating-point numbers that may have a NaN, which is
the greatest of all numbers for Spark: Spark's writer shows it in the footer, Arrow's leaves it out of account. Long
strings are cut, the maximum upwards. Timestamps are cut to milliseconds, the minimum down and the maximum up.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import orjson

from lakepact.delta.actions import Add
from lakepact.delta.paths import encode_path
from lakepact.delta.schema import Field, Primitive, Struct

if TYPE_CHECKING:
    import pyarrow.parquet as pq

STRING_PREFIX: Final = 32
"""Characters of a string that are kept, as in Delta."""
INDEXED_COLUMNS: Final = 32
"""How many columns have statistics, as in Delta."""
_INTEGERS: Final = frozenset({"long", "integer", "short", "byte"})
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the zone, if there is one, is written after it
_LAST: Final = chr(0x10FFFF)
_SHOWS_NAN: Final = re.compile(r"parquet-mr version 1\.[1-9]\d\b.*")
"""Writers whose maximum is NaN when there is one: parquet-mr since 1.10, so Spark since 2.4."""
_UNITS_A_MS: Final = {"milliseconds": 1, "microseconds": 1_000, "nanoseconds": 1_000_000}


@dataclass(frozen=True, slots=True)
class ColumnStats:
    minimum: str | None
    """As JSON; None if nothing is known."""
    maximum: str | None
    null_count: int | None


def add_action(
    path: str,
    metadata: pq.FileMetaData,
    schema: Struct,
    *,
    size: int,
    modification_time: int,
    partition_values: Mapping[str, str | None],
    without_nan: Container[str] = (),
    data_change: bool = True,
) -> Add:
    """The action for a file at this path (on disk, relative to its table)."""
    return Add(
        path=encode_path(path),
        partition_values=partition_values,
        size=size,
        modification_time=modification_time,
        data_change=data_change,
        stats=file_stats(metadata, schema, partition_columns=partition_values, without_nan=without_nan),
    )


def file_stats(
    metadata: pq.FileMetaData,
    schema: Struct,
    *,
    partition_columns: Iterable[str] = (),
    without_nan: Container[str] = (),
    columns: int = INDEXED_COLUMNS,
) -> str:
    """`stats` of an action: JSON, the same text for the same file.

    `without_nan` names floating-point columns that are known to have no NaN.
    """
    partitions = set(partition_columns)
    found: dict[str, ColumnStats] = {}
    places = _top_level_columns(metadata)
    shows_nan = _SHOWS_NAN.fullmatch(metadata.created_by or "") is not None
    for field in [one for one in schema.fields if one.name not in partitions][:columns]:
        if field.name not in places and not _has_below(metadata, field.name):
            # The file is older than the column: every row has null.
            found[field.name] = ColumnStats(None, None, metadata.num_rows)
        elif isinstance(field.type, Primitive) and field.name in places:
            found[field.name] = _column(metadata, places[field.name], field, shows_nan or field.name in without_nan)
    parts = [
        f'"numRecords":{metadata.num_rows}',
        _object("minValues", {name: one.minimum for name, one in found.items()}),
        _object("maxValues", {name: one.maximum for name, one in found.items()}),
        _object(
            "nullCount", {name: None if one.null_count is None else str(one.null_count) for name, one in found.items()}
        ),
    ]
    return "{" + ",".join(parts) + "}"


def num_records(stats: str | None) -> int | None:
    """How many rows a file has, if its statistics say."""
    if stats is None:
        return None
    try:
        document = orjson.loads(stats)
    except orjson.JSONDecodeError:
        return None
    count = document.get("numRecords") if isinstance(document, dict) else None
    return count if isinstance(count, int) else None


def cut_minimum(text: str, length: int = STRING_PREFIX) -> str:
    """A lower bound of at most this many characters: a prefix."""
    return text[:length]


def cut_maximum(text: str, length: int = STRING_PREFIX) -> str | None:
    """An upper bound of at most this many characters, in the order of code points, which is that of UTF-8 too.

    A prefix whose last character is the next one. None if there is no such text.
    """
    if len(text) <= length:
        return text
    prefix = text[:length].rstrip(_LAST)
    if not prefix:
        return None
    following = ord(prefix[-1]) + 1
    # Surrogates are not characters.
    return prefix[:-1] + chr(0xE000 if following == 0xD800 else following)


def _object(name: str, values: Mapping[str, str | None]) -> str:
    inside = ",".join(f"{orjson.dumps(key).decode()}:{value}" for key, value in values.items() if value is not None)
    return f'"{name}":{{{inside}}}'


def _top_level_columns(metadata: pq.FileMetaData) -> dict[str, int]:
    """Where the columns are that are not inside of others, by name."""
    places = {}
    for number in range(metadata.num_columns):
        column = metadata.schema.column(number)
        if column.max_repetition_level == 0 and column.max_definition_level <= 1 and column.path == column.name:
            places[column.name] = number
    return places


def _has_below(metadata: pq.FileMetaData, name: str) -> bool:
    paths = (metadata.schema.column(number).path for number in range(metadata.num_columns))
    return any(path.startswith(f"{name}.") for path in paths)


def _column(metadata: pq.FileMetaData, number: int, field: Field, without_nan: bool) -> ColumnStats:
    assert isinstance(field.type, Primitive)
    bounded = True
    nulls: int | None = 0
    least: Any = None
    most: Any = None
    for group_number in range(metadata.num_row_groups):
        group = metadata.row_group(group_number)
        if group.num_rows == 0:
            continue
        chunk = group.column(number)
        stats = chunk.statistics if chunk.is_stats_set else None
        known = stats.null_count if stats is not None and stats.has_null_count else None
        nulls = None if nulls is None or known is None else nulls + known
        if known is not None and known == group.num_rows:
            # Nothing but nulls: there is no bound, and none is missing.
            continue
        bounds = (
            None
            if stats is None or not bounded
            else _bounds(stats, metadata.schema.column(number), field.type, without_nan)
        )
        if bounds is None:
            bounded = False
        else:
            least = bounds[0] if least is None else min(least, bounds[0])
            most = bounds[1] if most is None else max(most, bounds[1])
    if not bounded or least is None:
        return ColumnStats(None, None, nulls)
    return ColumnStats(_text(least, field.type, upper=False), _text(most, field.type, upper=True), nulls)


def _bounds(stats: Any, column: Any, type_: Primitive, without_nan: bool) -> tuple[Any, Any] | None:
    """Least and greatest value, to be compared among row groups; timestamps in milliseconds. None: not known."""
    if not stats.has_min_max:
        return None
    try:
        if type_.name in _INTEGERS and column.physical_type in ("INT32", "INT64"):
            if "isSigned=false" in str(column.logical_type) or "Decimal" in str(column.logical_type):
                return None
            return int(stats.min_raw), int(stats.max_raw)
        if type_.name in ("timestamp", "timestamp_ntz"):
            return _timestamp_bounds(stats, column, type_)
        if type_.name == "date" and str(column.logical_type) == "Date":
            return int(stats.min_raw), int(stats.max_raw)
        if type_.name == "string" and str(column.logical_type) == "String":
            return _string(stats.min_raw), _string(stats.max_raw)
        if type_.name in ("float", "double") and without_nan:
            least, most = float(stats.min_raw), float(stats.max_raw)
            return (least, most) if least <= most else None
        if type_.decimal is not None and isinstance(stats.min, Decimal) and isinstance(stats.max, Decimal):
            return stats.min, stats.max
    except (ValueError, OverflowError, TypeError):
        # Bounds that cannot be understood are no bounds.
        return None
    return None


def _string(raw: object) -> str:
    # Writers may have cut it already, in the middle of a character.
    return raw if isinstance(raw, str) else bytes(raw).decode()  # type: ignore[call-overload]


def _timestamp_bounds(stats: Any, column: Any, type_: Primitive) -> tuple[int, int] | None:
    logical = str(column.logical_type)
    unit = next((size for name, size in _UNITS_A_MS.items() if f"timeUnit={name}" in logical), None)
    in_utc = "isAdjustedToUTC=true" in logical
    if column.physical_type != "INT64" or unit is None or in_utc != (type_.name == "timestamp"):
        return None
    return int(stats.min_raw) // unit, -(-int(stats.max_raw) // unit)


def _text(value: Any, type_: Primitive, *, upper: bool) -> str | None:
    """A bound as JSON, or None if it cannot be said."""
    try:
        match type_.name:
            case "string":
                cut = cut_maximum(value) if upper else cut_minimum(value)
                return None if cut is None else orjson.dumps(cut).decode()
            case "date":
                return f'"{(_EPOCH + dt.timedelta(days=value)).date().isoformat()}"'
            case "timestamp" | "timestamp_ntz":
                zone = "Z" if type_.name == "timestamp" else ""
                moment = _EPOCH + dt.timedelta(milliseconds=value)
                return f'"{moment.isoformat(timespec="milliseconds")}{zone}"'
            case "float" | "double":
                return orjson.dumps(value).decode() if abs(value) != float("inf") else None
            case _:
                return f"{value:f}" if isinstance(value, Decimal) else str(value)
    except (OverflowError, ValueError):
        return None

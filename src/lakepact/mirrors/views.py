"""A table at one version as a view of DuckDB: text in, text out.

The view names the live files, and says itself which columns there are and of which types: so making it opens no file,
and a file that is older than a column reads as NULL (or the column's default). Columns are found by name in Delta, by
id in Iceberg. Values of Delta's partition columns are in no file: they are constants here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lakepact.delta.actions import Metadata
from lakepact.delta.engine_types import duckdb_name, duckdb_type
from lakepact.delta.partitions import canonical_text
from lakepact.delta.schema import Field, Struct, parse
from lakepact.iceberg.fields import JsonObject

MOST_BRANCHES: Final = 256
"""Combinations of partition values that are branches of their own, which DuckDB can skip. More are joined."""

_FILE: Final = "_lakepact_file"
_INSTANT: Final = "TIMESTAMP WITH TIME ZONE"
_LOCAL: Final = "TIMESTAMP"
_ROW: Final = "file_row_number"
_GLOB: Final = re.compile(r"[*?\[]")
_DELETE_PATH_ID: Final = 2147483546
_DELETE_POSITION_ID: Final = 2147483545


class CannotShow(Exception):
    """Why a table cannot be a view. It is left out, and the reason is told."""


class LeadsElsewhere(CannotShow):
    """The table names files that are not its own. Nobody else may show it either."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    key: str | int
    """What it is found by in the files: its name or its id."""

    default: str | None = None
    """As SQL, for files that have not got it; None is NULL."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    path: str
    """As DuckDB opens it."""

    partition: tuple[str | None, ...] = ()
    location: str = ""
    """As the table itself spells it."""

    old_times: bool = False
    """Whether its timestamps are INT96, as Spark writes them if it is not told otherwise."""


# --- Delta ---


def delta_view(metadata: Metadata, files: Sequence[LiveFile]) -> str:
    """The query. Each file's `partition` has the values of the partition columns, in their order."""
    if metadata.configuration.get("delta.columnMapping.mode", "none") != "none":
        raise CannotShow("its columns have other names in its files (delta.columnMapping)")
    schema = parse(metadata.schema_string)
    partitioned: dict[str, Field] = {}
    for name in metadata.partition_columns:
        field = schema.find(name)
        if field is None:
            raise CannotShow(f"its partition column {name!r} is not in its schema")
        partitioned[field.name] = field
    columns = [Column(one.name, duckdb_type(one.type), one.name) for one in schema.fields]
    if not files:
        return empty_view(columns)
    old = [file for file in files if file.old_times]
    parts = [[file for file in files if not file.old_times], old]
    return " UNION ALL ".join(_delta_part(schema, partitioned, part, part is old) for part in parts if part)


def _delta_part(schema: Struct, partitioned: Mapping[str, Field], files: Sequence[LiveFile], old_times: bool) -> str:
    columns = [Column(one.name, duckdb_type(one.type), one.name) for one in schema.fields]
    in_files = [one for one in columns if one.name not in partitioned]
    instants: dict[str, str] = {}
    if old_times:
        # INT96 says no zone and means UTC: DuckDB would take it in the zone of whoever reads.
        instants = {one.name: duckdb_name(one.name) for one in in_files if one.type == _INSTANT}
        in_files = [Column(one.name, _LOCAL, one.key) if one.name in instants else one for one in in_files]
        if any(_INSTANT in one.type for one in in_files):
            raise CannotShow("timestamps inside of its nested columns are INT96")
    groups: dict[tuple[str | None, ...], list[str]] = {}
    for file in files:
        groups.setdefault(file.partition, []).append(file.path)
    fields = list(partitioned.values())
    if len(groups) <= MOST_BRANCHES:
        at_utc = {name: f"{quoted} AT TIME ZONE 'UTC'" for name, quoted in instants.items()}
        return " UNION ALL ".join(
            f"SELECT {_selected(columns, at_utc | _constants(fields, values))} FROM {_scan(sorted(paths), in_files)}"
            for values, paths in sorted(groups.items(), key=lambda group: [one or "" for one in group[0]])
        )
    joined = {field.name: f"CAST(f.p{number} AS {duckdb_type(field.type)})" for number, field in enumerate(fields)}
    joined |= {name: f"r.{quoted} AT TIME ZONE 'UTC'" for name, quoted in instants.items()}
    placed = [(path, _canonical(fields, values)) for values, paths in groups.items() for path in paths]
    names = ", ".join(("path", *(f"p{number}" for number in range(len(fields)))))
    return (
        f"SELECT {_selected(columns, joined, 'r.')} FROM {_scan([path for path, _ in placed], in_files, named=True)} r "
        f"JOIN (VALUES {_values([(path, *values) for path, values in placed])}) f({names}) ON r.{_FILE} = f.path"
    )


def has_instants(metadata: Metadata) -> bool:
    """Whether its files hold timestamps that mean an instant."""
    schema = parse(metadata.schema_string)
    partitioned = {name.lower() for name in metadata.partition_columns}
    return any(_INSTANT in duckdb_type(one.type) for one in schema.fields if one.name.lower() not in partitioned)


def _constants(fields: Sequence[Field], values: Sequence[str | None]) -> dict[str, str]:
    return {
        field.name: f"CAST({_literal(text)} AS {duckdb_type(field.type)})"
        for field, text in zip(fields, _canonical(fields, values), strict=True)
    }


def _canonical(fields: Sequence[Field], values: Sequence[str | None]) -> list[str | None]:
    # Times in one spelling with their zone, so that no reader takes them in its own.
    return [canonical_text(text, field.type) for field, text in zip(fields, values, strict=True)]


# --- Iceberg ---


def iceberg_columns(schema: JsonObject, *, evolved: bool) -> list[Column]:
    """The columns of a schema. `evolved`: whether files may have been written with another one."""
    columns = []
    for field in schema["fields"]:
        if evolved and isinstance(field["type"], dict):
            # DuckDB finds columns by id, and what is inside of them by name.
            raise CannotShow(f"its schema has changed and {field['name']!r} is nested")
        default = field.get("initial-default")
        columns.append(
            Column(
                field["name"],
                iceberg_type(field["type"]),
                int(field["id"]),
                None if default is None else _literal(_default_text(default)),
            )
        )
    return columns


def iceberg_view(columns: Sequence[Column], files: Sequence[LiveFile], deletes: Sequence[str] = ()) -> str:
    """The query over these files, without the rows that these files of position deletes name."""
    if not files:
        return empty_view(columns)
    if not deletes:
        return f"SELECT {_selected(columns, {})} FROM {_scan([file.path for file in files], columns)}"
    if any(column.name.lower() == _ROW for column in columns):
        raise CannotShow(f"it has deleted rows and a column {_ROW}")
    gone = [
        Column("file_path", "VARCHAR", _DELETE_PATH_ID),
        Column("pos", "BIGINT", _DELETE_POSITION_ID),
    ]
    return (
        f"SELECT {_selected(columns, {}, 'r.')} FROM "
        f"(SELECT *, {_ROW} FROM {_scan([file.path for file in files], columns, named=True)}) r "
        f"JOIN (VALUES {_values([(file.path, file.location) for file in files])}) f(path, location) "
        f"ON r.{_FILE} = f.path "
        f"ANTI JOIN (SELECT file_path, pos FROM {_scan(deletes, gone)}) d "
        f"ON d.file_path = f.location AND d.pos = r.{_ROW}"
    )


_ICEBERG: Final[Mapping[str, str]] = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "string": "VARCHAR",
    "uuid": "UUID",
    "binary": "BLOB",
}


def iceberg_type(type_: Any) -> str:
    if isinstance(type_, str):
        if type_ in _ICEBERG:
            return _ICEBERG[type_]
        if type_.startswith("decimal("):
            return type_.upper().replace(" ", "")
        if type_.startswith("fixed["):
            return "BLOB"
        raise CannotShow(f"it has a column of type {type_}")
    match type_["type"]:
        case "struct":
            inside = ", ".join(f"{duckdb_name(one['name'])} {iceberg_type(one['type'])}" for one in type_["fields"])
            return f"STRUCT({inside})"
        case "list":
            return f"{iceberg_type(type_['element'])}[]"
        case "map":
            return f"MAP({iceberg_type(type_['key'])}, {iceberg_type(type_['value'])})"
        case other:
            raise CannotShow(f"it has a column of type {other}")


def _default_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        raise CannotShow("a nested column of it has a default")
    return str(value)


# --- SQL ---


def empty_view(columns: Iterable[Column]) -> str:
    return (
        "SELECT "
        + ", ".join(f"CAST(NULL AS {one.type}) AS {duckdb_name(one.name)}" for one in columns)
        + " WHERE false"
    )


def iceberg_scan(metadata_path: str) -> str:
    """For what DuckDB's own extension must read: it resolves everything again when the view is used."""
    return f"SELECT * FROM iceberg_scan({_literal(metadata_path)})"


def _selected(columns: Iterable[Column], constants: Mapping[str, str], prefix: str = "") -> str:
    return ", ".join(
        f"{constants[one.name]} AS {duckdb_name(one.name)}"
        if one.name in constants
        else f"{prefix}{duckdb_name(one.name)} AS {duckdb_name(one.name)}"
        for one in columns
    )


def _scan(paths: Iterable[str], columns: Sequence[Column], *, named: bool = False) -> str:
    listed = ", ".join(_literal(plain(path)) for path in paths)
    known = ", ".join(
        f"{one.key if isinstance(one.key, int) else _literal(one.key)}: "
        f"{{'name': {_literal(one.name)}, 'type': {_literal(one.type)}, 'default_value': {one.default or 'NULL'}}}"
        for one in columns
    )
    options = f", filename = '{_FILE}'" if named else ""
    return f"read_parquet([{listed}], schema = MAP {{{known}}}{options})"


def plain(path: str) -> str:
    """A path that DuckDB does not take for a pattern."""
    return _GLOB.sub(r"[\g<0>]", path)


def _values(rows: Iterable[Sequence[str | None]]) -> str:
    return ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)


def _literal(text: str | None) -> str:
    if text is None:
        return "NULL"
    if "\x00" in text:
        raise CannotShow("a name or a value of it holds the character NUL")
    return "'" + text.replace("'", "''") + "'"

"""Schemas: checking what a client sent, comparing two, and giving a new table its column ids.

A checked schema is a document as the client wrote it, with types in their one spelling and without the nulls that
readers refuse. Fields this release does not know stay where they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import orjson

from lakepact.iceberg.columns import Columns, columns_of
from lakepact.iceberg.defaults import check_default
from lakepact.iceberg.errors import InvalidUpdate, Malformed
from lakepact.iceberg.fields import (
    JsonObject,
    boolean,
    int32,
    int32_list,
    json_list,
    json_object,
    optional_int32,
    optional_text,
    text,
    without_nulls,
)
from lakepact.iceberg.types import SINCE, comparable, family, spelled
from lakepact.limits import check_schema_size

_DEFAULTS_SINCE = 3
_DEFAULTS = ("initial-default", "write-default")

# --- checking ---


def check_schema(value: object, where: str) -> JsonObject:
    """The schema in checked form. It is consistent in itself; whether it fits a format is `check_format`."""
    schema = json_object(value, where)
    check_schema_size(schema, where)
    optional_int32(schema, "schema-id", where)
    schema = without_nulls(_check_struct(schema, where), "schema-id", "identifier-field-ids")
    columns = columns_of(schema)
    if "identifier-field-ids" in schema:
        for column_id in int32_list(schema, "identifier-field-ids", where):
            _check_identifier(column_id, columns)
    return schema


def _check_struct(value: JsonObject, where: str) -> JsonObject:
    if value.get("type", "struct") != "struct":
        raise Malformed(f"{where}: a schema is of type 'struct'")
    fields = json_list(value.get("fields"), f"{where}: 'fields'")
    return {**value, "type": "struct", "fields": [_check_field(field, where) for field in fields]}


def _check_field(value: object, where: str) -> JsonObject:
    field = json_object(value, f"{where}: a field")
    name = text(field, "name", f"{where}: a field")
    where = f"{where}: {name!r}"
    int32(field, "id", where)
    required = boolean(field, "required", where)
    optional_text(field, "doc", where)
    field = without_nulls({**field, "type": _check_type(field.get("type"), where)}, "doc", *_DEFAULTS)
    if field["type"] == "unknown" and required:
        raise Malformed(f"{where}: a column of type 'unknown' is always null, so it cannot be required")
    for default in _DEFAULTS:
        if default in field:
            if not isinstance(field["type"], str):
                raise Malformed(f"{where}: {default!r} must be null, as the column is nested")
            check_default(field[default], field["type"], f"{where}: {default!r}")
    return field


def _check_type(value: object, where: str) -> str | JsonObject:
    if isinstance(value, str):
        return spelled(value, where)
    type_ = json_object(value, f"{where}: 'type'")
    match type_.get("type"):
        case "struct":
            return _check_struct(type_, where)
        case "list":
            int32(type_, "element-id", where)
            boolean(type_, "element-required", where)
            return {**type_, "element": _check_type(type_.get("element"), f"{where}: 'element'")}
        case "map":
            int32(type_, "key-id", where)
            int32(type_, "value-id", where)
            boolean(type_, "value-required", where)
            return {
                **type_,
                "key": _check_type(type_.get("key"), f"{where}: 'key'"),
                "value": _check_type(type_.get("value"), f"{where}: 'value'"),
            }
        case other:
            raise Malformed(f"{where}: {str(other)[:80]!r} is not a type")


def _check_identifier(column_id: int, columns: Columns) -> None:
    column = columns.by_id.get(column_id)
    if column is None:
        raise Malformed(f"identifier-field-ids: there is no column {column_id}")
    problem = None
    if not isinstance(column.type, str) or column.type == "variant":
        problem = "it is not of a primitive type"
    elif not column.required:
        problem = "it is optional"
    elif column.type in ("float", "double"):
        problem = "floating point numbers do not identify rows"
    elif any(not above.is_struct for above in columns.ancestors(column)):
        problem = "it lies in a list or a map"
    elif any(not above.required for above in columns.ancestors(column)):
        problem = "it lies in an optional struct"
    if problem:
        raise Malformed(f"identifier-field-ids: column {column.name!r} cannot be an identifier: {problem}")


def check_format(schema: JsonObject, format_version: int) -> None:
    """Refuse types and defaults that this format does not have yet. Clients compare the message."""
    problems: dict[int, str] = {}
    for column in columns_of(schema).by_id.values():
        if isinstance(column.type, str):
            since = SINCE.get(family(column.type), 1)
            if format_version < since:
                problems[column.id] = f"Invalid type for {column.name}: {column.type} is not supported until v{since}"
        default = None if column.field is None else column.field.get("initial-default")
        if default is not None and format_version < _DEFAULTS_SINCE:
            problems[column.id] = (
                f"Invalid initial default for {column.name}: non-null default ({default}) is not supported until "
                f"v{_DEFAULTS_SINCE}"
            )
    if problems:
        listed = "\n- ".join(problems[column_id] for column_id in sorted(problems))
        raise InvalidUpdate(f"Invalid schema for v{format_version}:\n- {listed}")


# --- comparing ---


def same_schema(one: JsonObject, other: JsonObject) -> bool:
    """Whether two schemas are the same but for their ids: same columns, same identifier.

    Fields this release does not know count: a newer client that changes only such a field has made a new schema.
    """
    return comparable_schema(one) == comparable_schema(other)


def comparable_schema(schema: JsonObject) -> tuple[Any, ...]:
    """Equal, with equal hashes, for schemas that are the same (`same_schema`)."""
    identifiers = frozenset(schema.get("identifier-field-ids") or ())
    return identifiers, _comparable_object(schema, "schema-id", "identifier-field-ids")


def _comparable_object(value: JsonObject, *ignored: str) -> tuple[Any, ...]:
    """Order does not count in an object, except that of the fields of a struct."""
    parts: list[Any] = []
    for name in sorted(value):
        part = value[name]
        if name in ignored or part is None:
            continue
        if name == "type":
            parts.append((name, _comparable_type(part)))
        elif name == "fields" and value["type"] == "struct":
            parts.append((name, tuple(_comparable_object(field) for field in part)))
        elif name in ("element", "key", "value") and value["type"] in ("list", "map"):
            parts.append((name, _comparable_type(part)))
        else:
            # JSON text, since 1, 1.0 and true are equal to Python.
            parts.append((name, orjson.dumps(part, option=orjson.OPT_SORT_KEYS)))
    return tuple(parts)


def _comparable_type(value: str | JsonObject) -> Any:
    if isinstance(value, str):
        return comparable(value)
    return _comparable_object(value)


# --- fresh ids for a new table ---


def with_fresh_ids(schema: JsonObject, schema_id: int = 0) -> tuple[JsonObject, dict[int, int]]:
    """A checked schema with column ids from 1, and which old id became which new one.

    All fields of a struct get their ids before anything inside them does. So the columns of a flat table are numbered
    from left to right, and every implementation gives the same ids.
    """
    ids = count(1)
    renamed: dict[int, int] = {}
    fresh = {**_fresh_struct(schema, ids, renamed), "schema-id": schema_id}
    if "identifier-field-ids" in schema:
        fresh["identifier-field-ids"] = sorted(renamed[column_id] for column_id in schema["identifier-field-ids"])
    return fresh, renamed


def _fresh_struct(struct: JsonObject, ids: Iterator[int], renamed: dict[int, int]) -> JsonObject:
    for field in struct["fields"]:
        renamed[field["id"]] = next(ids)
    fields = [
        {**field, "id": renamed[field["id"]], "type": _fresh_type(field["type"], ids, renamed)}
        for field in struct["fields"]
    ]
    return {**struct, "fields": fields}


def _fresh_type(type_: str | JsonObject, ids: Iterator[int], renamed: dict[int, int]) -> str | JsonObject:
    if isinstance(type_, str):
        return type_
    if type_["type"] == "struct":
        return _fresh_struct(type_, ids, renamed)
    parts = ("element",) if type_["type"] == "list" else ("key", "value")
    fresh = dict(type_)
    for part in parts:
        fresh[f"{part}-id"] = renamed[type_[f"{part}-id"]] = next(ids)
    for part in parts:
        fresh[part] = _fresh_type(type_[part], ids, renamed)
    return fresh

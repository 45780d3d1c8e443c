"""Partition specs: checking, comparing, and binding to the columns of a schema.

A checked field is `{name, transform, source-id, field-id}` and whatever else the client sent. The ids of fields start
at 1000. In format 1 they are always sequential; from format 2 on one id belongs to one (column, transform) for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lakepact.iceberg import transforms
from lakepact.iceberg.columns import Column, Columns
from lakepact.iceberg.errors import InvalidUpdate, Malformed
from lakepact.iceberg.fields import JsonObject, filled_text, int32, json_list, json_object, optional_int32, text
from lakepact.limits import LAYOUT_FIELDS, check_name

FIRST_FIELD_ID: Final = 1000
UNPARTITIONED: Final[JsonObject] = {"spec-id": 0, "fields": []}


def check_spec(value: object, where: str) -> JsonObject:
    """The spec in checked form. `spec-id` is the catalog's to give: what the client sent is not looked at."""
    spec = json_object(value, where)
    optional_int32(spec, "spec-id", where)
    listed = json_list(spec.get("fields"), f"{where}: 'fields'")
    LAYOUT_FIELDS.check(len(listed), f"{where}: 'fields'")
    fields = [_check_field(field, where) for field in listed]
    seen: set[str] = set()
    for field in fields:
        if field["name"] in seen:
            raise Malformed(f"{where}: there are two partition fields named {field['name']!r}")
        seen.add(field["name"])
    with_id = sum("field-id" in field for field in fields)
    if with_id not in (0, len(fields)):
        raise Malformed(
            f"{where}: {len(fields) - with_id} of {len(fields)} fields have no 'field-id'; give all or none"
        )
    return {**spec, "fields": fields}


def _check_field(value: object, where: str) -> JsonObject:
    field = json_object(value, f"{where}: a field")
    name = filled_text(field, "name", f"{where}: a field")
    check_name(name, f"{where}: partition field")
    where = f"{where}: {name!r}"
    int32(field, "source-id", where)
    checked = {**field, "transform": transforms.spelled(text(field, "transform", where), where)}
    if optional_int32(field, "field-id", where) is None:
        checked.pop("field-id", None)
    return checked


def same_fields(one: JsonObject, other: JsonObject) -> bool:
    """Whether two specs partition in the same way, under the same names, in the same order."""
    return comparable_fields(one) == comparable_fields(other)


def comparable_fields(spec: JsonObject) -> tuple[tuple[int, str, str], ...]:
    """Equal for specs that partition in the same way (`same_fields`)."""
    return tuple(_what(field) for field in spec["fields"])


def _what(field: JsonObject) -> tuple[int, str, str]:
    return field["source-id"], transforms.spelled(field["transform"], "partition spec"), field["name"]


def highest_field_id(spec: JsonObject) -> int:
    return max((field["field-id"] for field in spec["fields"]), default=FIRST_FIELD_ID - 1)


def has_sequential_ids(spec: JsonObject) -> bool:
    return all(field["field-id"] == FIRST_FIELD_ID + number for number, field in enumerate(spec["fields"]))


def add_field_ids(known: dict[Any, Any], spec: JsonObject) -> None:
    """Note which field ids this spec uses for which column and transform."""
    for field in spec["fields"]:
        known[_what(field)[:2]] = field["field-id"]


def with_field_ids(
    spec: JsonObject, *, known: Mapping[tuple[int, str], int], last_id: int, format_version: int
) -> JsonObject:
    """The spec with an id for every field, where the client gave none. `known`: see `add_field_ids`.

    From format 2 on a field that another spec has too keeps its id, and others get the next ones: an id that is used
    for two things would mix up the partition values of old and new files.
    """
    if all("field-id" in field for field in spec["fields"]):
        return spec
    fields: list[JsonObject] = []
    reused: set[tuple[int, str]] = set()
    next_id = FIRST_FIELD_ID if format_version == 1 else max(last_id, FIRST_FIELD_ID - 1) + 1
    for field in spec["fields"]:
        source = _what(field)[:2]
        field_id = None if format_version == 1 or source in reused else known.get(source)
        reused.add(source)
        if field_id is None:
            field_id, next_id = next_id, next_id + 1
        fields.append({**field, "field-id": field_id})
    return {**spec, "fields": fields}


# --- against a schema ---


def check_names(spec: JsonObject, columns: Columns) -> None:
    """A partition field may have the name of a column only if it is made from that column.

    This holds for every spec of a table, not only the default one: clients check it when they load the table.
    """
    for field in spec["fields"]:
        if field["source-id"] in columns.by_id:
            column = columns.named(field["name"])
            if column is not None and column.id != field["source-id"]:
                raise InvalidUpdate(
                    f"partition field {field['name']!r} is made from column {field['source-id']}, but column "
                    f"{column.id} has its name; rename one of them"
                )


def check_compatible(spec: JsonObject, columns: Columns) -> None:
    """Every field's column exists and its transform takes it. `void` fields remain of columns that are gone."""
    for field in spec["fields"]:
        if field["transform"] == transforms.VOID:
            continue
        column = columns.by_id.get(field["source-id"])
        if column is None:
            raise InvalidUpdate(
                f"partition field {field['name']!r}: there is no column {field['source-id']} in the current schema. "
                f"Set a default spec without it first"
            )
        if problem := source_problem(column, columns, field["transform"]):
            raise InvalidUpdate(f"partition field {field['name']!r}: column {column.name!r} {problem}")


def source_problem(column: Column, columns: Columns, transform: str, *, in_structs_only: bool = True) -> str | None:
    """Why a column cannot be the source of this transform, if it cannot."""
    if not isinstance(column.type, str) or column.type == "variant":
        return "is not of a primitive type"
    if not transforms.takes(transform, column.type):
        return f"is of type {column.type}, which {transform} does not take"
    if in_structs_only and any(not above.is_struct for above in columns.ancestors(column)):
        return "lies in a list or a map"
    return None

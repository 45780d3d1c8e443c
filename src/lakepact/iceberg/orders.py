"""Sort orders: checking, comparing, and binding to the columns of a schema. Order 0 is "unsorted", and only that."""

from __future__ import annotations

from typing import Final

from lakepact.iceberg import transforms
from lakepact.iceberg.columns import Columns
from lakepact.iceberg.errors import InvalidUpdate, Malformed
from lakepact.iceberg.fields import JsonObject, int32, json_list, json_object, optional_int32, text
from lakepact.iceberg.specs import source_problem
from lakepact.limits import LAYOUT_FIELDS

UNSORTED_ID: Final = 0
FIRST_SORTED_ID: Final = 1
UNSORTED: Final[JsonObject] = {"order-id": UNSORTED_ID, "fields": []}


def check_order(value: object, where: str) -> JsonObject:
    """The order in checked form."""
    order = json_object(value, where)
    listed = json_list(order.get("fields"), f"{where}: 'fields'")
    LAYOUT_FIELDS.check(len(listed), f"{where}: 'fields'")
    fields = [_check_field(field, where) for field in listed]
    order_id = optional_int32(order, "order-id", where)
    if fields and order_id == UNSORTED_ID:
        raise Malformed(f"{where}: order-id 0 means unsorted, but there are fields; use 1")
    if not fields and order_id not in (None, UNSORTED_ID):
        raise Malformed(f"{where}: an order without fields is unsorted, and its order-id is 0, not {order_id}")
    return {**order, "fields": fields}


def _check_field(value: object, where: str) -> JsonObject:
    where = f"{where}: a field"
    field = json_object(value, where)
    int32(field, "source-id", where)
    direction = text(field, "direction", where).lower()
    if direction not in ("asc", "desc"):
        raise Malformed(f"{where}: 'direction' is asc or desc")
    null_order = text(field, "null-order", where).lower()
    if null_order not in ("nulls-first", "nulls-last"):
        raise Malformed(f"{where}: 'null-order' is nulls-first or nulls-last")
    transform = transforms.spelled(text(field, "transform", where), where)
    return {**field, "transform": transform, "direction": direction, "null-order": null_order}


def same_fields(one: JsonObject, other: JsonObject) -> bool:
    """Whether two orders sort in the same way."""
    return comparable_fields(one) == comparable_fields(other)


def comparable_fields(order: JsonObject) -> tuple[tuple[int, str, str, str], ...]:
    """Equal for orders that sort in the same way (`same_fields`)."""
    return tuple(_what(field) for field in order["fields"])


def _what(field: JsonObject) -> tuple[int, str, str, str]:
    transform = transforms.spelled(field["transform"], "sort order")
    return field["source-id"], transform, field["direction"].lower(), field["null-order"].lower()


def check_compatible(order: JsonObject, columns: Columns) -> None:
    """Every field's column exists and its transform takes it."""
    for field in order["fields"]:
        column = columns.by_id.get(field["source-id"])
        if column is None:
            raise InvalidUpdate(
                f"sort order: there is no column {field['source-id']} in the current schema. Set a default order "
                f"without it first"
            )
        if problem := source_problem(column, columns, field["transform"], in_structs_only=False):
            raise InvalidUpdate(f"sort order: column {column.name!r} {problem}")

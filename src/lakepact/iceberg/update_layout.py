"""Updates of what rows look like and how they are laid out: schemas, partition specs, sort orders.

All three work alike. What equals something the table has is not added again, its id is used; otherwise the catalog
gives the next id, whatever the client wrote. "-1" then means what this request added last.
"""

from __future__ import annotations

from typing import Any

from lakepact.iceberg import orders, specs
from lakepact.iceberg.columns import columns_of
from lakepact.iceberg.draft import Draft
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import INT32_MAX, JsonObject
from lakepact.iceberg.names import LAST_ADDED
from lakepact.iceberg.schemas import check_format, comparable_schema

# --- schemas ---


def add_schema(draft: Draft, body: JsonObject) -> None:
    """Column ids are the client's; the highest one the table ever had never shrinks."""
    schema = body["schema"]
    check_format(schema, draft.format_version)
    last_column_id = max(draft.document["last-column-id"], columns_of(schema).highest_id)
    existing: JsonObject | None = draft.index("schemas", _add_schema).get(comparable_schema(schema))
    if existing is not None and last_column_id == draft.document["last-column-id"]:
        schema_id = existing.get("schema-id", 0)
        # An old schema was not added by this request, so "-1" does not name it.
        draft.last_schema_id = schema_id if schema_id in draft.added_schema_ids else None
        return
    if existing is not None:
        schema_id = existing.get("schema-id", 0)
    else:
        taken = [old.get("schema-id", 0) for old in draft.seen("schemas")]
        schema_id = _next_id(taken, draft.document["current-schema-id"])
        draft.owned("schemas").append({**schema, "schema-id": schema_id})
    draft.document["last-column-id"] = last_column_id
    draft.added_schema_ids.add(schema_id)
    draft.last_schema_id = schema_id


def set_current_schema(draft: Draft, body: JsonObject) -> None:
    schema_id = body["schema-id"]
    if schema_id == LAST_ADDED:
        if draft.last_schema_id is None:
            raise InvalidUpdate("Cannot set last added schema: no schema has been added")
        schema_id = draft.last_schema_id
    if schema_id == draft.document["current-schema-id"]:
        return
    if all(schema.get("schema-id", 0) != schema_id for schema in draft.seen("schemas")):
        raise InvalidUpdate(f"set-current-schema: there is no schema {schema_id}")
    draft.document["current-schema-id"] = schema_id
    columns = draft.columns()
    for spec in draft.seen("partition-specs"):
        draft.once(specs.check_names, spec, columns)


def remove_schemas(draft: Draft, body: JsonObject) -> None:
    gone = set(body["schema-ids"])
    if draft.document["current-schema-id"] in gone:
        raise InvalidUpdate("Cannot remove the current schema")
    schemas = draft.seen("schemas")
    kept = [schema for schema in schemas if schema.get("schema-id", 0) not in gone]
    if len(kept) < len(schemas):
        draft.replace("schemas", kept)


# --- partition specs ---


def add_spec(draft: Draft, body: JsonObject) -> None:
    spec, existing = body["spec"], draft.seen("partition-specs")
    columns = draft.columns()
    specs.check_names(spec, columns)
    specs.check_compatible(spec, columns)
    if (old := draft.index("partition-specs", _add_spec).get(specs.comparable_fields(spec))) is not None:
        # Unlike with schemas, "-1" names an old spec too, if this request has added any.
        draft.last_spec_id = None if draft.last_spec_id is None else old["spec-id"]
        return
    version = draft.format_version
    spec = specs.with_field_ids(
        spec,
        known=draft.index("partition-specs", specs.add_field_ids),
        last_id=draft.document["last-partition-id"],
        format_version=version,
    )
    if version == 1 and not specs.has_sequential_ids(spec):
        raise InvalidUpdate(
            f"add-spec: in format 1 partition field ids go up by one from {specs.FIRST_FIELD_ID}. Keep removed fields "
            f"as void, or upgrade the table to format 2"
        )
    spec_id = _next_id([old["spec-id"] for old in existing], 0)
    draft.owned("partition-specs").append({**spec, "spec-id": spec_id})
    draft.document["last-partition-id"] = max(draft.document["last-partition-id"], specs.highest_field_id(spec))
    draft.last_spec_id = spec_id


def set_default_spec(draft: Draft, body: JsonObject) -> None:
    spec_id = body["spec-id"]
    if spec_id == LAST_ADDED:
        if draft.last_spec_id is None:
            raise InvalidUpdate("Cannot set last added spec: no spec has been added")
        spec_id = draft.last_spec_id
    if spec_id == draft.document["default-spec-id"]:
        return
    if all(spec["spec-id"] != spec_id for spec in draft.seen("partition-specs")):
        raise InvalidUpdate(f"set-default-spec: there is no partition spec {spec_id}")
    draft.document["default-spec-id"] = spec_id


def remove_partition_specs(draft: Draft, body: JsonObject) -> None:
    gone = set(body["spec-ids"])
    if draft.document["default-spec-id"] in gone:
        raise InvalidUpdate("Cannot remove the default partition spec")
    existing = draft.seen("partition-specs")
    kept = [spec for spec in existing if spec["spec-id"] not in gone]
    if len(kept) < len(existing):
        draft.replace("partition-specs", kept)


# --- sort orders ---


def add_sort_order(draft: Draft, body: JsonObject) -> None:
    order, existing = body["sort-order"], draft.seen("sort-orders")
    orders.check_compatible(order, draft.columns())
    if (old := draft.index("sort-orders", _add_order).get(orders.comparable_fields(order))) is not None:
        draft.last_order_id = None if draft.last_order_id is None else old["order-id"]
        return
    order_id = orders.UNSORTED_ID
    if order["fields"]:
        order_id = _next_id([old["order-id"] for old in existing], orders.FIRST_SORTED_ID)
    draft.owned("sort-orders").append({**order, "order-id": order_id})
    draft.last_order_id = order_id


def set_default_sort_order(draft: Draft, body: JsonObject) -> None:
    order_id = body["sort-order-id"]
    if order_id == LAST_ADDED:
        if draft.last_order_id is None:
            raise InvalidUpdate("Cannot set last added sort order: no sort order has been added")
        order_id = draft.last_order_id
    if order_id == draft.document["default-sort-order-id"]:
        return
    if all(order["order-id"] != order_id for order in draft.seen("sort-orders")):
        raise InvalidUpdate(f"set-default-sort-order: there is no sort order {order_id}")
    draft.document["default-sort-order-id"] = order_id


# Of several that are equal, the first one counts.


def _add_schema(index: dict[Any, Any], schema: JsonObject) -> None:
    index.setdefault(comparable_schema(schema), schema)


def _add_spec(index: dict[Any, Any], spec: JsonObject) -> None:
    index.setdefault(specs.comparable_fields(spec), spec)


def _add_order(index: dict[Any, Any], order: JsonObject) -> None:
    index.setdefault(orders.comparable_fields(order), order)


def _next_id(taken: list[int], first: int) -> int:
    next_id = max((taken_id + 1 for taken_id in taken if taken_id >= first), default=first)
    if next_id > INT32_MAX:
        raise InvalidUpdate(f"no id is left after {INT32_MAX}")
    return next_id

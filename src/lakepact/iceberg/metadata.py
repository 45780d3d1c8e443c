"""Table metadata documents: how a stored one is read, how a new one begins, and what everybody asks of one."""

from __future__ import annotations

from typing import Any, Final

from lakepact.errors import Unreadable
from lakepact.iceberg import orders, specs
from lakepact.iceberg.columns import columns_of
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.locations import without_trailing_slash
from lakepact.iceberg.logs import integer_property
from lakepact.iceberg.names import (
    BRANCH,
    COMMIT_PROPERTIES,
    DEFAULT_FORMAT,
    ENCRYPTION_PROPERTIES,
    FORMAT_VERSION_PROPERTY,
    MAIN,
    METRICS_COLUMN_PREFIX,
    NEWEST_FORMAT,
    NO_SNAPSHOT,
    PARQUET_COMPRESSION,
    RESERVED_PROPERTIES,
)
from lakepact.iceberg.schemas import check_format, with_fresh_ids

_NUMBERS: Final = ("last-updated-ms", "last-column-id", "current-schema-id", "default-spec-id", "last-partition-id")
_LISTS: Final = ("schemas", "partition-specs", "sort-orders")
_OPTIONAL_LISTS: Final = (
    "snapshots",
    "snapshot-log",
    "metadata-log",
    "statistics",
    "partition-statistics",
    "encryption-keys",
)

# --- reading ---


def read(document: object) -> JsonObject:
    """A stored document as the fold needs it; the same object unless something had to be filled in.

    Format 1 could leave out what later became required, and old writers did. Checks the shape only: what is in the
    lists was checked when it was committed or registered. Raises `Unreadable` for what is not table metadata.
    """
    if not isinstance(document, dict):
        raise Unreadable("table metadata is not a JSON object")
    version = document.get("format-version")
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version <= NEWEST_FORMAT:
        raise Unreadable(f"table metadata is of format {version!r}; this release reads 1 to {NEWEST_FORMAT}")
    if version == 1:
        document = _filled_in(document)
    if "refs" not in document and (current := current_snapshot_id(document)) is not None:
        document = {**document, "refs": {MAIN: {"snapshot-id": current, "type": BRANCH}}}
    _check_shape(document, version)
    return document


def _filled_in(document: JsonObject) -> JsonObject:
    filled = dict(document)
    if "schemas" not in filled and isinstance(filled.get("schema"), dict):
        filled["schemas"] = [{"schema-id": 0, **filled["schema"]}]
        filled["current-schema-id"] = filled["schemas"][0]["schema-id"]
    if "partition-specs" not in filled and isinstance(filled.get("partition-spec"), list):
        filled["partition-specs"] = [{"spec-id": 0, "fields": filled["partition-spec"]}]
        filled["default-spec-id"] = 0
    if isinstance(filled.get("partition-specs"), list):
        filled["partition-specs"] = [
            specs.with_field_ids(spec, known={}, last_id=0, format_version=1) for spec in filled["partition-specs"]
        ]
        if filled.get("last-partition-id") is None:
            filled["last-partition-id"] = max(
                (specs.highest_field_id(spec) for spec in filled["partition-specs"]), default=specs.FIRST_FIELD_ID - 1
            )
    if "sort-orders" not in filled:
        filled["sort-orders"] = [orders.UNSORTED]
        filled["default-sort-order-id"] = orders.UNSORTED_ID
    return filled if filled != document else document


def _check_shape(document: JsonObject, version: int) -> None:
    numbers: list[str] = [*_NUMBERS, "default-sort-order-id"]
    if version >= 2:
        numbers.append("last-sequence-number")
    if version >= 3:
        numbers.append("next-row-id")
    checks: list[tuple[str, type, bool]] = [
        ("location", str, True),
        ("table-uuid", str, version >= 2),
        *((name, int, True) for name in numbers),
        *((name, list, True) for name in _LISTS),
        *((name, list, False) for name in _OPTIONAL_LISTS),
        ("properties", dict, False),
        ("refs", dict, False),
        ("current-snapshot-id", int, False),
    ]
    for name, kind, required in checks:
        value = document.get(name)
        if value is None and not required:
            continue
        if not isinstance(value, kind) or isinstance(value, bool):
            raise Unreadable(f"table metadata: {name!r} is missing or damaged")


# --- asking ---


def current_snapshot_id(metadata: JsonObject) -> int | None:
    """Formats write "none" as -1, as null or not at all."""
    current: int | None = metadata.get("current-snapshot-id")
    return None if current == NO_SNAPSHOT else current


def snapshot(metadata: JsonObject, snapshot_id: int | None) -> JsonObject | None:
    # From the end: what is asked for is nearly always new.
    found = (one for one in reversed(metadata.get("snapshots") or ()) if one["snapshot-id"] == snapshot_id)
    return next(found, None)


def current_snapshot(metadata: JsonObject) -> JsonObject | None:
    return snapshot(metadata, current_snapshot_id(metadata))


def refs(metadata: JsonObject) -> JsonObject:
    found: JsonObject = metadata.get("refs") or {}
    return found


def properties(metadata: JsonObject) -> dict[str, str]:
    found: dict[str, str] = metadata.get("properties") or {}
    return found


def current_schema(metadata: JsonObject) -> JsonObject:
    return _by_id(metadata["schemas"], "schema-id", metadata["current-schema-id"])


def default_spec(metadata: JsonObject) -> JsonObject:
    return _by_id(metadata["partition-specs"], "spec-id", metadata["default-spec-id"])


def default_order(metadata: JsonObject) -> JsonObject:
    return _by_id(metadata["sort-orders"], "order-id", metadata["default-sort-order-id"])


def _by_id(values: list[JsonObject], name: str, wanted: int) -> JsonObject:
    for value in values:
        if value.get(name, 0) == wanted:
            return value
    raise Unreadable(f"table metadata: there is nothing with {name} {wanted}")


def only_referenced(metadata: JsonObject) -> JsonObject:
    """The metadata as a client gets it that asks for `snapshots=refs`: snapshots that a branch or tag names."""
    wanted = {ref["snapshot-id"] for ref in refs(metadata).values()}
    shown = dict(metadata)
    for name in ("snapshots", "statistics", "partition-statistics"):
        if metadata.get(name):
            shown[name] = [one for one in metadata[name] if one["snapshot-id"] in wanted]
    return shown


# --- beginning ---


def empty_metadata(format_version: int, now_ms: int) -> JsonObject:
    """What a creation starts from: everything at its first value, nothing there yet."""
    document: JsonObject = {"format-version": format_version, "table-uuid": None, "location": None}
    if format_version >= 2:
        document["last-sequence-number"] = 0
    document |= {
        "last-updated-ms": now_ms,
        "last-column-id": 0,
        "current-schema-id": 0,
        "schemas": [],
        "default-spec-id": 0,
        "partition-specs": [],
        "last-partition-id": 0,
        "default-sort-order-id": 0,
        "sort-orders": [],
        "properties": {},
        "current-snapshot-id": NO_SNAPSHOT if format_version < 3 else None,
    }
    if format_version >= 3:
        document["next-row-id"] = 0
    return document | {
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def create_metadata(
    *,
    schema: JsonObject,
    spec: JsonObject,
    order: JsonObject,
    properties: dict[str, str],
    location: str,
    uuid: str,
    now_ms: int,
) -> JsonObject:
    """The first metadata of a table, from a checked schema, spec and order.

    All ids are given anew, whatever the client wrote: columns from 1, the schema 0, the spec 0 with its fields from
    1000, the order 1 (0 if unsorted). The format is the property `format-version`, which is not stored as one.
    """
    version = integer_property(properties, FORMAT_VERSION_PROPERTY, DEFAULT_FORMAT)
    if not 1 <= version <= NEWEST_FORMAT:
        raise InvalidUpdate(f"property 'format-version': format {version} is not supported; use 1 to {NEWEST_FORMAT}")
    check_format(schema, version)
    columns = columns_of(schema)
    specs.check_names(spec, columns)
    specs.check_compatible(spec, columns)
    orders.check_compatible(order, columns)
    fresh, renamed = with_fresh_ids(schema)
    stored = {PARQUET_COMPRESSION: "zstd"} | {
        name: value for name, value in properties.items() if name not in RESERVED_PROPERTIES
    }
    _check_properties(stored, version, columns.id_by_name)
    fields = [
        {**field, "source-id": _renamed(field, renamed), "field-id": specs.FIRST_FIELD_ID + number}
        for number, field in enumerate(spec["fields"])
    ]
    sort_fields = [{**field, "source-id": _renamed(field, renamed)} for field in order["fields"]]
    order_id = orders.FIRST_SORTED_ID if sort_fields else orders.UNSORTED_ID
    document = empty_metadata(version, now_ms) | {
        "table-uuid": uuid,
        "location": without_trailing_slash(location),
        "last-column-id": len(renamed),
        "schemas": [fresh],
        "partition-specs": [{**spec, "spec-id": 0, "fields": fields}],
        "last-partition-id": specs.FIRST_FIELD_ID - 1 + len(fields),
        "default-sort-order-id": order_id,
        "sort-orders": [{**order, "order-id": order_id, "fields": sort_fields}],
        "properties": stored,
    }
    if version == 1:
        document |= {"schema": fresh, "partition-spec": fields}
    return document


def _renamed(field: JsonObject, renamed: dict[int, int]) -> int:
    if field["source-id"] not in renamed:
        raise InvalidUpdate(f"there is no column {field['source-id']} in the schema")
    return renamed[field["source-id"]]


def _check_properties(properties: dict[str, Any], version: int, column_names: dict[str, int]) -> None:
    """Only for new tables: an old one with such a property must stay usable."""
    for name in COMMIT_PROPERTIES:
        if integer_property(properties, name, 0) < 0:
            raise InvalidUpdate(f"property {name!r} must not be negative")
    if version < 3 and (found := [name for name in ENCRYPTION_PROPERTIES if name in properties]):
        raise InvalidUpdate(f"encryption needs format 3, the table is of format {version}; remove {', '.join(found)}")
    for name in properties:
        column = name.removeprefix(METRICS_COLUMN_PREFIX)
        if column != name and column not in column_names:
            raise InvalidUpdate(f"property {name!r}: there is no column {column!r}")

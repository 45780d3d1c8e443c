"""Tables and updates to try rules on, written as a client would send them."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from lakepact.iceberg import updates
from lakepact.iceberg.draft import Context
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.finish import Applied
from lakepact.iceberg.metadata import create_metadata
from lakepact.iceberg.parse import parse_table_updates
from lakepact.iceberg.requests import parse_create_table

UUID = "9c12d441-03fe-4693-9a96-a0705ddf69c1"
OTHER_UUID = "00000000-0000-4000-8000-000000000001"
BORN_MS = 1_700_000_000_000
NOW_MS = BORN_MS + 1_000
LOCATION = "s3://lake/db/t"
PREVIOUS = f"{LOCATION}/metadata/00000-a.metadata.json"


def field(column_id: int, name: str, type_: Any = "long", /, **more: Any) -> JsonObject:
    return {"id": column_id, "name": name, "required": False, "type": type_} | more


def schema(*fields: JsonObject, **more: Any) -> JsonObject:
    return {"type": "struct", "schema-id": 0, "fields": list(fields), **more}


ID, TS, NAME = field(1, "id", required=True), field(2, "ts", "timestamptz"), field(3, "name", "string")
SCHEMA = schema(ID, TS, NAME)
WIDER = schema(ID, TS, NAME, field(4, "amount", "decimal(10, 2)"))


def spec_field(source: int, transform: str, name: str, field_id: int | None = None) -> JsonObject:
    made = {"source-id": source, "transform": transform, "name": name}
    return made if field_id is None else {**made, "field-id": field_id}


def spec(*fields: JsonObject) -> JsonObject:
    return {"spec-id": 0, "fields": list(fields)}


BY_DAY = spec(spec_field(2, "day", "ts_day", 1000))
BY_BUCKET = spec(spec_field(1, "bucket[16]", "id_bucket", 1000))


def order(*fields: tuple[int, str]) -> JsonObject:
    return {
        "order-id": 1 if fields else 0,
        "fields": [
            {"source-id": source, "transform": transform, "direction": "asc", "null-order": "nulls-first"}
            for source, transform in fields
        ],
    }


def create(format_version: int = 2, /, **request: Any) -> JsonObject:
    """A new table as `POST tables` makes it."""
    properties = {"format-version": str(format_version), **request.pop("properties", {})}
    asked = parse_create_table({"name": "t", "schema": SCHEMA, "properties": properties, **request})
    return create_metadata(
        schema=asked.schema,
        spec=asked.spec,
        order=asked.order,
        properties=asked.properties,
        location=asked.location or LOCATION,
        uuid=UUID,
        now_ms=BORN_MS,
    )


def snapshot(snapshot_id: int, /, *, parent: Any = None, **more: Any) -> JsonObject:
    """A snapshot with everything that any format asks for, numbered after its id."""
    made: JsonObject = {
        "snapshot-id": snapshot_id,
        "timestamp-ms": NOW_MS + snapshot_id,
        "manifest-list": f"{LOCATION}/metadata/snap-{snapshot_id}.avro",
        "summary": {"operation": "append", "total-records": str(snapshot_id)},
        "schema-id": 0,
    }
    if parent is not None:
        made["parent-snapshot-id"] = parent
    return made | more


def numbered(format_version: int, snapshot_id: int, /, **more: Any) -> JsonObject:
    """A snapshot with the numbers its format wants: sequence `snapshot_id`, ten rows each."""
    numbers: JsonObject = {}
    if format_version >= 2:
        numbers["sequence-number"] = snapshot_id
    if format_version >= 3:
        numbers |= {"first-row-id": 10 * (snapshot_id - 1), "added-rows": 10}
    return snapshot(snapshot_id, **numbers | more)


def add_snapshot(made: JsonObject) -> JsonObject:
    return {"action": "add-snapshot", "snapshot": made}


def set_ref(snapshot_id: int, name: str = "main", kind: str = "branch", /, **more: Any) -> JsonObject:
    return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id, **more}


def fold(metadata: JsonObject | None, *sent: JsonObject, now_ms: int = NOW_MS, **context: Any) -> Applied:
    """Apply updates as they were sent. That neither the metadata nor the updates are changed is part of every test."""
    if metadata is not None:
        context = {"previous_location": PREVIOUS, **context}
    before, asked = deepcopy(metadata), deepcopy(sent)
    applied = updates.apply(metadata, parse_table_updates(list(sent)), Context(now_ms, **context))
    assert metadata == before
    assert sent == asked
    return applied


def after(metadata: JsonObject | None, *sent: JsonObject, **context: Any) -> JsonObject:
    """The metadata after updates that are expected to change it."""
    applied = fold(metadata, *sent, **context)
    assert applied.changed
    return applied.metadata


def with_snapshots(format_version: int, *ids: int, **request: Any) -> JsonObject:
    """A table whose `main` went through these snapshots, one commit each."""
    metadata = create(format_version, **request)
    parent = None
    for snapshot_id in ids:
        made = numbered(format_version, snapshot_id, parent=parent)
        metadata = after(metadata, add_snapshot(made), set_ref(snapshot_id), now_ms=NOW_MS + snapshot_id)
        parent = snapshot_id
    return metadata

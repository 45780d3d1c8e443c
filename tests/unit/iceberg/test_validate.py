"""Metadata from elsewhere: what old writers left out is filled in, what no client could load is refused."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.errors import Unreadable
from lakepact.iceberg.errors import InvalidMetadata
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.metadata import read
from lakepact.iceberg.validate import check_table_metadata
from tests.unit.iceberg.tables import (
    BORN_MS,
    BY_DAY,
    ID,
    TS,
    after,
    create,
    field,
    order,
    schema,
    set_ref,
    with_snapshots,
)

OLD = {
    "format-version": 1,
    "table-uuid": "d20125c8-7284-442c-9aea-15fee620737c",
    "location": "s3://bucket/test/location",
    "last-updated-ms": BORN_MS,
    "last-column-id": 2,
    "schema": {"type": "struct", "fields": [ID, TS]},
    "partition-spec": [{"name": "ts_day", "transform": "day", "source-id": 2}],
    "properties": {},
    "current-snapshot-id": 7,
    "snapshots": [{"snapshot-id": 7, "timestamp-ms": BORN_MS, "manifests": ["a.avro"], "summary": {}}],
}


def test_what_format_1_could_leave_out_is_filled_in() -> None:
    found = read(OLD)
    assert found["schemas"] == [{"schema-id": 0, "type": "struct", "fields": [ID, TS]}]
    assert found["partition-specs"] == [
        {"spec-id": 0, "fields": [{"name": "ts_day", "transform": "day", "source-id": 2, "field-id": 1000}]}
    ]
    assert (found["current-schema-id"], found["default-spec-id"], found["last-partition-id"]) == (0, 0, 1000)
    assert (found["sort-orders"], found["default-sort-order-id"]) == ([{"order-id": 0, "fields": []}], 0)
    assert found["refs"] == {"main": {"snapshot-id": 7, "type": "branch"}}
    assert "schemas" not in OLD
    assert check_table_metadata(OLD) == found


def test_an_old_table_can_be_changed() -> None:
    made = after(read(OLD), {"action": "upgrade-format-version", "format-version": 2}, set_ref(7, "v1", "tag"))
    assert made["last-sequence-number"] == 0
    assert set(made["refs"]) == {"main", "v1"}


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_what_is_complete_is_not_copied(format_version: int) -> None:
    table = with_snapshots(format_version, 1, 2)
    assert read(table) is table
    assert check_table_metadata(table) is table


@pytest.mark.parametrize(
    "changes",
    [
        {"format-version": 4},
        {"format-version": "2"},
        {"format-version": True},
        {"location": None},
        {"schemas": {}},
        {"last-sequence-number": None},
        {"current-schema-id": "0"},
        {"snapshots": {}},
        {"refs": []},
        {"last-updated-ms": True},
        {"table-uuid": 5},
    ],
)
def test_stored_metadata_that_is_damaged_is_not_guessed_at(changes: JsonObject) -> None:
    with pytest.raises(Unreadable):
        read(create() | changes)
    with pytest.raises(InvalidMetadata):
        check_table_metadata(create() | changes)


@pytest.mark.parametrize("document", [None, [], "x", 5])
def test_what_is_no_object_is_no_metadata(document: Any) -> None:
    with pytest.raises(Unreadable):
        read(document)
    with pytest.raises(InvalidMetadata):
        check_table_metadata(document)


TABLE = with_snapshots(2, 1, 2, **{"partition-spec": BY_DAY, "write-order": order((1, "identity"))})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schemas": [schema(ID, ID)]}, "used twice"),
        ({"schemas": [5]}, "expected an object"),
        ({"schemas": [schema(ID)]}, "there is no column 2"),
        ({"schemas": [schema(ID, TS), schema(ID, TS)]}, "a schema-id is used twice"),
        ({"current-schema-id": 3}, "schema-id 3"),
        ({"schemas": [schema(ID, TS, field(3, "v", "variant"))]}, "not supported until v3"),
        ({"schemas": [schema(ID, TS, field(3, "ts_day"))]}, "column 3 has its name"),
        ({"partition-specs": 5}, "expected an array"),
        ({"partition-specs": [{"fields": []}]}, "'spec-id' is missing"),
        ({"default-spec-id": 9}, "spec-id 9"),
        ({"sort-orders": [{"fields": []}]}, "'order-id' is missing"),
        ({"default-sort-order-id": 9}, "order-id 9"),
        ({"properties": {"a": 1}}, "must be a string"),
        ({"snapshots": TABLE["snapshots"] + TABLE["snapshots"][:1]}, "the id is used twice"),
        ({"snapshots": [{}]}, "'snapshot-id' is missing"),
        ({"last-sequence-number": 1}, "beyond the table's"),
        ({"current-snapshot-id": 5}, "does not exist"),
        ({"current-snapshot-id": 1}, "the branch 'main' is at 2"),
        ({"refs": {"main": {"snapshot-id": 9, "type": "branch"}}}, "snapshot 9 does not exist"),
        ({"refs": {"main": 9}}, "expected an object"),
        ({"statistics": [5]}, "expected an object"),
        ({"partition-statistics": [{}]}, "'snapshot-id' is missing"),
        ({"encryption-keys": [{}]}, "'key-id' is missing"),
        ({"snapshot-log": [{"timestamp-ms": BORN_MS + n, "snapshot-id": 1} for n in (99_999, 0)]}, "not in order"),
        ({"snapshot-log": [{"timestamp-ms": BORN_MS + 999_999, "snapshot-id": 1}]}, "later than 'last-updated-ms'"),
        ({"metadata-log": [{"timestamp-ms": BORN_MS}]}, "'metadata-file' is missing"),
    ],
)
def test_metadata_that_clients_could_not_load_is_refused(changes: JsonObject, message: str) -> None:
    with pytest.raises(InvalidMetadata, match=message):
        check_table_metadata(TABLE | changes)


def test_metadata_that_nests_too_deeply_is_refused() -> None:
    deep: Any = 1
    for _ in range(1_000):
        deep = [deep]
    with pytest.raises(InvalidMetadata, match="levels deep"):
        check_table_metadata(TABLE | {"x": deep})

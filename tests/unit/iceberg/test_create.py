"""A new table gets all its ids from the catalog, whatever the client wrote."""

from __future__ import annotations

import pytest

from lakepact.iceberg.errors import InvalidIceberg, InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from tests.unit.iceberg.tables import (
    BORN_MS,
    ID,
    LOCATION,
    NAME,
    NOW_MS,
    OTHER_UUID,
    SCHEMA,
    TS,
    UUID,
    add_snapshot,
    after,
    create,
    field,
    fold,
    numbered,
    order,
    schema,
    set_ref,
    spec,
    spec_field,
)

NESTED = schema(
    field(10, "id", required=True),
    field(20, "points", {"type": "list", "element-id": 21, "element-required": True, "element": schema(field(5, "x"))}),
    field(
        30,
        "tags",
        {"type": "map", "key-id": 31, "key": "string", "value-id": 32, "value": "string", "value-required": False},
    ),
    field(40, "where", schema(field(41, "lat", "double"), field(42, "lon", "double"))),
    **{"identifier-field-ids": [10]},
)


def test_columns_are_numbered_struct_by_struct_from_1() -> None:
    made = create(schema=NESTED)["schemas"][0]
    assert [column["id"] for column in made["fields"]] == [1, 2, 3, 4]
    points, tags, where = (column["type"] for column in made["fields"][1:])
    assert (points["element-id"], points["element"]["fields"][0]["id"]) == (5, 6)
    assert (tags["key-id"], tags["value-id"]) == (7, 8)
    assert [column["id"] for column in where["fields"]] == [9, 10]
    assert made["identifier-field-ids"] == [1]
    assert made["schema-id"] == 0
    assert create(schema=NESTED)["last-column-id"] == 10


def test_the_spec_and_the_order_follow_their_columns_to_the_new_ids() -> None:
    made = create(
        schema=NESTED,
        **{
            "partition-spec": spec(
                spec_field(42, "truncate[4]", "lon_trunc") | {"source-id": 10}, spec_field(10, "bucket[8]", "b")
            ),
            "write-order": order((42, "identity"), (10, "bucket[4]")),
        },
    )
    assert made["partition-specs"] == [
        {
            "spec-id": 0,
            "fields": [
                {"source-id": 1, "transform": "truncate[4]", "name": "lon_trunc", "field-id": 1000},
                {"source-id": 1, "transform": "bucket[8]", "name": "b", "field-id": 1001},
            ],
        }
    ]
    assert made["last-partition-id"] == 1001
    assert (made["default-sort-order-id"], made["sort-orders"][0]["order-id"]) == (1, 1)
    assert [one["source-id"] for one in made["sort-orders"][0]["fields"]] == [10, 1]


def test_a_plain_table_is_unpartitioned_unsorted_and_empty() -> None:
    assert create() == {
        "format-version": 2,
        "table-uuid": UUID,
        "location": LOCATION,
        "last-sequence-number": 0,
        "last-updated-ms": BORN_MS,
        "last-column-id": 3,
        "current-schema-id": 0,
        "schemas": [SCHEMA],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "last-partition-id": 999,
        "default-sort-order-id": 0,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "properties": {"write.parquet.compression-codec": "zstd"},
        "current-snapshot-id": -1,
        "refs": {},
        "snapshots": [],
        "statistics": [],
        "partition-statistics": [],
        "snapshot-log": [],
        "metadata-log": [],
    }


def test_format_1_repeats_the_schema_and_the_spec_for_old_readers_and_has_no_sequence_numbers() -> None:
    made = create(1, **{"partition-spec": spec(spec_field(2, "day", "ts_day"))})
    assert made["schema"] == made["schemas"][0]
    assert made["partition-spec"] == made["partition-specs"][0]["fields"]
    assert "last-sequence-number" not in made
    assert made["current-snapshot-id"] == -1


def test_format_3_counts_rows_and_writes_null_for_no_snapshot() -> None:
    made = create(3)
    assert made["next-row-id"] == 0
    assert made["current-snapshot-id"] is None


def test_reserved_properties_are_not_stored_and_parquet_is_zstd_unless_said() -> None:
    made = create(properties={"uuid": "x", "current-schema": "{}", "owner": "me", "snapshot-count": "3"})
    assert made["properties"] == {"write.parquet.compression-codec": "zstd", "owner": "me"}
    made = create(properties={"write.parquet.compression-codec": "snappy"})
    assert made["properties"] == {"write.parquet.compression-codec": "snappy"}


@pytest.mark.parametrize(("location", "stored"), [("s3://a/b//", "s3://a/b"), ("file:///", "file://"), ("x", "x")])
def test_trailing_slashes_of_a_location_go(location: str, stored: str) -> None:
    assert create(location=location)["location"] == stored


def test_fields_nobody_knows_are_kept() -> None:
    made = create(schema=schema(field(1, "id", collation="de"), **{"x-owner": {"a": None}}))
    assert made["schemas"][0]["x-owner"] == {"a": None}
    assert made["schemas"][0]["fields"][0]["collation"] == "de"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"properties": {"format-version": "4"}}, "format 4 is not supported"),
        ({"properties": {"format-version": "0"}}, "format 0 is not supported"),
        ({"properties": {"format-version": "two"}}, "must be a whole number"),
        ({"properties": {"commit.retry.num-retries": "-1"}}, "must not be negative"),
        ({"properties": {"commit.retry.num-retries": "x"}}, "must be a whole number"),
        ({"properties": {"encryption.key-id": "k"}}, "encryption needs format 3"),
        ({"properties": {"write.metadata.metrics.column.nope": "full"}}, "there is no column 'nope'"),
        ({"partition-spec": spec(spec_field(9, "identity", "x"))}, "there is no column 9"),
        ({"partition-spec": spec(spec_field(9, "void", "x"))}, "there is no column 9"),
        ({"partition-spec": spec(spec_field(1, "day", "x"))}, "which day does not take"),
        ({"partition-spec": spec(spec_field(1, "bucket[4]", "name"))}, "column 3 has its name"),
        ({"write-order": order((9, "identity"))}, "there is no column 9"),
        ({"schema": schema(field(1, "v", "variant"))}, "Invalid schema for v2:\n- Invalid type for v: variant is not"),
    ],
)
def test_a_creation_that_no_client_could_load_is_refused(request_: JsonObject, message: str) -> None:
    with pytest.raises(InvalidIceberg, match=message):
        create(2, **request_)


# --- creation through a commit, as CTAS does it ---


def creation(*, format_version: int = 2, extra: tuple[JsonObject, ...] = ()) -> list[JsonObject]:
    return [
        {"action": "assign-uuid", "uuid": OTHER_UUID},
        {"action": "upgrade-format-version", "format-version": format_version},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 3},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": spec(spec_field(2, "day", "ts_day", 1000))},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": order()},
        {"action": "set-default-sort-order", "sort-order-id": -1},
        {"action": "set-location", "location": "s3://lake/db/ctas/"},
        {"action": "set-properties", "updates": {"owner": "me"}},
        *extra,
    ]


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_a_commit_creates_a_table_with_its_first_snapshot(format_version: int) -> None:
    first = numbered(format_version, 1)
    sent = creation(format_version=format_version, extra=(add_snapshot(first), set_ref(1)))
    made = after(None, *sent)
    assert made["format-version"] == format_version
    assert (made["table-uuid"], made["location"]) == (OTHER_UUID, "s3://lake/db/ctas")
    assert (made["last-column-id"], made["last-partition-id"]) == (3, 1000)
    assert (made["current-schema-id"], made["default-spec-id"], made["default-sort-order-id"]) == (0, 0, 0)
    assert made["current-snapshot-id"] == 1
    assert made["snapshot-log"] == [{"timestamp-ms": first["timestamp-ms"], "snapshot-id": 1}]
    assert made["metadata-log"] == []
    assert made["last-updated-ms"] == max(NOW_MS, first["timestamp-ms"])
    assert made.get("last-sequence-number") == (None, 1, 1)[format_version - 1]
    assert made.get("next-row-id") == (None, None, 10)[format_version - 1]
    assert ("schema" in made) == (format_version == 1)


def test_the_current_schema_may_be_set_last() -> None:
    # DuckDB sends it after the spec and the snapshot.
    sent = creation(extra=(add_snapshot(numbered(2, 1)), set_ref(1)))
    current = sent.pop(3)
    assert after(None, *sent, current)["current-schema-id"] == 0


def test_uuid_and_location_are_the_catalogs_where_the_updates_say_nothing() -> None:
    sent = [update for update in creation() if update["action"] not in ("assign-uuid", "set-location")]
    made = after(None, *sent, new_uuid=UUID, new_location=LOCATION)
    assert (made["table-uuid"], made["location"]) == (UUID, LOCATION)
    with pytest.raises(InvalidUpdate, match="must say the table's table-uuid"):
        fold(None, *sent)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        ("add-schema", "there is no schema 0"),
        ("add-spec", "no partition spec 0"),
        ("add-sort-order", "no sort order 0"),
    ],
)
def test_a_creation_needs_a_schema_a_spec_and_an_order(left_out: str, message: str) -> None:
    gone = {left_out, *(("set-current-schema", "add-spec", "set-default-spec") if left_out == "add-schema" else ())}
    gone |= {left_out.replace("add-", "set-default-")}
    sent = [update for update in creation() if update["action"] not in gone]
    with pytest.raises(InvalidUpdate, match=message):
        fold(None, *sent)


def test_a_creation_cannot_ask_for_a_format_that_is_not_there() -> None:
    for version in (0, 4):
        with pytest.raises(InvalidUpdate, match=f"format {version} is not supported"):
            fold(None, *creation(format_version=version))


def test_the_columns_of_a_commit_keep_their_ids() -> None:
    sent = creation()
    sent[2] = {"action": "add-schema", "schema": schema(ID, TS, NAME | {"id": 17})}
    made = after(None, *sent)
    assert [column["id"] for column in made["schemas"][0]["fields"]] == [1, 2, 17]
    assert made["last-column-id"] == 17

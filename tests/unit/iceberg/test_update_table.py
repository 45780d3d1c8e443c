"""Uuid, format version, location, properties, statistics, keys: what each update does, and what it leaves alone."""

from __future__ import annotations

import pytest

from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from tests.unit.iceberg.tables import (
    BORN_MS,
    NOW_MS,
    OTHER_UUID,
    PREVIOUS,
    UUID,
    add_snapshot,
    after,
    create,
    fold,
    numbered,
    set_ref,
    with_snapshots,
)

SET_OWNER = {"action": "set-properties", "updates": {"owner": "me"}}


def unchanged(metadata: JsonObject, *sent: JsonObject) -> bool:
    applied = fold(metadata, *sent)
    assert applied.changed == (applied.metadata is not metadata)
    return not applied.changed


# --- every change ---


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_every_change_moves_the_time_and_logs_the_file_before(format_version: int) -> None:
    made = after(create(format_version), SET_OWNER)
    assert made["last-updated-ms"] == NOW_MS
    assert made["metadata-log"] == [{"timestamp-ms": BORN_MS, "metadata-file": PREVIOUS}]


def test_a_clock_that_went_back_does_not_make_the_table_older() -> None:
    assert after(create(), SET_OWNER, now_ms=BORN_MS - 5_000)["last-updated-ms"] == BORN_MS


def test_no_updates_are_no_change() -> None:
    assert unchanged(create())


def test_what_no_release_knows_survives_every_change() -> None:
    base = create() | {"x-lineage": {"deep": [1, None]}}
    base["snapshots"] = []
    made = after(base, SET_OWNER, add_snapshot(numbered(2, 1, **{"x-engine": [1]})), set_ref(1, **{"x-note": "hi"}))
    assert made["x-lineage"] == {"deep": [1, None]}
    assert made["snapshots"][0]["x-engine"] == [1]
    assert made["refs"]["main"]["x-note"] == "hi"


# --- uuid ---


def test_a_table_keeps_its_uuid() -> None:
    assert unchanged(create(), {"action": "assign-uuid", "uuid": UUID})
    assert unchanged(create(), {"action": "assign-uuid", "uuid": UUID.upper()})
    with pytest.raises(InvalidUpdate, match="never changes"):
        fold(create(), {"action": "assign-uuid", "uuid": OTHER_UUID})


def test_an_old_table_without_a_uuid_gets_one() -> None:
    base = create(1) | {"table-uuid": None}
    assert after(base, {"action": "assign-uuid", "uuid": OTHER_UUID})["table-uuid"] == OTHER_UUID


# --- format version ---


def upgrade(version: int) -> JsonObject:
    return {"action": "upgrade-format-version", "format-version": version}


def test_format_2_numbers_snapshots_from_0() -> None:
    made = after(with_snapshots(1, 1), upgrade(2))
    assert (made["format-version"], made["last-sequence-number"]) == (2, 0)
    assert "schema" not in made
    assert "partition-spec" not in made
    assert "sequence-number" not in made["snapshots"][0]


def test_format_3_counts_rows_from_0_and_leaves_old_snapshots_alone() -> None:
    base = with_snapshots(2, 1)
    made = after(base, upgrade(3))
    assert (made["format-version"], made["next-row-id"]) == (3, 0)
    assert made["snapshots"] == base["snapshots"]
    assert made["current-snapshot-id"] == 1
    assert after(create(2), upgrade(3))["current-snapshot-id"] is None


def test_format_1_may_go_to_3_at_once() -> None:
    made = after(create(1), upgrade(3))
    assert (made["last-sequence-number"], made["next-row-id"]) == (0, 0)


def test_the_same_format_is_no_change_and_there_is_no_way_back() -> None:
    assert unchanged(create(2), upgrade(2))
    with pytest.raises(InvalidUpdate, match="cannot go back to 1"):
        fold(create(2), upgrade(1))
    with pytest.raises(InvalidUpdate, match="format 4 is not supported"):
        fold(create(2), upgrade(4))


def test_format_1_keeps_its_copies_for_old_readers_up_to_date() -> None:
    made = after(
        create(1),
        {"action": "add-spec", "spec": {"fields": [{"name": "b", "transform": "bucket[2]", "source-id": 1}]}},
        {"action": "set-default-spec", "spec-id": -1},
    )
    assert made["partition-spec"] == [{"name": "b", "transform": "bucket[2]", "source-id": 1, "field-id": 1000}]
    assert made["schema"] == made["schemas"][0]


# --- location and properties ---


def test_a_location_is_set_without_its_trailing_slash() -> None:
    assert after(create(), {"action": "set-location", "location": "s3://b/x/"})["location"] == "s3://b/x"
    assert unchanged(create(), {"action": "set-location", "location": create()["location"] + "/"})
    with pytest.raises(InvalidUpdate, match="must not be empty"):
        fold(create(), {"action": "set-location", "location": "/"})


def test_properties_are_set_and_removed_and_setting_what_is_there_is_no_change() -> None:
    base = after(create(), SET_OWNER)
    assert base["properties"]["owner"] == "me"
    assert unchanged(base, SET_OWNER)
    assert unchanged(base, {"action": "set-properties", "updates": {}})
    assert (
        "owner" not in after(base, {"action": "remove-properties", "removals": ["owner", "never-there"]})["properties"]
    )
    assert unchanged(base, {"action": "remove-properties", "removals": ["never-there"]})


def test_updates_are_applied_in_their_order() -> None:
    remove = {"action": "remove-properties", "removals": ["owner"]}
    assert "owner" in after(create(), remove, SET_OWNER)["properties"]
    assert unchanged(create(), SET_OWNER, remove)


# --- statistics ---


def statistics(snapshot_id: int, path: str = "a") -> JsonObject:
    return {
        "snapshot-id": snapshot_id,
        "statistics-path": path,
        "file-size-in-bytes": 10,
        "file-footer-size-in-bytes": 4,
        "blob-metadata": [
            {"type": "ndv", "snapshot-id": snapshot_id, "sequence-number": 1, "fields": [1], "properties": None}
        ],
    }


def partition_statistics(snapshot_id: int, path: str = "a") -> JsonObject:
    return {"snapshot-id": snapshot_id, "statistics-path": path, "file-size-in-bytes": 10}


@pytest.mark.parametrize(("kind", "make"), [("statistics", statistics), ("partition-statistics", partition_statistics)])
def test_a_snapshot_has_one_file_of_statistics(kind: str, make: object) -> None:
    assert callable(make)
    sets = [{"action": f"set-{kind}", kind: make(n, path)} for n, path in ((1, "a"), (2, "b"), (1, "c"))]
    made = after(create(), *sets)
    assert [(file["snapshot-id"], file["statistics-path"]) for file in made[kind]] == [(1, "c"), (2, "b")]
    assert unchanged(made, sets[2])
    removed = after(made, {"action": f"remove-{kind}", "snapshot-id": 1})
    assert [file["snapshot-id"] for file in removed[kind]] == [2]
    assert unchanged(removed, {"action": f"remove-{kind}", "snapshot-id": 1})


def test_nulls_that_readers_refuse_are_not_stored() -> None:
    made = after(create(), {"action": "set-statistics", "statistics": statistics(1)})
    assert "properties" not in made["statistics"][0]["blob-metadata"][0]


# --- encryption keys ---


def test_keys_are_added_once_and_removed_by_id() -> None:
    key = {"key-id": "k1", "encrypted-key-metadata": "AAAA", "encrypted-by-id": "root", "properties": {"a": "b"}}
    add = {"action": "add-encryption-key", "encryption-key": key}
    made = after(create(3), add)
    assert made["encryption-keys"] == [key]
    assert unchanged(made, {**add, "encryption-key": key | {"encrypted-by-id": "other"}})
    assert unchanged(made, {"action": "remove-encryption-key", "key-id": "k2"})
    assert after(made, {"action": "remove-encryption-key", "key-id": "k1"})["encryption-keys"] == []

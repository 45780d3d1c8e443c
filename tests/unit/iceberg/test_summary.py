"""What pointers and receipts say is derived from metadata, and metadata files have their place and number."""

from __future__ import annotations

import pytest

from lakepact.iceberg import metadata as documents
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.locations import (
    has_gzip_name,
    is_compressed,
    metadata_folder,
    next_metadata_location,
    version_of,
)
from lakepact.iceberg.summary import summarize_snapshot, summarize_table, summarize_view
from tests.unit.iceberg.tables import (
    BORN_MS,
    LOCATION,
    NOW_MS,
    UUID,
    add_snapshot,
    after,
    create,
    numbered,
    set_ref,
    with_snapshots,
)
from tests.unit.iceberg.test_views import create as create_view


def test_a_table_pointer() -> None:
    assert summarize_table(with_snapshots(3, 1, 2)).to_json() == {
        "uuid": UUID,
        "format-version": 3,
        "location": LOCATION,
        "last-updated-ms": NOW_MS + 2,
        "last-sequence-number": 2,
        "schema-id": 0,
        "current-snapshot-id": 2,
        "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
    }


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_a_pointer_of_an_empty_table(format_version: int) -> None:
    pointer = summarize_table(create(format_version))
    assert (pointer.current_snapshot_id, pointer.last_sequence_number, pointer.refs) == (None, 0, {})
    assert pointer.last_updated_ms == BORN_MS


def test_a_view_pointer() -> None:
    assert summarize_view(create_view()).to_json() == {
        "uuid": UUID,
        "format-version": 1,
        "location": LOCATION,
        "current-version-id": 1,
        "schema-id": 0,
    }


def test_the_figures_of_a_snapshot() -> None:
    summary = {"operation": "overwrite", "added-records": "5", "total-records": "15", "total-files-size": "many"}
    table = after(create(), add_snapshot(numbered(2, 7, summary=summary)), set_ref(7))
    found = summarize_snapshot(table, 7)
    assert found is not None
    assert (found.snapshot_id, found.sequence_number, found.schema_id, found.operation) == (7, 7, 0, "overwrite")
    assert found.summary == {name: value for name, value in summary.items() if name != "operation"}
    assert found.totals == {"total-records": 15}
    assert summarize_snapshot(table, 8) is None
    assert summarize_snapshot(create(), None) is None


def test_what_everybody_asks_of_metadata() -> None:
    table = with_snapshots(2, 1, 2)
    current = documents.current_snapshot(table)
    assert current is not None
    assert current["snapshot-id"] == 2
    assert documents.current_schema(table)["schema-id"] == 0
    assert documents.default_spec(table)["fields"] == []
    assert documents.default_order(table)["order-id"] == 0
    assert documents.properties(table) == {"write.parquet.compression-codec": "zstd"}
    assert documents.current_snapshot(create()) is None


def test_only_snapshots_that_are_referred_to() -> None:
    table = after(
        with_snapshots(2, 1, 2, 3),
        set_ref(1, "v1", "tag"),
        *(
            {
                "action": "set-partition-statistics",
                "partition-statistics": {"snapshot-id": n, "statistics-path": "p", "file-size-in-bytes": 1},
            }
            for n in (1, 2)
        ),
    )
    shown = documents.only_referenced(table)
    assert [one["snapshot-id"] for one in shown["snapshots"]] == [1, 3]
    assert [one["snapshot-id"] for one in shown["partition-statistics"]] == [1]
    assert shown["snapshot-log"] == table["snapshot-log"]
    assert len(table["snapshots"]) == 3


# --- locations ---


@pytest.mark.parametrize(
    ("location", "version"),
    [
        (None, -1),
        ("s3://b/t/metadata/00012-abc.metadata.json", 12),
        ("s3://b/t/metadata/123456-abc.metadata.json", 123456),
        ("s3://b/t/metadata/v3.metadata.json", -1),
        ("00007-x", 7),
    ],
)
def test_the_number_of_a_file(location: str | None, version: int) -> None:
    assert version_of(location) == version


def test_the_next_file_is_one_up_in_the_folder_of_the_table() -> None:
    table = create()
    assert next_metadata_location(table, None, "u") == f"{LOCATION}/metadata/00000-u.metadata.json"
    after_nine = next_metadata_location(table, f"{LOCATION}/metadata/00009-x.metadata.json", "u")
    assert after_nine == f"{LOCATION}/metadata/00010-u.metadata.json"


def test_properties_move_and_compress_metadata_files() -> None:
    table = create(properties={"write.metadata.path": "s3://m/", "write.metadata.compression-codec": "GZIP"})
    assert metadata_folder(table) == "s3://m"
    assert next_metadata_location(table, None, "u") == "s3://m/00000-u.gz.metadata.json"
    assert is_compressed(table)
    assert not is_compressed(create())
    with pytest.raises(InvalidUpdate, match="none or gzip"):
        is_compressed(create(properties={"write.metadata.compression-codec": "zip"}))
    assert has_gzip_name("x/00000-u.gz.metadata.json")
    assert has_gzip_name("x/00000-u.metadata.json.gz")
    assert not has_gzip_name("x/00000-u.metadata.json")

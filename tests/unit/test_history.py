"""A table's versions, by receipts where there are any and by the snapshots' own word where not."""

from __future__ import annotations

from typing import Any

from lakepact.catalog.changes import in_words, kind_of
from lakepact.catalog.history import (
    lineage_text,
    own_words,
    rows_text,
    source_text,
    timeline,
    version_number,
    versions_of,
)

METADATA: dict[str, Any] = {
    "last-updated-ms": 2_000,
    "metadata-log": [{"metadata-file": "one", "timestamp-ms": 1_000}],
    "snapshot-log": [{"timestamp-ms": 1_000, "snapshot-id": 1}, {"timestamp-ms": 2_000, "snapshot-id": 2}],
    "snapshots": [
        {
            "snapshot-id": 1,
            "summary": {
                "operation": "append",
                "added-records": "3",
                "lakepact.pipeline": "shop",
                "lakepact.run-id": "r",
                "lakepact.transaction-id": "t",
            },
        },
        {"snapshot-id": 2, "summary": {"operation": "append"}},
    ],
}


def test_the_newest_version_comes_first() -> None:
    assert [version.metadata_location for version in versions_of("two", METADATA)] == ["two", "one"]
    [newest, _] = versions_of("two", METADATA)
    assert newest.receipt_name.startswith("_catalog/events/1970-01-01/iceberg/committed/")


def test_a_receipt_tells_everything_and_a_snapshot_claims_nothing() -> None:
    receipt = {
        "snapshot-id": 2,
        "snapshot-operation": "append",
        "summary": {"added-records": "5"},
        "totals": {"total-records": 8},
        "transaction-id": "t2",
        "source": {"kind": "pipeline", "pipeline": "shop", "run-id": "r2"},
        "lineage": "verified",
        "quality": "passed",
        "inputs": [{"table": "raw.orders"}],
        "checks": [{}],
    }
    told, guessed = timeline("two", METADATA, {"two": receipt})
    assert (told.current, told.source, told.lineage, told.quality) == (
        True,
        "pipeline shop, run r2",
        "verified",
        "passed",
    )
    assert (told.added_rows, told.total_rows, told.transaction_id) == (5, 8, "t2")
    assert (guessed.current, guessed.lineage, guessed.quality) == (False, "unknown", "unknown")
    assert guessed.source == "pipeline shop, run r (as the snapshot says)"
    assert (guessed.snapshot_id, guessed.added_rows, guessed.transaction_id) == (1, 3, "t")


def test_sources_in_words() -> None:
    assert source_text({"kind": "rest", "client": "pyiceberg/0.12"}) == "external, pyiceberg/0.12"
    assert source_text({"kind": "pipeline", "stream": "orders", "batch-id": "3"}) == "stream orders, batch 3"
    assert source_text({}) == "unknown"
    assert own_words({"kind": "rest", "client": "c", "principal": "ada", "pipeline": "nightly", "run": "r-1"}) == (
        "pipeline=nightly, run=r-1"
    )
    assert own_words({"kind": "pipeline", "pipeline": "shop", "run-id": "r", "stages": ["a"], "checks": [{}]}) == ""
    assert own_words({"kind": "rest", "more": {"a": [1]}, "none": None}) == 'more={"a":[1]}'


def test_a_version_without_a_snapshot_of_its_own_has_touched_no_row() -> None:
    """A receipt also tells of the current snapshot: that it is there is not the doing of this version."""
    receipt = {
        "change": "commit",
        "snapshot-id": 2,
        "snapshot-operation": "overwrite",
        "summary": {"added-records": "26", "deleted-records": "65"},
        "totals": {"total-records": 26},
        "snapshots": [],
        "changed": {"refs": {"set": {"eoy": {"type": "tag", "snapshot-id": 2}}}},
    }
    [told] = timeline("two", METADATA, {"two": receipt}, versions_of("two", METADATA)[:1])
    assert (told.operation, told.snapshot_id, told.added_rows, told.removed_rows) == (
        "branches and tags",
        None,
        None,
        None,
    )
    assert rows_text(told) == "26 in all"
    assert in_words(told.changed) == ["tag eoy set to snapshot 2"]


def test_rows_that_went_away_are_counted_too_and_so_are_several_snapshots() -> None:
    def one(snapshot_id: int, operation: str, **summary: str) -> dict[str, Any]:
        return {"snapshot-id": snapshot_id, "operation": operation, "summary": summary}

    receipt = {
        "snapshot-id": 2,
        "totals": {"total-records": 1_026},
        "snapshots": [
            one(2, "overwrite", **{"added-records": "26", "deleted-records": "65", "added-position-deletes": "3"}),
            one(9, "append", **{"added-records": "1000", "deleted-records": "few"}),
        ],
    }
    [told] = timeline("two", METADATA, {"two": receipt}, versions_of("two", METADATA)[:1])
    assert (told.operation, told.snapshot_id) == ("overwrite", 2), "what the table is at, not what is on a branch"
    assert rows_text(told) == "1,026 added, 65 removed, 3 marked as deleted, 1,026 in all"


def test_lineage_in_words_claims_nothing_that_was_not_declared() -> None:
    def told(kind: str, lineage: str, *inputs: dict[str, Any]) -> str:
        receipt = {"source": {"kind": kind}, "lineage": lineage, "inputs": inputs}
        [entry] = timeline("two", METADATA, {"two": receipt}, versions_of("two", METADATA)[:1])
        return lineage_text(entry)

    assert told("rest", "declared-unverified") == "unknown (external write)"
    assert told("rest", "declared-unverified", {"table": "raw.a", "snapshot-id": "7"}) == (
        "raw.a@7 (declared-unverified)"
    )
    assert told("pipeline", "verified") == "nothing was read (verified)"
    [_, guessed] = timeline("two", METADATA, {})
    assert lineage_text(guessed) == "unknown"
    assert version_number("file:///w/t/metadata/00012-ab.metadata.json") == 12
    assert version_number("file:///w/t/metadata/v3.metadata.json") is None


def test_changes_in_words() -> None:
    assert in_words({}) == [] and kind_of({}) == "metadata"
    assert kind_of({"schema": {"from": 0, "to": 1}}) == "schema"
    both = {
        "schema": {"from": 0, "to": 1},
        "refs": {"set": {"dev": {"type": "branch", "snapshot-id": 5}}, "removed": ["old"]},
        "properties": {"set": ["a", "b"], "removed": ["c"]},
        "snapshots-removed": 2,
        "statistics": True,
        "something of a later release": {"set": 1},
    }
    assert kind_of(both) == "metadata"
    assert in_words(both) == [
        "schema 0 → 1",
        "branch dev set to snapshot 5",
        "old removed",
        "properties a, b set",
        "property c removed",
        "2 snapshots removed",
        "statistics",
    ]

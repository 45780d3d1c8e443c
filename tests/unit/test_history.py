"""A table's versions, by receipts where there are any and by the snapshots' own word where not."""

from __future__ import annotations

from typing import Any

from lakepact.catalog.history import source_text, timeline, versions_of

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

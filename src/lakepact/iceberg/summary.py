"""What others derive from metadata: the fields of a pointer cell, and the figures of a receipt. Never by hand.

A pointer repeats a few fields of the metadata it points to, so that a listing or a check need not read the file. They
are computed here from the new metadata alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from lakepact.iceberg import metadata as documents
from lakepact.iceberg.fields import JsonObject

_TOTALS: Final = (
    "total-records",
    "total-files-size",
    "total-data-files",
    "total-delete-files",
    "total-position-deletes",
    "total-equality-deletes",
)


@dataclass(frozen=True, slots=True)
class TableSummary:
    """What a table's pointer says about its metadata."""

    uuid: str
    format_version: int
    location: str
    last_updated_ms: int
    last_sequence_number: int
    schema_id: int
    current_snapshot_id: int | None
    refs: JsonObject

    def to_json(self) -> JsonObject:
        return {
            "uuid": self.uuid,
            "format-version": self.format_version,
            "location": self.location,
            "last-updated-ms": self.last_updated_ms,
            "last-sequence-number": self.last_sequence_number,
            "schema-id": self.schema_id,
            "current-snapshot-id": self.current_snapshot_id,
            "refs": self.refs,
        }


@dataclass(frozen=True, slots=True)
class ViewSummary:
    """What a view's pointer says about its metadata."""

    uuid: str
    format_version: int
    location: str
    current_version_id: int
    schema_id: int

    def to_json(self) -> JsonObject:
        return {
            "uuid": self.uuid,
            "format-version": self.format_version,
            "location": self.location,
            "current-version-id": self.current_version_id,
            "schema-id": self.schema_id,
        }


def summarize_table(metadata: JsonObject) -> TableSummary:
    return TableSummary(
        uuid=metadata["table-uuid"],
        format_version=metadata["format-version"],
        location=metadata["location"],
        last_updated_ms=metadata["last-updated-ms"],
        last_sequence_number=metadata.get("last-sequence-number", 0),
        schema_id=metadata["current-schema-id"],
        current_snapshot_id=documents.current_snapshot_id(metadata),
        refs=documents.refs(metadata),
    )


def summarize_view(metadata: JsonObject) -> ViewSummary:
    current = metadata["current-version-id"]
    version = next(version for version in metadata["versions"] if version["version-id"] == current)
    return ViewSummary(
        uuid=metadata["view-uuid"],
        format_version=metadata["format-version"],
        location=metadata["location"],
        current_version_id=current,
        schema_id=version["schema-id"],
    )


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """What a receipt says about a snapshot."""

    snapshot_id: int
    parent_snapshot_id: int | None
    sequence_number: int
    timestamp_ms: int
    schema_id: int | None
    operation: str | None
    summary: dict[str, str]
    """As the writer wrote it, without the operation."""

    totals: dict[str, int]
    """The figures of the whole table in it, those that are whole numbers."""


def summarize_snapshot(metadata: JsonObject, snapshot_id: int | None) -> SnapshotSummary | None:
    """None if the table has no such snapshot (or there is none, as in an empty table)."""
    snapshot = documents.snapshot(metadata, snapshot_id)
    if snapshot is None:
        return None
    summary: dict[str, Any] = dict(snapshot.get("summary") or {})
    operation = summary.pop("operation", None)
    return SnapshotSummary(
        snapshot_id=snapshot["snapshot-id"],
        parent_snapshot_id=snapshot.get("parent-snapshot-id"),
        sequence_number=snapshot.get("sequence-number") or 0,
        timestamp_ms=snapshot["timestamp-ms"],
        schema_id=snapshot.get("schema-id"),
        operation=operation,
        summary=summary,
        totals={name: int(summary[name]) for name in _TOTALS if _is_count(summary.get(name))},
    )


def added_snapshots(metadata: JsonObject, base: JsonObject | None) -> list[SnapshotSummary]:
    """The snapshots that a version has and the version before it had not, on whatever branch, in their order.

    `base` is the version before; None if there was none.
    """
    known = {snapshot["snapshot-id"] for snapshot in (base or {}).get("snapshots") or ()}
    ids = [snapshot["snapshot-id"] for snapshot in metadata.get("snapshots") or ()]
    found = (summarize_snapshot(metadata, snapshot_id) for snapshot_id in ids if snapshot_id not in known)
    return [snapshot for snapshot in found if snapshot is not None]


def _is_count(value: object) -> bool:
    # The writer's text: a figure that is none is left out rather than refused, long after the commit.
    return isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 20

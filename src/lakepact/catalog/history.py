"""The history of a table: its versions, and who made each of them. Pure: from metadata and receipts to a timeline.

What was read is verified where the server has seen it, and else what the writer says. Where a receipt is
missing, the snapshot's own summary is all there is, and nothing is claimed about lineage and quality.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lakepact.catalog.receipts import commit_key


@dataclass(frozen=True, slots=True)
class Version:
    metadata_location: str
    timestamp_ms: int

    @property
    def receipt_name(self) -> str:
        """Where its receipt lies in the warehouse."""
        date = datetime.fromtimestamp(self.timestamp_ms / 1000, UTC).strftime("%Y-%m-%d")
        return f"_catalog/events/{date}/iceberg/committed/{commit_key(self.metadata_location)}.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a table."""

    metadata_location: str
    timestamp_ms: int
    current: bool
    snapshot_id: int | None
    operation: str | None
    added_rows: int | None
    total_rows: int | None
    transaction_id: str | None
    source: str
    tables: int | None = None
    """How many tables, views and namespaces its transaction has changed, if that is known."""

    run_id: str | None = None
    lineage: str = "unknown"
    quality: str = "unknown"
    inputs: Sequence[Mapping[str, Any]] = ()
    checks: Sequence[Mapping[str, Any]] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


def versions_of(metadata_location: str, metadata: Mapping[str, Any]) -> list[Version]:
    """The newest first, as far back as the metadata knows."""
    logged = [Version(one["metadata-file"], one["timestamp-ms"]) for one in metadata.get("metadata-log") or ()]
    return [Version(metadata_location, metadata["last-updated-ms"]), *reversed(logged)]


def timeline(
    metadata_location: str,
    metadata: Mapping[str, Any],
    receipts: Mapping[str, Mapping[str, Any]],
    versions: Sequence[Version] | None = None,
) -> list[Entry]:
    """`receipts` by the metadata location they are of; `versions`: those wanted, if not all."""
    wanted = versions_of(metadata_location, metadata) if versions is None else versions
    snapshots = None if all(one.metadata_location in receipts for one in wanted) else _by_time(metadata)
    found = []
    for version in wanted:
        receipt = receipts.get(version.metadata_location)
        current = version.metadata_location == metadata_location
        if receipt is not None:
            found.append(_told(version, current, receipt))
        else:
            found.append(_guessed(version, current, (snapshots or {}).get(version.timestamp_ms, {})))
    return found


def _by_time(metadata: Mapping[str, Any]) -> Mapping[int, Mapping[str, Any]]:
    """The snapshots that became current, by the time at which they did."""
    snapshots = {one["snapshot-id"]: one for one in metadata.get("snapshots") or ()}
    log = metadata.get("snapshot-log") or ()
    return {one["timestamp-ms"]: snapshots[one["snapshot-id"]] for one in log if one["snapshot-id"] in snapshots}


def _told(version: Version, current: bool, receipt: Mapping[str, Any]) -> Entry:
    source = receipt.get("source") or {}
    summary = receipt.get("summary") or {}
    totals = receipt.get("totals") or {}
    return Entry(
        metadata_location=version.metadata_location,
        timestamp_ms=version.timestamp_ms,
        current=current,
        snapshot_id=receipt.get("snapshot-id"),
        operation=receipt.get("snapshot-operation") or receipt.get("change"),
        added_rows=_number(summary.get("added-records")),
        total_rows=_number(totals.get("total-records", summary.get("total-records", totals.get("records")))),
        transaction_id=receipt.get("transaction-id"),
        source=source_text(source),
        tables=_number(receipt.get("transaction-tables")),
        run_id=source.get("run-id"),
        lineage=str(receipt.get("lineage", "unknown")),
        quality=str(receipt.get("quality", "unknown")),
        inputs=tuple(receipt.get("inputs") or ()),
        checks=tuple(receipt.get("checks") or ()),
        details=dict(source),
    )


def _guessed(version: Version, current: bool, snapshot: Mapping[str, Any]) -> Entry:
    summary = snapshot.get("summary") or {}
    run_id, pipeline = summary.get("lakepact.run-id"), summary.get("lakepact.pipeline")
    by = f"pipeline {pipeline}, run {run_id}" if pipeline else summary.get("engine-name", "unknown")
    return Entry(
        metadata_location=version.metadata_location,
        timestamp_ms=version.timestamp_ms,
        current=current,
        snapshot_id=snapshot.get("snapshot-id"),
        operation=summary.get("operation"),
        added_rows=_number(summary.get("added-records")),
        total_rows=_number(summary.get("total-records")),
        transaction_id=summary.get("lakepact.transaction-id"),
        source=f"{by} (as the snapshot says)" if summary else "unknown",
        run_id=run_id,
    )


def source_text(source: Mapping[str, Any]) -> str:
    """Who it was, in a few words."""
    match source.get("kind"):
        case "pipeline" if "stream" in source:
            return f"stream {source['stream']}, batch {source.get('batch-id')}"
        case "pipeline":
            return f"pipeline {source.get('pipeline')}, run {source.get('run-id')}"
        case "spark":
            return f"Spark {source.get('engine-version', '')}, {source.get('application-name', '')}".rstrip(", ")
        case "rest":
            who = source.get("client") or source.get("client-info") or source.get("user-agent")
            return f"external, {who}" if who else "external"
        case None:
            return "unknown"
        case kind:
            return str(kind)


def _number(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None

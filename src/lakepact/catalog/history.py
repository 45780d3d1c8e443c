"""The history of a table: its versions, and who made each of them. Pure: from metadata and receipts to a timeline.

What was read is verified where the server has seen it, and else what the writer says. Where a receipt is
missing, the snapshot's own summary is all there is, and nothing is claimed about lineage and quality.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from lakepact.catalog.changes import METADATA, kind_of
from lakepact.catalog.lineage import DECLARED, LINEAGE, LOADED, NOT_CHECKED, VERIFIED
from lakepact.catalog.receipts import commit_key

_OF_EVERY_SOURCE: Final = frozenset(
    {"kind", "client", "client-info", "user-agent", "principal", "inputs", "checks", "quality", LINEAGE}
)
_OF_SPARK: Final = frozenset({"application-id", "application-name", "engine-version"})
_OF_A_KIND: Final = {
    "pipeline": _OF_SPARK | {"pipeline", "run-id", "stream", "batch-id", "query-id", "stages"},
    "spark": _OF_SPARK,
}
"""What a source is told by in words of ours."""

_NUMBER: Final = re.compile(r"0*(\d{1,18})-")
_MOST_WORDS: Final = 1_000
_MOST_CHECKS: Final = 5
_COPIED: Final = "spark.merge-into.num-target-rows-copied"
"""Of a snapshot's summary: rows that a merge has rewritten and not changed."""

_DELETES: Final = ("added-position-deletes", "added-equality-deletes")


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
    """Of the snapshot that came with this version, if one did."""

    operation: str | None
    """What it did to the rows; if it did nothing to them, what it changed instead."""

    added_rows: int | None
    removed_rows: int | None
    marked_rows: int | None
    """How many deletes it has written beside the rows: each takes away a row, or all with some values."""

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
    changed: Mapping[str, Any] = field(default_factory=dict)
    """What it has changed beside rows, as its receipt says: `lakepact.catalog.changes` puts it into words."""

    details: Mapping[str, Any] = field(default_factory=dict)


def versions_of(metadata_location: str, metadata: Mapping[str, Any]) -> list[Version]:
    """The newest first, as far back as the metadata knows."""
    logged = [Version(one["metadata-file"], one["timestamp-ms"]) for one in metadata.get("metadata-log") or ()]
    return [Version(metadata_location, metadata["last-updated-ms"]), *reversed(logged)]


def version_number(metadata_location: str) -> int | None:
    """The number that a metadata file has in its name, as Iceberg writes it."""
    found = _NUMBER.match(metadata_location.rpartition("/")[2])
    return None if found is None else int(found[1])


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
    added = _added(receipt)
    changed = receipt.get("changed") or {}
    last = added[-1] if added else {}
    return Entry(
        metadata_location=version.metadata_location,
        timestamp_ms=version.timestamp_ms,
        current=current,
        snapshot_id=last.get("snapshot-id"),
        operation=last.get("operation") or _other_operation(receipt, changed),
        added_rows=_without_copies(added, "added-records"),
        removed_rows=_without_copies(added, "deleted-records"),
        marked_rows=_sum(added, *_DELETES),
        total_rows=_number(totals.get("total-records", summary.get("total-records", totals.get("records")))),
        transaction_id=receipt.get("transaction-id"),
        source=source_text(source),
        tables=_number(receipt.get("transaction-tables")),
        run_id=source.get("run-id"),
        lineage=str(receipt.get("lineage", "unknown")),
        quality=str(receipt.get("quality", "unknown")),
        inputs=tuple(receipt.get("inputs") or ()),
        checks=tuple(receipt.get("checks") or ()),
        changed=changed,
        details=dict(source),
    )


def _added(receipt: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The snapshots that came with this version, the one that it is at last of all.

    A receipt's own summary is that of the current snapshot, which may have come with a version long before.
    """
    if "snapshots" in receipt:
        at = receipt.get("snapshot-id")
        return sorted(receipt["snapshots"] or (), key=lambda one: one.get("snapshot-id") == at)
    if receipt.get("snapshot-id") is None:
        return ()
    # From before receipts named the snapshots.
    return [{**receipt, "operation": receipt.get("snapshot-operation")}]


def _other_operation(receipt: Mapping[str, Any], changed: Mapping[str, Any]) -> str:
    word = str(receipt.get("change") or METADATA)
    return kind_of(changed) if word == "commit" else word


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
        removed_rows=_number(summary.get("deleted-records")),
        marked_rows=_sum([snapshot], *_DELETES),
        total_rows=_number(summary.get("total-records")),
        transaction_id=summary.get("lakepact.transaction-id"),
        source=f"{by} (as the snapshot says)" if summary else "unknown",
        run_id=run_id,
    )


def rows_text(entry: Entry) -> str:
    """What it did to the rows."""
    figures = (
        (entry.added_rows, "added"),
        (entry.removed_rows, "removed"),
        (entry.marked_rows, "marked as deleted"),
        (entry.total_rows, "in all"),
    )
    return ", ".join(f"{figure:,} {word}" for figure, word in figures if figure is not None)


def source_text(source: Mapping[str, Any]) -> str:
    """Who it was, in a few words."""
    match source.get("kind"):
        case "pipeline" if "stream" in source:
            return f"stream {source['stream']}, batch {source.get('batch-id')}"
        case "pipeline":
            return f"pipeline {source.get('pipeline')}, run {source.get('run-id')}"
        case "spark":
            return f"Spark {source.get('engine-version', '')}, {source.get('application-name', '')}".rstrip(", ")
        case "rest" | "grpc":
            who = client_of(source)
            return f"external, {who}" if who else "external"
        case None:
            return "unknown"
        case kind:
            return str(kind)


def lineage_text(entry: Entry) -> str:
    """What it was made of, and how far that can be trusted."""
    read = [
        str(one["table"]) + (f"@{at}" if (at := one.get("snapshot-id", one.get("version"))) is not None else "")
        for one in entry.inputs
        if "table" in one
    ]
    if read and entry.lineage == LOADED:
        return f"unknown; its transaction has loaded {', '.join(read)}"
    if read:
        return f"{', '.join(read)} ({entry.lineage})"
    if entry.details.get("kind") in ("rest", "grpc"):
        # Nothing was declared, so there is nothing that could be trusted or not.
        return "unknown (external write)"
    if entry.lineage in (VERIFIED, DECLARED):
        return f"nothing was read ({entry.lineage})"
    return "unknown"


def quality_text(entry: Entry) -> str:
    """How the checks of this table went."""
    if not entry.checks:
        return "no checks" if entry.quality == NOT_CHECKED else entry.quality
    violated = [one for one in entry.checks if isinstance(one, dict) and one.get("status") != "passed"]
    listed = "; ".join(
        f"{one.get('name')}: {one.get('status')}, {_number(one.get('violations')) or 0:,} of "
        f"{_number(one.get('rows')) or 0:,} rows"
        for one in violated[:_MOST_CHECKS]
    )
    more = f" and {len(violated) - _MOST_CHECKS} more" if len(violated) > _MOST_CHECKS else ""
    count = "1 check" if len(entry.checks) == 1 else f"{len(entry.checks)} checks"
    return f"{entry.quality}, {count}" + (f" ({listed}{more})" if listed else "")


def client_of(source: Mapping[str, Any]) -> str:
    """The program that it was, as it calls itself."""
    return str(source.get("client") or source.get("client-info") or source.get("user-agent") or "")


def own_words(source: Mapping[str, Any]) -> str:
    """What its writer says beside what every writer is asked: `source=` of a transaction."""
    known = _OF_EVERY_SOURCE | _OF_A_KIND.get(str(source.get("kind")), frozenset())
    said = [f"{field}={_word(value)}" for field, value in source.items() if field not in known and value is not None]
    return ", ".join(said)[:_MOST_WORDS]


def _word(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()


def _sum(snapshots: Sequence[Mapping[str, Any]], *figures: str) -> int | None:
    """Of what each of them says; None if none of them says anything."""
    told = [_number((one.get("summary") or {}).get(figure)) for one in snapshots for figure in figures]
    known = [one for one in told if one is not None]
    return sum(known) if known else None


def _without_copies(snapshots: Sequence[Mapping[str, Any]], figure: str) -> int | None:
    """The sum of a figure, without rows that were only copied from one file to another."""
    total = _sum(snapshots, figure)
    return None if total is None else max(total - (_sum(snapshots, _COPIED) or 0), 0)


def _number(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None

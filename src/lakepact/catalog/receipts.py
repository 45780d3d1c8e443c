"""Receipts: the immutable event of one committed change. Pure: from a transaction to the documents it leaves behind.

Where a receipt lies follows from the change alone, so that whoever finds one missing writes it to the same place:
`_catalog/events/<date>/iceberg/committed/<commit key>.json`. The commit key is the SHA-256 of the metadata location, or
of `cell:<id>:<revision>` for a change that has no metadata file of its own. The date is that of the metadata, or else
of the transaction's id.

Revisions begin again when a backup is restored, and the receipts of the lost store are still in the warehouse. So every
restore has a generation, which is part of that key: `cell:<id>:<generation>:<revision>`. A store that was never
restored has generation 0, which is left out.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from lakepact.catalog.lineage import LINEAGE, checks_of_table, inputs_of_table, lineage_of, quality_of_table
from lakepact.catalog.pointers import DELTA, ICEBERG, Change, Kind, Pointer
from lakepact.catalog.warehouse import OWN_FOLDER
from lakepact.iceberg.differences import differences
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier
from lakepact.iceberg.summary import SnapshotSummary, added_snapshots, summarize_snapshot
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.kernel.keys import segments_of
from lakepact.kernel.model import Value, Write

FORMAT: Final = 1
NAMESPACE: Final = "namespace"
EVENTS: Final = f"{OWN_FOLDER}/events"
_NO_TRANSACTION: Final = "00000000-0000-0000-0000-000000000000"
GOVERNANCE: Final = "governance"
_MOST_SNAPSHOTS: Final = 100
"""Of those that a version has added, the newest. A table that is registered may come with thousands."""

_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

_BESIDE: Final = ("inputs", "checks", "quality", LINEAGE)
"""What of a source has a field of its own."""


@dataclass(frozen=True, slots=True)
class CommittedChange:
    """One change of a committed transaction that a receipt tells of."""

    kind: str
    id: str
    revision: int | None
    """None: it was committed so long ago that nobody can count any more."""
    change: Change
    identifier: Identifier | None
    namespace: tuple[str, ...]
    pointer: Pointer | None = None
    """Of a table or view. For one that was dropped: the last it had."""

    governance: JsonObject | None = None
    """What people say about a table or view, if that is what changed."""

    generation: int = 0
    """Of the store in which the revision was counted."""

    @property
    def has_new_metadata(self) -> bool:
        return self.pointer is not None and self.change in (Change.CREATE, Change.COMMIT, Change.REGISTER)

    @property
    def made_its_metadata(self) -> bool:
        """Whether the metadata file came to be with this change. A registered one may have been committed before."""
        return self.has_new_metadata and self.change is not Change.REGISTER

    @property
    def commit_key(self) -> str:
        # A log's file may come again, where a table was dropped and made anew.
        if self.made_its_metadata and self.pointer is not None and self.kind != Kind.DELTA:
            return commit_key(self.pointer.metadata_location)
        what = f"governance/{self.id}" if self.kind == GOVERNANCE else self.id
        return cell_commit_key(what, self.revision, self.generation)


@dataclass(frozen=True, slots=True)
class Receipt:
    name: str
    """Its place in the warehouse."""

    document: JsonObject

    def to_bytes(self) -> bytes:
        return orjson.dumps(self.document)


def commit_key(of: str) -> str:
    return hashlib.sha256(of.encode()).hexdigest()


def cell_commit_key(id: str, revision: int | None, generation: int) -> str:
    """The commit key of a change that has no metadata file of its own."""
    return commit_key(f"cell:{id}:{generation}:{revision}" if generation else f"cell:{id}:{revision}")


def changes_of(writes: Iterable[Write], generation: int = 0) -> tuple[CommittedChange, ...]:
    """Return the changes of tables, views and namespaces that these writes make in a store of this generation."""
    writes = tuple(writes)
    dropped = {
        segments_of(write.key)[-1]: write.value
        for write in writes
        if segments_of(write.key)[1] == "dropped" and write.value is not None
    }
    found = (_change_of(write, dropped) for write in writes)
    return tuple(replace(change, generation=generation) for change in found if change is not None)


def receipt_of(
    change: CommittedChange,
    *,
    transaction_id: TransactionId | None,
    tables: int,
    answer: Mapping[str, Any],
    metadata: JsonObject | None,
    base: JsonObject | None = None,
    size: JsonObject | None = None,
) -> Receipt:
    """`tables`: how many receipts the transaction leaves. `metadata`: the new version's, if there is one; `base`: that
    of the version before it, if it can still be read. `size`: how large a Delta table is by it, if that is known.

    Without a transaction nobody knows any more which one it was: then the change has metadata with a time, and is told
    of for itself.
    """
    source: Mapping[str, Any] = answer.get("source") or {"kind": "admin"}
    pointer, key = change.pointer, change.commit_key
    committed_ms = _committed_ms(change, metadata, transaction_id)
    checks = checks_of_table(source, change.identifier)
    document: JsonObject = {
        "format": FORMAT,
        "event-id": str(uuid.uuid5(uuid.UUID(transaction_id or _NO_TRANSACTION), key)),
        "commit-key": key,
        "kind": change.kind,
        "change": change.change,
        "id": change.id,
        "revision": change.revision,
        "generation": change.generation,
        "namespace": list(change.namespace),
        "name": change.identifier.name if change.identifier is not None else None,
        "transaction-id": transaction_id,
        "transaction-tables": tables,
        "operation": answer.get("operation"),
        "committed-ms": committed_ms,
        "metadata-location": pointer.metadata_location if pointer is not None else None,
        "previous-metadata-location": pointer.previous_metadata_location if pointer is not None else None,
        "base-metadata-location": _base(change),
        **_content(change, metadata, base, size),
        **({} if change.governance is None else {"governance": change.governance}),
        "source": {name: value for name, value in source.items() if name not in _BESIDE},
        "lineage": lineage_of(source),
        "quality": quality_of_table(source, checks),
        "inputs": inputs_of_table(source, change.identifier),
        "checks": checks,
    }
    return Receipt(receipt_name(change.kind, committed_ms, key), document)


def receipt_name(kind: str, committed_ms: int, key: str) -> str:
    """The place of a receipt in its warehouse."""
    format_ = DELTA if kind == Kind.DELTA else ICEBERG
    return f"{EVENTS}/{date_of(committed_ms)}/{format_}/committed/{key}.json"


def date_of(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")


def has_date(at_ms: object) -> bool:
    """Whether a receipt can be dated by this: a registered file may say anything."""
    return isinstance(at_ms, int) and 0 < at_ms <= _LAST_MS


def _committed_ms(change: CommittedChange, metadata: JsonObject | None, transaction_id: TransactionId | None) -> int:
    """By the metadata, where it has a time that has a date."""
    last_updated_ms: Any
    if not change.made_its_metadata:
        last_updated_ms = None
    elif change.kind == Kind.DELTA and change.pointer is not None:
        last_updated_ms = change.pointer.summary.get("ict-ms")
    else:
        last_updated_ms = (metadata or {}).get("last-updated-ms")
    if has_date(last_updated_ms):
        return int(last_updated_ms)
    if transaction_id is None:
        raise ValueError(f"a change of {change.id} has neither a transaction nor metadata with a time")
    return timestamp_ms(transaction_id)


def _change_of(write: Write, dropped: Mapping[str, Value]) -> CommittedChange | None:
    _, family, *rest = segments_of(write.key)
    revision = write.revision + 1
    match family:
        case "tables" | "views" | "delta":
            value = write.value if write.value is not None else dropped.get(rest[-1])
            if value is None:
                return None
            pointer = Pointer.from_json(value)
            return CommittedChange(
                pointer.kind,
                rest[-1],
                revision,
                pointer.change,
                pointer.identifier,
                pointer.identifier.namespace,
                pointer,
            )
        case "namespaces":
            if write.value is None:
                change = Change.DROP
            elif write.value.get("created") == revision:
                change = Change.CREATE
            elif write.value.get("changed") == revision:
                change = Change.COMMIT
            else:
                # A mark of somebody who wants to drop it came or went: nothing that anybody sees.
                return None
            levels = _levels(rest, write.value)
            return CommittedChange(NAMESPACE, "/".join((family, *rest)), revision, change, None, levels)
        case "governance" if write.value is not None:
            said = write.value
            identifier = Identifier(tuple(said["namespace"]), said["name"])
            about = {name: said[name] for name in ("owner", "description", "tags", "protected")}
            return CommittedChange(
                GOVERNANCE, rest[-1], revision, Change.COMMIT, identifier, identifier.namespace, governance=about
            )
        case _:
            return None


def _levels(rest: list[str], value: Value | None) -> tuple[str, ...]:
    if value is not None:
        return tuple(value["namespace"])
    parents = [level.replace("~1", ".").replace("~0", "~") for level in rest[0].split(".")[1:] if level]
    return (*parents, rest[1])


def _base(change: CommittedChange) -> str | None:
    """What the change was planned on: the direct predecessor, or the same version for a rename or a drop."""
    if change.pointer is None:
        return None
    if change.has_new_metadata:
        return change.pointer.previous_metadata_location
    return change.pointer.metadata_location


def _content(
    change: CommittedChange, metadata: JsonObject | None, base: JsonObject | None, size: JsonObject | None
) -> JsonObject:
    """What the table looks like after it: snapshot, schema, figures."""
    pointer = change.pointer
    summary = pointer.summary if pointer is not None else {}
    content: JsonObject = {
        "snapshot-id": summary.get("current-snapshot-id"),
        "schema-id": summary.get("schema-id"),
        "location": summary.get("location"),
        "snapshot-operation": None,
        "summary": {},
        "totals": size or {},
        "snapshots": [],
    }
    if change.kind == Kind.TABLE and metadata is not None:
        snapshot = summarize_snapshot(metadata, summary.get("current-snapshot-id"))
        if snapshot is not None:
            content |= {
                "snapshot-operation": snapshot.operation,
                "summary": snapshot.summary,
                "totals": snapshot.totals,
            }
        content["snapshots"] = [_snapshot(one) for one in _added(change, metadata, base, snapshot)[-_MOST_SNAPSHOTS:]]
        if base is not None:
            content["changed"] = differences(metadata, base)
    return content


def _added(
    change: CommittedChange, metadata: JsonObject, base: JsonObject | None, current: SnapshotSummary | None
) -> list[SnapshotSummary]:
    """The snapshots that came with this change. Where the version before is gone, the log of snapshots tells whether
    the current one did."""
    if base is not None or change.change is not Change.COMMIT:
        return added_snapshots(metadata, base)
    switched = [entry["timestamp-ms"] for entry in metadata.get("snapshot-log") or ()]
    versions = [entry["timestamp-ms"] for entry in metadata.get("metadata-log") or ()]
    came = bool(switched) and (not versions or switched[-1] > versions[-1])
    return [current] if current is not None and came else []


def _snapshot(snapshot: SnapshotSummary) -> JsonObject:
    return {
        "snapshot-id": snapshot.snapshot_id,
        "parent-snapshot-id": snapshot.parent_snapshot_id,
        "sequence-number": snapshot.sequence_number,
        "timestamp-ms": snapshot.timestamp_ms,
        "schema-id": snapshot.schema_id,
        "operation": snapshot.operation,
        "summary": snapshot.summary,
    }

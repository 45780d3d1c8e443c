"""The three documents of the object-storage protocol, and their bytes.

    cells/<path of the key>.json                      a cell: its value and perhaps a lock
    transactions/<yyyy>/<mm>/<dd>/<id>.json           a record: the authority on one transaction
    staged/<yyyy>/<mm>/<dd>/<id>/<sequence>.json      one entry of an open transaction's staging log

`docs/format.md` describes them field by field. Two habits keep them safe. Every rewrite raises `writes`, so the bytes
of a document never repeat: an ETag may be a hash of the content, and an old one must not become valid again. And
top-level fields this release does not know are carried along, so that a document of the next format survives a rewrite.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from lakepact.errors import FormatTooNew, InvalidTransactionId, Unreadable
from lakepact.kernel.identity import TransactionId, date_path, parse_transaction_id
from lakepact.kernel.keys import Key
from lakepact.kernel.model import (
    Cell,
    Isolation,
    Moved,
    Read,
    State,
    TransactionRecord,
    Value,
    Write,
)

FORMAT: Final = 1
NEWEST_READABLE_FORMAT: Final = FORMAT + 1
"""A release reads its own format and the next one, so that a fleet can be upgraded one process at a time."""


@dataclass(frozen=True, slots=True)
class Lock:
    """A cell's note that this transaction, at this epoch, intends to change it. It carries no value."""

    transaction: TransactionId
    epoch: int


@dataclass(frozen=True, slots=True)
class CellDocument:
    """A cell as stored. What a reader sees of it depends on the record behind its lock (`decide.resolve`)."""

    key: Key
    revision: int = 0
    writes: int = 0
    value: Value | None = None
    writer: TransactionId | None = None
    lock: Lock | None = None
    format: int = FORMAT
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        return Cell(self.key, self.revision, self.value, self.writer)

    def rewritten(self, cell: Cell, lock: Lock | None) -> CellDocument:
        """The next version of this document: this effective cell under this lock."""
        return replace(
            self,
            revision=cell.revision,
            value=cell.value,
            writer=cell.writer,
            lock=lock,
            writes=self.writes + 1,
        )


@dataclass(frozen=True, slots=True)
class Planned:
    """One planned write: the revision it was planned on, and the value to come."""

    revision: int
    value: Value | None


@dataclass(frozen=True, slots=True)
class RecordDocument:
    """The durable document of a transaction: its plan, its state, its answer."""

    id: TransactionId
    writes: int
    owner: str
    epoch: int
    state: State
    request_hash: str
    created_ms: int
    lease_ms: int
    plan: Mapping[Key, Planned] = field(default_factory=dict)
    reads: Mapping[Key, int] = field(default_factory=dict)
    reads_locked: bool = False
    touched: tuple[Key, ...] = ()
    answer: Value | None = None
    moved: tuple[Moved, ...] = ()
    expires_ms: int | None = None
    """When an open or prepared transaction ends unless it is renewed."""

    retry_until_ms: int | None = None
    """Until when a retryable transaction waits for the same id."""

    decided_ms: int | None = None
    isolation: Isolation = Isolation.SERIALIZABLE
    properties: Mapping[str, str] = field(default_factory=dict)
    staged: bool = False
    """Whether it began open, and so has a staging log."""

    finalized: bool = False
    trimmed: bool = False
    format: int = FORMAT
    unknown_fields: Mapping[str, Any] = field(default_factory=dict)

    def public(self) -> TransactionRecord:
        return TransactionRecord(
            id=self.id,
            state=self.state,
            request_hash=self.request_hash,
            created_ms=self.created_ms,
            writes=tuple(Write(key, planned.revision, planned.value) for key, planned in self.plan.items()),
            reads=tuple(Read(key, revision) for key, revision in self.reads.items()),
            answer=self.answer,
            moved=self.moved,
            expires_ms=self.expires_ms,
            decided_ms=self.decided_ms,
            isolation=self.isolation,
            properties=self.properties,
            finalized=self.finalized,
            lease_ms=self.lease_ms if self.state is State.PREPARING else None,
        )


@dataclass(frozen=True, slots=True)
class StagedEntry:
    """One staging call of an open transaction, or the seal that ends them all. Written once, never rewritten."""

    transaction: TransactionId
    sequence: int
    operation: str
    writes: Mapping[Key, Value | None] = field(default_factory=dict)
    bases: Mapping[Key, int] = field(default_factory=dict)
    """The revisions on which cells written here for the first time are based."""

    reads: Mapping[Key, int] = field(default_factory=dict)
    """The revisions of cells seen for the first time."""

    sealed: bool = False
    format: int = FORMAT


# --- names ---


def name_of_record(transaction_id: TransactionId) -> str:
    return f"transactions/{date_path(transaction_id)}/{transaction_id}.json"


def id_of_record_name(name: str) -> TransactionId | None:
    """The id a record's name spells, or None if this is no record: a bucket may hold folder markers and strays."""
    try:
        transaction_id = parse_transaction_id(name.rpartition("/")[2].removesuffix(".json"))
    except InvalidTransactionId:
        return None
    return transaction_id if name_of_record(transaction_id) == name else None


def name_prefix_of_staged(transaction_id: TransactionId) -> str:
    return f"staged/{date_path(transaction_id)}/{transaction_id}/"


def sequence_of_staged_name(name: str) -> int:
    digits = name.rpartition("/")[2].removesuffix(".json")
    return int(digits) if digits.isdecimal() else 0


def name_of_staged(transaction_id: TransactionId, sequence: int) -> str:
    return f"{name_prefix_of_staged(transaction_id)}{sequence:08d}.json"


# --- bytes ---


def encode_cell(document: CellDocument) -> bytes:
    fields: dict[str, Any] = {
        **document.unknown_fields,
        "format": document.format,
        "key": document.key,
        "revision": document.revision,
        "writes": document.writes,
        "value": document.value,
        "writer": document.writer,
    }
    if document.lock is not None:
        fields["lock"] = {"tx": document.lock.transaction, "epoch": document.lock.epoch}
    return orjson.dumps(fields)


def decode_cell(name: str, data: bytes) -> CellDocument:
    fields = _fields(name, data)
    try:
        lock = fields.pop("lock", None)
        return CellDocument(
            format=fields.pop("format"),
            key=Key(fields.pop("key")),
            revision=int(fields.pop("revision")),
            writes=int(fields.pop("writes")),
            value=fields.pop("value"),
            writer=fields.pop("writer"),
            lock=Lock(TransactionId(lock["tx"]), int(lock["epoch"])) if lock is not None else None,
            unknown_fields=fields,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise _unreadable(name, error) from None


def encode_record(document: RecordDocument) -> bytes:
    return orjson.dumps(
        {
            **document.unknown_fields,
            "format": document.format,
            "id": document.id,
            "writes": document.writes,
            "owner": document.owner,
            "epoch": document.epoch,
            "state": document.state.value,
            "request_hash": document.request_hash,
            "created_ms": document.created_ms,
            "lease_ms": document.lease_ms,
            "plan": {
                key: {"revision": planned.revision, "value": planned.value} for key, planned in document.plan.items()
            },
            "reads": document.reads,
            "reads_locked": document.reads_locked,
            "touched": document.touched,
            "answer": document.answer,
            "moved": [[cell.key, cell.expected, cell.actual] for cell in document.moved],
            "expires_ms": document.expires_ms,
            "retry_until_ms": document.retry_until_ms,
            "decided_ms": document.decided_ms,
            "isolation": document.isolation.value,
            "properties": document.properties,
            "staged": document.staged,
            "finalized": document.finalized,
            "trimmed": document.trimmed,
        }
    )


def decode_record(name: str, data: bytes) -> RecordDocument:
    fields = _fields(name, data)
    try:
        return RecordDocument(
            format=fields.pop("format"),
            id=TransactionId(fields.pop("id")),
            writes=int(fields.pop("writes")),
            owner=str(fields.pop("owner")),
            epoch=int(fields.pop("epoch")),
            state=State(fields.pop("state")),
            request_hash=str(fields.pop("request_hash")),
            created_ms=int(fields.pop("created_ms")),
            lease_ms=int(fields.pop("lease_ms")),
            plan={
                Key(key): Planned(int(planned["revision"]), planned["value"])
                for key, planned in fields.pop("plan").items()
            },
            reads={Key(key): int(revision) for key, revision in fields.pop("reads").items()},
            reads_locked=bool(fields.pop("reads_locked")),
            touched=tuple(Key(key) for key in fields.pop("touched")),
            answer=fields.pop("answer"),
            moved=tuple(Moved(Key(key), expected, actual) for key, expected, actual in fields.pop("moved")),
            expires_ms=fields.pop("expires_ms"),
            retry_until_ms=fields.pop("retry_until_ms"),
            decided_ms=fields.pop("decided_ms"),
            isolation=Isolation(fields.pop("isolation")),
            properties=fields.pop("properties"),
            staged=bool(fields.pop("staged")),
            finalized=bool(fields.pop("finalized")),
            trimmed=bool(fields.pop("trimmed")),
            unknown_fields=fields,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(name, error) from None


def encode_staged(entry: StagedEntry) -> bytes:
    return orjson.dumps(
        {
            "format": entry.format,
            "transaction": entry.transaction,
            "sequence": entry.sequence,
            "operation": entry.operation,
            "writes": entry.writes,
            "bases": entry.bases,
            "reads": entry.reads,
            "sealed": entry.sealed,
        }
    )


def decode_staged(name: str, data: bytes) -> StagedEntry:
    fields = _fields(name, data)
    try:
        return StagedEntry(
            format=fields["format"],
            transaction=TransactionId(fields["transaction"]),
            sequence=int(fields["sequence"]),
            operation=str(fields["operation"]),
            writes={Key(key): value for key, value in fields["writes"].items()},
            bases={Key(key): int(revision) for key, revision in fields["bases"].items()},
            reads={Key(key): int(revision) for key, revision in fields["reads"].items()},
            sealed=bool(fields["sealed"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unreadable(name, error) from None


def _fields(name: str, data: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(data)
        written_format = fields["format"]
        if not isinstance(fields, dict) or not isinstance(written_format, int):
            raise TypeError("not a document")
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise _unreadable(name, error) from None
    if written_format > NEWEST_READABLE_FORMAT:
        raise FormatTooNew(
            f"document {name} has format {written_format}; this release reads up to {NEWEST_READABLE_FORMAT} and "
            f"leaves it as it is. Upgrade this process"
        )
    return fields


def _unreadable(name: str, error: Exception) -> Unreadable:
    return Unreadable(
        f"document {name} cannot be read ({type(error).__name__}: {error}). Nothing was changed. Restore the document "
        f"from a backup or a previous object version; its name says what it is (docs/format.md)"
    )

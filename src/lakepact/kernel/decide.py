"""What was observed and what is asked, in; the next step, out. Pure functions, no IO, no clock.

The rules of `docs/protocol.md` that can be a function of values live here, so that each can be read, tested and
sabotaged on its own. The modules that act (`reader`, `resolve`, `protocol`, `staging`, `recovery`) ask these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TypeAlias

from lakepact.errors import Damaged, KeyReused, MissingRecord, PreparedOtherwise
from lakepact.kernel.documents import CellDocument, Lock, Planned, RecordDocument
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Isolation, Moved, Read, State, Transaction, Value, Write

UNDECIDED_STATES = (State.PREPARING, State.PREPARED)


# --- what a cell is worth, given the record behind its lock ---


class Standing(Enum):
    """How the lock found on a cell stands."""

    FREE = auto()
    """There is no lock."""

    COMMITTED = auto()
    """Its transaction is committed: the value in the plan is the value of the cell, applied or not."""

    STALE = auto()
    """It no longer counts: anyone may overwrite it."""

    UNDECIDED = auto()
    """It counts, and its transaction may still go either way."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A cell as every reader must see it, and how its lock stands."""

    cell: Cell
    standing: Standing
    record: RecordDocument | None = None

    @property
    def blocks_readers(self) -> bool:
        """An undecided transaction that has validated read-only cells without locking them makes readers wait.

        Such a transaction may already be ordered before a commit the reader has seen, so neither the old nor the new
        value is right until it is decided.
        """
        return (
            self.standing is Standing.UNDECIDED
            and self.record is not None
            and bool(self.record.reads)
            and not self.record.reads_locked
        )


def resolve(document: CellDocument, record: RecordDocument | None) -> Resolved:
    """The effective cell. `record` is the record of the cell's lock, read *after* the cell."""
    if document.lock is None:
        return Resolved(document.cell, Standing.FREE)
    if record is None:
        raise MissingRecord(
            f"cell {document.key!r} is locked by transaction {document.lock.transaction}, whose record is missing. "
            f"Whether it was committed cannot be told, so the cell stays closed. Restore the record from a backup or "
            f"a previous object version; see 'Repair' in docs/protocol.md"
        )
    if document.lock.epoch > record.epoch:
        raise Damaged(
            f"cell {document.key!r} is locked at epoch {document.lock.epoch} of transaction {record.id}, but its "
            f"record is at epoch {record.epoch}: the record was replaced by an older copy. See 'Repair' in "
            f"docs/protocol.md"
        )
    if not lock_counts(document, record):
        return Resolved(document.cell, Standing.STALE, record)
    match record.state:
        case State.PREPARING | State.PREPARED:
            return Resolved(document.cell, Standing.UNDECIDED, record)
        case State.COMMITTED if document.key in record.plan:
            return Resolved(applied(document.cell, record), Standing.COMMITTED, record)
        case _:
            return Resolved(document.cell, Standing.STALE, record)


def lock_counts(document: CellDocument, record: RecordDocument) -> bool:
    """A lock counts only at the record's epoch, for a cell of its plan (or a locked read), at the planned revision.

    Whether the record is finalized does not matter: the cell was read first, and since then the transaction may have
    been committed, applied and finalized. Taking its lock for stale would show the value from before.
    """
    lock = document.lock
    if lock is None or lock.transaction != record.id or lock.epoch != record.epoch:
        return False
    planned = record.plan.get(document.key)
    expected = planned.revision if planned is not None else record.reads.get(document.key)
    return expected == document.revision


def applied(cell: Cell, record: RecordDocument) -> Cell:
    """The cell after this committed record."""
    return Cell(cell.key, cell.revision + 1, record.plan[cell.key].value, record.id)


def settled(document: CellDocument, record: RecordDocument) -> CellDocument | None:
    """The cell document once this transaction has nothing more to do with it; None if it already has not.

    A lock of a later epoch than the record as we saw it belongs to a newer attempt: it is not ours to clear.
    """
    if document.lock is None or document.lock.transaction != record.id or document.lock.epoch > record.epoch:
        return None
    return document.rewritten(resolve(document, record).cell, None)


# --- records: one function a transition ---


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes a record: the nonce of one attempt by one process, and the times it writes down."""

    owner: str
    now_ms: int
    lease_ms: int


def preparing(
    transaction: Transaction, identity: Identity, write_format: int, *, lock_reads: bool = False
) -> RecordDocument:
    """The first record of a transaction that was never open."""
    fresh = RecordDocument(
        id=transaction.id,
        writes=0,
        owner=identity.owner,
        epoch=0,
        state=State.RETRYABLE,
        request_hash=transaction.request_hash,
        created_ms=identity.now_ms,
        lease_ms=identity.lease_ms,
        format=write_format,
    )
    return taken_over(fresh, transaction, identity, lock_reads=lock_reads)


def taken_over(
    record: RecordDocument, transaction: Transaction, identity: Identity, *, lock_reads: bool = False
) -> RecordDocument:
    """The record with a new owner, a new epoch and this plan. Locks of earlier epochs no longer count.

    The new plan may drop cells; `touched` keeps every key any epoch planned, so that no lock is forgotten.
    """
    plan = {write.key: Planned(write.revision, write.value) for write in transaction.writes}
    reads = {read.key: read.revision for read in transaction.reads}
    return replace(
        record,
        writes=record.writes + 1,
        owner=identity.owner,
        epoch=record.epoch + 1,
        state=State.PREPARING,
        lease_ms=identity.lease_ms,
        plan=plan,
        reads=reads,
        reads_locked=lock_reads,
        touched=_union(record.touched, plan, reads),
        moved=(),
    )


def stepped_back(record: RecordDocument, identity: Identity) -> RecordDocument:
    """After a collision: a new epoch, before any lock is released, and from now on read cells are locked too."""
    return replace(
        record,
        writes=record.writes + 1,
        owner=identity.owner,
        epoch=record.epoch + 1,
        lease_ms=identity.lease_ms,
        reads_locked=True,
    )


def opened(
    transaction_id: TransactionId,
    identity: Identity,
    *,
    request_hash: str,
    expires_ms: int,
    isolation: Isolation,
    properties: Mapping[str, str],
    write_format: int,
) -> RecordDocument:
    """The first record of an open transaction. It holds nothing, so it needs no lease."""
    return RecordDocument(
        id=transaction_id,
        writes=1,
        owner=identity.owner,
        epoch=0,
        state=State.OPEN,
        request_hash=request_hash,
        created_ms=identity.now_ms,
        lease_ms=identity.now_ms,
        expires_ms=expires_ms,
        isolation=isolation,
        properties=properties,
        staged=True,
        format=write_format,
    )


def renewed(record: RecordDocument, expires_ms: int) -> RecordDocument:
    """A later expiry. The locks of a prepared transaction last as long as it does."""
    lease_ms = expires_ms if record.state is State.PREPARED else record.lease_ms
    return replace(record, writes=record.writes + 1, expires_ms=expires_ms, lease_ms=lease_ms)


def prepared(record: RecordDocument, expires_ms: int) -> RecordDocument:
    return replace(record, writes=record.writes + 1, state=State.PREPARED, lease_ms=expires_ms, expires_ms=expires_ms)


def committed(record: RecordDocument, answer: Value, now_ms: int) -> RecordDocument:
    """The one instant at which everything becomes visible is the swap to this."""
    return replace(record, writes=record.writes + 1, state=State.COMMITTED, answer=answer, decided_ms=now_ms)


def failed(
    record: RecordDocument, identity: Identity, *, moved: tuple[Moved, ...] = (), answer: Value | None = None
) -> RecordDocument:
    """A refusal, signed by whoever gives it: two callers may refuse one transaction with different answers.

    Whoever did not own the attempt takes it over to refuse it, which is a new epoch.
    """
    return replace(
        record,
        writes=record.writes + 1,
        owner=identity.owner,
        epoch=record.epoch if identity.owner == record.owner else record.epoch + 1,
        state=State.FAILED,
        moved=moved,
        answer=answer,
        decided_ms=identity.now_ms,
    )


def retryable(record: RecordDocument, retry_until_ms: int) -> RecordDocument:
    """Nothing applied, no lock counts, no final answer: the same id may try again until then."""
    return replace(record, writes=record.writes + 1, state=State.RETRYABLE, retry_until_ms=retry_until_ms)


def aborted(record: RecordDocument, now_ms: int) -> RecordDocument:
    return replace(record, writes=record.writes + 1, state=State.ABORTED, decided_ms=now_ms)


def finalized(record: RecordDocument) -> RecordDocument:
    """No cell carries a lock of this transaction that matters. Only a final record gets here."""
    return replace(record, writes=record.writes + 1, finalized=True)


def trimmed(record: RecordDocument) -> RecordDocument:
    """The stub: enough to give the answer again, to prevent a second execution, and to find a lock that came late."""
    return replace(record, writes=record.writes + 1, plan={}, reads={}, properties={}, finalized=True, trimmed=True)


def _union(*keys: Iterable[Key]) -> tuple[Key, ...]:
    return tuple(dict.fromkeys(key for group in keys for key in group))


# --- the same id again ---


class Claim(Enum):
    """What a coordinator does on meeting a record under its own transaction's id."""

    REPLAY = auto()
    """It is decided: give the stored answer."""

    TAKE_OVER = auto()
    """Nobody is at work on it: swap in a new epoch and owner, then begin."""

    WAIT = auto()
    """Another coordinator is at work on it and its lease is not over."""

    COMMIT_PREPARED = auto()
    """All locks are held, and the record says so: whoever is asked may swap it to committed."""

    EXPIRE = auto()
    """It was open, prepared or retryable and its time is over: abort it."""


def claim(record: RecordDocument, request_hash: str, now_ms: int) -> Claim:
    """The hash is compared on every path."""
    check_hash(record, request_hash)
    match record.state:
        case State.COMMITTED | State.FAILED | State.ABORTED:
            return Claim.REPLAY
        case State.RETRYABLE:
            return Claim.EXPIRE if expired(record, now_ms) else Claim.TAKE_OVER
        case State.PREPARING:
            return Claim.TAKE_OVER if lease_over(record, now_ms) else Claim.WAIT
        case State.PREPARED:
            return Claim.EXPIRE if expired(record, now_ms) else Claim.COMMIT_PREPARED
        case State.OPEN:
            return Claim.EXPIRE if expired(record, now_ms) else Claim.TAKE_OVER


Plan: TypeAlias = tuple[Iterable[Write], Iterable[Read]]


def check_prepared(transaction_id: TransactionId, plan: Plan, prepared: Plan) -> None:
    """What is prepared is committed as it was prepared: the plan must be that one, in whatever order."""
    if _cells(plan) != _cells(prepared):
        raise PreparedOtherwise(
            f"transaction {transaction_id} is prepared, with another plan than this one: another attempt was faster. "
            f"Nothing was done. Look it up, and commit what its record says"
        )


def _cells(plan: Plan) -> tuple[dict[Key, tuple[int, Value | None]], dict[Key, int]]:
    writes, reads = plan
    return {one.key: (one.revision, one.value) for one in writes}, {one.key: one.revision for one in reads}


def check_hash(record: RecordDocument, request_hash: str) -> None:
    if record.request_hash != request_hash:
        raise KeyReused(
            f"transaction id {record.id} was used before for a different request. Nothing was done. Use a new UUIDv7 "
            f"for a new request; repeat a request byte for byte to get its answer again"
        )


def lease_over(record: RecordDocument, now_ms: int) -> bool:
    """Whether somebody may *try* to end this attempt. Only the swap of its record decides."""
    return now_ms >= record.lease_ms


def expired(record: RecordDocument, now_ms: int) -> bool:
    """Whether an open, prepared or retryable transaction is past its time. One being committed has a lease instead."""
    match record.state:
        case State.OPEN | State.PREPARED:
            ends_ms = [record.expires_ms]
        case State.RETRYABLE:
            ends_ms = [record.expires_ms, record.retry_until_ms]
        case _:
            ends_ms = []
    return any(end_ms is not None and now_ms >= end_ms for end_ms in ends_ms)


# --- what upkeep does with a record ---


class Upkeep(Enum):
    NOTHING = auto()
    FINISH = auto()
    """Decided: write the cells, clear the locks, mark it finalized."""

    GIVE_UP = auto()
    """Its coordinator is gone: swap it to retryable, then clear its locks."""

    RELEASE = auto()
    """Nobody is at work on it: see that none of its locks is left lying about."""

    EXPIRE = auto()
    """Past its time: swap it to aborted, then finish it."""


def upkeep(record: RecordDocument, now_ms: int) -> Upkeep:
    if record.state.final:
        return Upkeep.NOTHING if record.finalized else Upkeep.FINISH
    if record.state is State.PREPARING:
        return Upkeep.GIVE_UP if lease_over(record, now_ms) else Upkeep.NOTHING
    if expired(record, now_ms):
        return Upkeep.EXPIRE
    return Upkeep.RELEASE if record.state is State.RETRYABLE else Upkeep.NOTHING


# --- unknown answers ---


class Settled(Enum):
    """What reading back says about a write whose answer was lost."""

    APPLIED = auto()
    NOT_YET = auto()
    """Still exactly as before: the same bytes may be sent again."""

    LOST = auto()
    """Somebody else was there in the meantime."""


def settle_record(intended: RecordDocument, found: RecordDocument | None, unchanged: bool) -> Settled:
    """Our own owner and epoch in the intended state: it was applied. Anything else is not ours to claim.

    Others may have finalized or trimmed the record since; that does not take the write back.
    """
    if (
        found is not None
        and (found.owner, found.epoch, found.state) == (intended.owner, intended.epoch, intended.state)
        and found.writes >= intended.writes
    ):
        return Settled.APPLIED
    return Settled.NOT_YET if unchanged else Settled.LOST


def settle_lock(lock: Lock, found: CellDocument, unchanged: bool) -> Settled:
    """Our transaction and epoch on the cell: the lock is held. The cell unchanged: not yet. Else: not held."""
    if found.lock == lock:
        return Settled.APPLIED
    return Settled.NOT_YET if unchanged else Settled.LOST

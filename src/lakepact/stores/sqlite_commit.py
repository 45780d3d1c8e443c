"""Deciding transactions in SQLite: commit, prepare, fail, abort, and the end of what has expired.

Everything here runs as a job of the writer thread, inside one database transaction that holds SQLite's only write
lock. So what a job reads cannot move before it writes, and the rules need no further locks of the database. Only
prepared transactions hold cells from one call to the next: `cells.locked_by` names them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakepact.errors import Damaged, MissingRecord
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import (
    Busy,
    CommitResult,
    Committed,
    Conflict,
    Failed,
    Moved,
    Prepared,
    PrepareResult,
    State,
    TransactionRecord,
    Value,
)
from lakepact.kernel.settings import KernelSettings
from lakepact.stores import sql_decide as decide
from lakepact.stores.sql_codec import EncodedTransaction, Stored, decode_plan, encode_moved, encode_value
from lakepact.stores.sql_decide import Step
from lakepact.stores.sqlite_publish import publish
from lakepact.stores.sqlite_rows import load, revisions_and_locks
from lakepact.stores.sqlite_writer import Refused, Work

_CREATE = """
    INSERT INTO cells (key, revision, value, writer, instant) VALUES (?, 1, ?, ?, ?)
    ON CONFLICT (key) DO UPDATE SET revision = 1, value = excluded.value, writer = excluded.writer,
        instant = excluded.instant
    WHERE cells.revision = 0 AND cells.locked_by IS NULL"""
_UPDATE = """
    UPDATE cells SET revision = revision + 1, value = ?, writer = ?, instant = ?
    WHERE key = ? AND revision = ? AND locked_by IS NULL"""
_KEEP = """
    INSERT INTO history (key, revision, value, writer, instant, replaced)
    SELECT key, revision, value, writer, instant, ? FROM cells
    WHERE key = ? AND revision = ? AND revision > 0 AND instant <= ?"""


# --- commit ---


def commit(
    work: Work, request: EncodedTransaction, settle_conflict: bool, settings: KernelSettings, now_ms: int
) -> CommitResult:
    """Try what nearly always works; if anything stands against it, undo it and find out what."""
    if not request.sealed:
        if _commit_new(work, request, now_ms):
            publish(work, request.id, request.request_hash, request.beside)
            return Committed(request.id, request.answer_value)
        work.restart()
    if (stored := _row_of(work, request)) is not None:
        decision = decide.on_commit(stored, request.request_hash, request.sealed, now_ms)
        if decision is Step.EXPIRE:
            raise end_expired(work, stored, now_ms)
        if decision is not Step.GO_ON:
            return decision
        if stored.state is State.PREPARED:
            decide.check_prepared(stored, request)
            return _commit_prepared(work, stored, request, settings, now_ms)
    if (moved := _moved(work, request)) != ():
        return _conflict(work, stored, request, moved, settle_conflict, settings, now_ms)
    if (busy := _in_the_way(work, request.id, request.keys, settings, now_ms)) is not None:
        return busy
    if not _write_cells(work, request.id, request.keys, request.revisions, request.values):
        raise Damaged(f"transaction {request.id}: cells moved under SQLite's write lock; check the file's integrity")
    _put_record(work, request, State.COMMITTED, now_ms, answer=request.answer, decided_ms=now_ms)
    drop_staging(work, stored)
    publish(work, request.id, request.request_hash, request.beside)
    return Committed(request.id, request.answer_value)


def _commit_new(work: Work, request: EncodedTransaction, now_ms: int) -> bool:
    """A new id whose cells are all where they should be: one row for the record and one for each cell."""
    inserted = work.execute(
        "INSERT INTO transactions (id, state, request_hash, created_ms, plan, answer, decided_ms) "
        "VALUES (?, 'committed', ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (request.id, request.request_hash, now_ms, request.plan, request.answer, now_ms),
    )
    if inserted.rowcount == 0:
        return False
    if request.reads and _moved(work, request) != ():
        return False
    return _write_cells(work, request.id, request.keys, request.revisions, request.values)


def _write_cells(
    work: Work,
    writer: TransactionId,
    keys: Sequence[Key],
    revisions: Sequence[int],
    values: Sequence[str | None],
) -> bool:
    """Write every cell that is at its planned revision and free; False if any was not."""
    instant, newest_open = work.instant, work.newest_open
    if newest_open is not None:
        kept = [(instant, key, revision, newest_open) for key, revision in zip(keys, revisions, strict=True)]
        work.executemany(_KEEP, kept)
    plan = list(zip(keys, revisions, values, strict=True))
    created = [(key, value, writer, instant) for key, revision, value in plan if revision == 0]
    changed = [(value, writer, instant, key, revision) for key, revision, value in plan if revision > 0]
    written = 0
    if created:
        written += work.executemany(_CREATE, created).rowcount
    if changed:
        written += work.executemany(_UPDATE, changed).rowcount
    return written == len(plan)


def _commit_prepared(
    work: Work, stored: Stored, request: EncodedTransaction, settings: KernelSettings, now_ms: int
) -> Committed:
    """All its cells are held at their planned revisions, so nothing can stand against it."""
    assert stored.plan is not None
    unlock(work, stored.id)
    writes, _ = decode_plan(stored.id, stored.plan)
    keys, revisions = [write.key for write in writes], [write.revision for write in writes]
    values = [encode_value(write.key, write.value, settings) for write in writes]
    if not _write_cells(work, stored.id, keys, revisions, values):
        raise Damaged(f"transaction {stored.id} was prepared, but its cells have moved; check the file's integrity")
    work.execute(
        "UPDATE transactions SET state = 'committed', answer = ?, decided_ms = ? WHERE id = ?",
        (request.answer, now_ms, stored.id),
    )
    publish(work, stored.id, stored.request_hash, request.beside)
    return Committed(stored.id, request.answer_value)


# --- prepare ---


def prepare(
    work: Work, request: EncodedTransaction, settle_conflict: bool, settings: KernelSettings, now_ms: int
) -> PrepareResult:
    if (stored := _row_of(work, request)) is not None:
        decision = decide.on_prepare(stored, request.request_hash, request.sealed, now_ms)
        if decision is Step.EXPIRE:
            raise end_expired(work, stored, now_ms)
        if decision is not Step.GO_ON:
            return decision
    if (moved := _moved(work, request)) != ():
        return _conflict(work, stored, request, moved, settle_conflict, settings, now_ms)
    keys = list(request.expected())
    if (busy := _in_the_way(work, request.id, keys, settings, now_ms)) is not None:
        return busy
    # A cell that never was gets a row at revision 0, for the lock to be on.
    work.executemany(
        "INSERT INTO cells (key, revision, instant, locked_by) VALUES (?, 0, 0, ?) "
        "ON CONFLICT (key) DO UPDATE SET locked_by = excluded.locked_by",
        [(key, request.id) for key in keys],
    )
    asked_ms = (stored.expires_ms if stored is not None else None) or now_ms + int(settings.open_ttl_s * 1000)
    expires_ms = min(asked_ms, now_ms + int(settings.prepared_s * 1000))
    _put_record(work, request, State.PREPARED, now_ms, expires_ms=expires_ms)
    drop_staging(work, stored)
    return Prepared(request.id, expires_ms)


# --- the other ends ---


def fail(
    work: Work, transaction_id: TransactionId, request_hash: str, answer: str, value: Value, now_ms: int
) -> Committed | Failed:
    stored = load(work.connection, transaction_id)
    if stored is not None:
        decision = decide.on_fail(stored, request_hash, now_ms)
        if decision is not Step.GO_ON:
            return decision
        if stored.state is State.PREPARED:
            unlock(work, stored.id)
    work.execute(
        "INSERT INTO transactions (id, state, request_hash, created_ms, answer, decided_ms) "
        "VALUES (?, 'failed', ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE "
        "SET state = 'failed', answer = excluded.answer, moved = NULL, decided_ms = excluded.decided_ms",
        (transaction_id, request_hash, now_ms, answer, now_ms),
    )
    drop_staging(work, stored)
    return Failed(transaction_id, value)


def abort(work: Work, transaction_id: TransactionId, now_ms: int) -> TransactionRecord:
    stored = load(work.connection, transaction_id)
    if stored is None:
        raise decide.not_found(transaction_id)
    if decide.on_abort(stored) is Step.GO_ON:
        end(work, stored, now_ms)
    ended = load(work.connection, transaction_id)
    assert ended is not None
    return ended.public()


def end(work: Work, stored: Stored, now_ms: int) -> None:
    """Abort an undecided transaction and free everything it holds."""
    work.execute("UPDATE transactions SET state = 'aborted', decided_ms = ? WHERE id = ?", (now_ms, stored.id))
    if stored.state is State.PREPARED:
        unlock(work, stored.id)
    drop_staging(work, stored)


def end_expired(work: Work, stored: Stored, now_ms: int) -> Refused:
    """End a transaction whose time is over, and what to raise to whoever still wanted something of it."""
    end(work, stored, now_ms)
    return Refused(decide.expired(stored))


def unlock(work: Work, transaction_id: TransactionId) -> None:
    work.execute("UPDATE cells SET locked_by = NULL WHERE locked_by = ?", (transaction_id,))


def drop_staging(work: Work, stored: Stored | None) -> None:
    if stored is not None and stored.state is State.OPEN:
        work.execute("DELETE FROM staged WHERE transaction_id = ?", (stored.id,))
        work.execute("DELETE FROM operations WHERE transaction_id = ?", (stored.id,))


# --- what stands against it ---


def _row_of(work: Work, request: EncodedTransaction) -> Stored | None:
    stored = load(work.connection, request.id)
    if stored is None and request.sealed:
        raise decide.not_found(request.id)
    return stored


def _moved(work: Work, request: EncodedTransaction) -> tuple[Moved, ...]:
    """Every cell of the plan that is not at its planned revision."""
    planned = request.expected()
    found = revisions_and_locks(work.connection, planned)
    return tuple(
        Moved(key, expected, actual)
        for key, expected in planned.items()
        if (actual := found[key][0] if key in found else 0) != expected
    )


def _in_the_way(
    work: Work, own_id: TransactionId, keys: Iterable[str], settings: KernelSettings, now_ms: int
) -> Busy | None:
    """The prepared transaction that holds one of these cells. Expired ones are ended on the way."""
    holders = {locked_by for _, locked_by in revisions_and_locks(work.connection, keys).values()} - {None, own_id}
    for holder in sorted(holder for holder in holders if holder is not None):
        stored = load(work.connection, TransactionId(holder))
        if stored is None:
            raise MissingRecord(
                f"a cell is held by transaction {holder}, whose record is missing. Nothing was changed. "
                f"Restore the database file from a backup"
            )
        if decide.is_over(stored, now_ms):
            end(work, stored, now_ms)
            continue
        remaining_s = ((stored.expires_ms or now_ms) - now_ms) / 1000
        return Busy(own_id, stored.id, min(settings.max_backoff_s, remaining_s))
    return None


def _conflict(
    work: Work,
    stored: Stored | None,
    request: EncodedTransaction,
    moved: tuple[Moved, ...],
    settle_conflict: bool,
    settings: KernelSettings,
    now_ms: int,
) -> Conflict:
    if settle_conflict:
        _put_record(work, request, State.FAILED, now_ms, moved=encode_moved(moved), decided_ms=now_ms)
    else:
        retry_until_ms = now_ms + int(settings.retryable_s * 1000)
        _put_record(work, request, State.RETRYABLE, now_ms, moved=encode_moved(moved), retry_until_ms=retry_until_ms)
    drop_staging(work, stored)
    return Conflict(request.id, moved, final=settle_conflict)


def _put_record(
    work: Work,
    request: EncodedTransaction,
    state: State,
    now_ms: int,
    *,
    answer: str | None = None,
    moved: str | None = None,
    expires_ms: int | None = None,
    retry_until_ms: int | None = None,
    decided_ms: int | None = None,
) -> None:
    """Write the record in its new state, over the row of this id if there is one."""
    work.execute(
        "INSERT INTO transactions "
        "(id, state, request_hash, created_ms, plan, answer, moved, expires_ms, retry_until_ms, decided_ms) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state, "
        "plan = excluded.plan, answer = excluded.answer, moved = excluded.moved, "
        "expires_ms = coalesce(excluded.expires_ms, expires_ms), retry_until_ms = excluded.retry_until_ms, "
        "decided_ms = excluded.decided_ms",
        (
            request.id,
            state.value,
            request.request_hash,
            now_ms,
            request.plan,
            answer,
            moved,
            expires_ms,
            retry_until_ms,
            decided_ms,
        ),
    )

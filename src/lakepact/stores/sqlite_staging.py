"""Open transactions in SQLite: begin, read, stage, seal, renew. Jobs of the writer thread, but for `look` and `page`.

A staging call writes its own rows and one row of the record, so the thousandth costs what the first did. Sealing and
staging are jobs of one thread under one write lock: whichever comes first is complete before the other begins, and
nothing is staged after the seal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from lakepact.errors import TooManyCells
from lakepact.kernel.checks import check_total
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, CellPage, Isolation, State, Transaction, TransactionRecord, Value
from lakepact.kernel.seen import Seen, json_text, never_shown, staged_meanwhile
from lakepact.kernel.settings import KernelSettings
from lakepact.stores import sql_decide as decide
from lakepact.stores.sql_codec import StagedCell, Stored, cell_of, decode_plan, staged_bytes
from lakepact.stores.sql_decide import Step
from lakepact.stores.sqlite_commit import end_expired
from lakepact.stores.sqlite_rows import cells_as_of, keys_in, load, staged_among, staged_cells
from lakepact.stores.sqlite_writer import Work


def begin(
    work: Work,
    transaction_id: TransactionId,
    request_hash: str,
    ttl_ms: int,
    isolation: Isolation,
    properties: str,
    now_ms: int,
) -> TransactionRecord:
    stored = load(work.connection, transaction_id)
    if stored is not None:
        decide.check_hash(stored, request_hash)
        return stored.public()
    began = work.instant
    work.execute(
        "INSERT INTO transactions (id, state, request_hash, created_ms, expires_ms, isolation, properties, began) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (transaction_id, State.OPEN.value, request_hash, now_ms, now_ms + ttl_ms, isolation.value, properties, began),
    )
    work.execute("UPDATE instant SET value = ?", (began + 1,))
    work.instant = began + 1
    work.newest_open = began
    return _again(work, transaction_id)


def read_in(
    work: Work, transaction_id: TransactionId, keys: Sequence[Key], settings: KernelSettings, now_ms: int
) -> dict[Key, Cell]:
    """Read, and remember what was read: it must not have moved when the transaction commits."""
    stored = _open(work, transaction_id, now_ms)
    known = staged_among(work.connection, transaction_id, keys)
    cells = view(work.connection, transaction_id, keys, known)
    new = [(transaction_id, key, cells[key].revision) for key in keys if key not in known]
    if stored.isolation is Isolation.SERIALIZABLE and new:
        work.executemany("INSERT INTO staged (transaction_id, key, base, written) VALUES (?, ?, ?, 0)", new)
        _count(work, transaction_id, len(new), 0, settings)
    return cells


def view(
    connection: sqlite3.Connection, transaction_id: TransactionId, keys: Sequence[Key], known: Mapping[Key, StagedCell]
) -> dict[Key, Cell]:
    """The cells as seen from inside: what is staged, over everything else as of the beginning."""
    began = connection.execute("SELECT began FROM transactions WHERE id = ?", (transaction_id,)).fetchone()[0]
    written = {key: cell for key, cell in known.items() if cell.written}
    others = cells_as_of(connection, began, [key for key in keys if key not in written])
    return {
        key: cell_of(key, written[key].base + 1, written[key].value, transaction_id) if key in written else others[key]
        for key in keys
    }


def readable(connection: sqlite3.Connection, transaction_id: TransactionId, now_ms: int) -> Stored | None:
    """The transaction, if one may look from inside it. None if its time is over: then it is the writer's to end."""
    stored = load(connection, transaction_id)
    if stored is None:
        raise decide.not_found(transaction_id)
    return stored if decide.on_looking(stored, now_ms) is Step.GO_ON else None


def end_if_over(work: Work, transaction_id: TransactionId, now_ms: int) -> None:
    stored = load(work.connection, transaction_id)
    if stored is None:
        raise decide.not_found(transaction_id)
    if decide.on_looking(stored, now_ms) is Step.EXPIRE:
        raise end_expired(work, stored, now_ms)


def look(connection: sqlite3.Connection, stored: Stored, keys: Sequence[Key]) -> dict[Key, Cell]:
    """The cells as seen from inside, without a trace."""
    if stored.plan is None:
        return view(connection, stored.id, keys, staged_among(connection, stored.id, keys))
    # Prepared: what was staged is in the plan.
    writes, _ = decode_plan(stored.id, stored.plan)
    planned = {
        write.key: StagedCell(write.key, write.revision, True, json_text(write.key, write.value)) for write in writes
    }
    return view(connection, stored.id, keys, planned)


def page(connection: sqlite3.Connection, stored: Stored, prefix: str, after: str | None, limit: int) -> CellPage:
    """The live ones among the next keys, as seen from inside. (A prepared plan has a row for every key it names.)"""
    keys = keys_in(connection, stored.id, prefix, after, limit)
    cells = look(connection, stored, keys)
    return CellPage(tuple(cell for cell in cells.values() if cell.exists), keys[-1] if len(keys) == limit else None)


def stage(
    work: Work,
    transaction_id: TransactionId,
    operation_id: str,
    writes: Mapping[Key, str | None],
    planned_on: Mapping[Key, Seen],
    settings: KernelSettings,
    now_ms: int,
) -> None:
    operation = (transaction_id, operation_id)
    if work.execute("SELECT 1 FROM operations WHERE transaction_id = ? AND operation_id = ?", operation).fetchone():
        # Staged before, so it is in the plan even if that has been sealed since.
        return
    stored = _open(work, transaction_id, now_ms)
    work.execute("INSERT INTO operations (transaction_id, operation_id) VALUES (?, ?)", operation)
    keys = list(dict.fromkeys([*planned_on, *writes]))
    if not keys:
        return
    known = staged_among(work.connection, transaction_id, keys)
    began = work.execute("SELECT began FROM transactions WHERE id = ?", (transaction_id,)).fetchone()[0]
    bases = cells_as_of(work.connection, began, [key for key in keys if key not in known])
    _check_up_to_date(transaction_id, planned_on, known, bases)
    new = [key for key in bases if key in writes]
    if stored.isolation is Isolation.SERIALIZABLE:
        noted = [key for key in bases if key not in writes]
        work.executemany(
            "INSERT INTO staged (transaction_id, key, base, written) VALUES (?, ?, ?, 0)",
            [(transaction_id, key, bases[key].revision) for key in noted],
        )
        new += noted
    work.executemany(
        "INSERT INTO staged (transaction_id, key, base, written, value) VALUES (?, ?, ?, 1, ?) "
        "ON CONFLICT (transaction_id, key) DO UPDATE SET written = 1, value = excluded.value",
        [
            (transaction_id, key, known[key].base if key in known else bases[key].revision, value)
            for key, value in writes.items()
        ],
    )
    grown = staged_bytes(writes.values()) - staged_bytes(known[key].value for key in writes if key in known)
    _count(work, transaction_id, len(new), grown, settings)


def _check_up_to_date(
    transaction_id: TransactionId,
    planned_on: Mapping[Key, Seen],
    known: Mapping[Key, StagedCell],
    bases: Mapping[Key, Cell],
) -> None:
    """Whether every cell is staged, or not staged, as it was shown; and at the revision this transaction sees."""
    for key, seen in planned_on.items():
        now = known.get(key)
        if seen.outdated(now is not None and now.written, now.value if now is not None else None):
            raise staged_meanwhile(transaction_id, key)
        if not seen.staged and seen.revision != (now.base if now is not None else bases[key].revision):
            raise never_shown(transaction_id, key, seen.revision)


def seal(work: Work, transaction_id: TransactionId, answer: Value | None, now_ms: int) -> Transaction:
    stored = load(work.connection, transaction_id)
    if stored is None:
        raise decide.not_found(transaction_id)
    if decide.on_seal(stored, now_ms) is Step.EXPIRE:
        raise end_expired(work, stored, now_ms)
    if stored.state is State.OPEN:
        work.execute("UPDATE transactions SET sealed = 1 WHERE id = ?", (transaction_id,))
    return stored.sealed_plan(staged_cells(work.connection, transaction_id), answer)


def renew(work: Work, transaction_id: TransactionId, ttl_ms: int, prepared_ms: int, now_ms: int) -> TransactionRecord:
    """Let a transaction live for `ttl_ms` from now; a prepared one for at most `prepared_ms`."""
    stored = load(work.connection, transaction_id)
    if stored is None:
        raise decide.not_found(transaction_id)
    if decide.on_renew(stored, now_ms) is Step.EXPIRE:
        raise end_expired(work, stored, now_ms)
    expires_ms = now_ms + (min(ttl_ms, prepared_ms) if stored.state is State.PREPARED else ttl_ms)
    work.execute("UPDATE transactions SET expires_ms = max(expires_ms, ?) WHERE id = ?", (expires_ms, transaction_id))
    return _again(work, transaction_id)


def reads_leave_no_trace(stored: Stored | None, transaction_id: TransactionId, now_ms: int) -> bool:
    """Whether the transaction can be read from without writing anything. Else it is a job for the writer."""
    if stored is None:
        raise decide.not_found(transaction_id)
    return decide.on_staging(stored, now_ms) is Step.GO_ON and stored.isolation is Isolation.SNAPSHOT


def _open(work: Work, transaction_id: TransactionId, now_ms: int) -> Stored:
    stored = load(work.connection, transaction_id)
    if stored is None:
        raise decide.not_found(transaction_id)
    if decide.on_staging(stored, now_ms) is Step.EXPIRE:
        raise end_expired(work, stored, now_ms)
    return stored


def _count(work: Work, transaction_id: TransactionId, cells: int, grown: int, settings: KernelSettings) -> None:
    """Keep to the limits of a commit while staging, where the caller can still do something about it."""
    cell_count, value_bytes = work.execute(
        "UPDATE transactions SET cell_count = cell_count + ?, value_bytes = value_bytes + ? WHERE id = ? "
        "RETURNING cell_count, value_bytes",
        (cells, grown, transaction_id),
    ).fetchone()
    if cell_count > settings.max_cells:
        raise TooManyCells(
            f"transaction {transaction_id} would name {cell_count} cells; the limit is {settings.max_cells} (max_cells)"
        )
    check_total(value_bytes, settings)


def _again(work: Work, transaction_id: TransactionId) -> TransactionRecord:
    stored = load(work.connection, transaction_id)
    assert stored is not None
    return stored.public()

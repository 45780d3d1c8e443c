"""Reading the SQLite tables: cells, records, staged cells, and the past as an open transaction sees it.

Every function here is one look at the database; whoever needs several of them to agree calls them inside one database
transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias

import orjson

from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, CellPage, State, TransactionPage
from lakepact.stores.sql_codec import RECORD_COLUMNS, StagedCell, Stored, cell_of, key_range

_Row: TypeAlias = tuple[Key, int, str | None, str | None]

_MOST_SEEN: Final = 1_000
_LONGEST_SEEN: Final = 4_096
"""Characters of a value. Pointers, which are asked for most, have some hundreds."""

_FEW: Final = 8
_ONE: Final = "SELECT key, revision, value, writer FROM cells WHERE key = ?"
_OF_FEW: Final = [" UNION ALL ".join([_ONE] * count) for count in range(_FEW + 1)]
"""One statement, so one instant; and quicker than a list of keys, of which SQLite makes a table first."""


def _json(texts: Iterable[str]) -> str:
    # One parameter holds any number of keys, so one prepared statement serves every size of request.
    return orjson.dumps(list(texts)).decode()


class CellsSeen:
    """Cells as one connection has read them last.

    While nobody has written to the file since, they are as they were, and no row is read. After that a row that is the
    same to the letter is the same cell, and need not be decoded.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._version = -1
        self._current: dict[Key, Cell] = {}
        """What was read since the file is at this version."""

        self._seen: dict[Key, tuple[_Row, Cell]] = {}

    def read(self, keys: Iterable[Key], legal: Callable[[Iterable[Key]], Sequence[Key]]) -> dict[Key, Cell]:
        """These cells at one instant. `legal` looks at keys before they are read; those remembered have been."""
        # It is another one after every commit of another connection, and this one never writes. It is asked before the
        # rows are read: if somebody commits in between, they are newer than it, and the next look begins anew.
        [(version,)] = self._connection.execute("PRAGMA data_version").fetchall()
        current = self._current
        if version != self._version or len(current) >= _MOST_SEEN:
            # In this order, should something end it in between.
            current.clear()
            self._version = version
        try:
            return {key: current[key] for key in keys}
        except KeyError:
            found = read_cells(self._connection, legal(keys), self._decoded)
        for key, cell in found.items():
            if cell.value is None or key in self._seen:
                current[key] = cell
        return found

    def _decoded(self, row: _Row) -> Cell:
        seen = self._seen.get(row[0])
        if seen is not None and seen[0] == row:
            return seen[1]
        cell, text = cell_of(*row), row[2]
        if text is not None and len(text) <= _LONGEST_SEEN:
            if seen is None and len(self._seen) >= _MOST_SEEN:
                del self._seen[next(iter(self._seen))]
            self._seen[cell.key] = row, cell
        elif seen is not None:
            del self._seen[cell.key]
        return cell


def _decoded(row: _Row) -> Cell:
    return cell_of(*row)


def read_cells(
    connection: sqlite3.Connection, keys: Sequence[Key], decoded: Callable[[_Row], Cell] = _decoded
) -> dict[Key, Cell]:
    if not keys:
        return {}
    if len(keys) <= _FEW:
        # Prepared once for each of these sizes, and a third faster than taking JSON apart.
        rows = connection.execute(_OF_FEW[len(keys)], tuple(keys)).fetchall()
        if len(rows) == len(keys):
            return {row[0]: decoded(row) for row in rows}
    else:
        rows = connection.execute(
            "SELECT key, revision, value, writer FROM cells WHERE key IN (SELECT value FROM json_each(?))",
            (_json(keys),),
        ).fetchall()
    found = {row[0]: decoded(row) for row in rows}
    return {key: found.get(key) or Cell(key) for key in keys}


def revisions_and_locks(connection: sqlite3.Connection, keys: Iterable[str]) -> dict[str, tuple[int, str | None]]:
    """Revision and lock of those of these cells that have a row; the others are at revision 0 and free."""
    rows = connection.execute(
        "SELECT key, revision, locked_by FROM cells WHERE key IN (SELECT value FROM json_each(?))", (_json(keys),)
    )
    return {key: (revision, locked_by) for key, revision, locked_by in rows}


def scan_cells(connection: sqlite3.Connection, prefix: str, after: str | None, limit: int) -> CellPage:
    first, last = key_range(prefix, after)
    rows = connection.execute(
        "SELECT key, revision, value, writer FROM cells WHERE key > ? AND key < ? AND value IS NOT NULL "
        "ORDER BY key LIMIT ?",
        (first, last, limit),
    ).fetchall()
    return CellPage(tuple(cell_of(*row) for row in rows), rows[-1][0] if len(rows) == limit else None)


def keys_in(
    connection: sqlite3.Connection, transaction_id: TransactionId, prefix: str, after: str | None, limit: int
) -> list[Key]:
    """The next keys below a prefix that have a row or are staged, whatever is to be seen of them."""
    first, last = key_range(prefix, after)
    rows = connection.execute(
        "SELECT key FROM (SELECT key FROM cells WHERE key > ? AND key < ? ORDER BY key LIMIT ?) UNION "
        "SELECT key FROM staged WHERE transaction_id = ? AND written AND key > ? AND key < ? ORDER BY key LIMIT ?",
        (first, last, limit, transaction_id, first, last, limit),
    )
    return [Key(row[0]) for row in rows]


def load(connection: sqlite3.Connection, transaction_id: TransactionId) -> Stored | None:
    row = connection.execute(f"SELECT {RECORD_COLUMNS} FROM transactions WHERE id = ?", (transaction_id,)).fetchone()
    return Stored.of(row) if row is not None else None


def staged_cells(connection: sqlite3.Connection, transaction_id: TransactionId) -> list[StagedCell]:
    rows = connection.execute(
        "SELECT key, base, written, value FROM staged WHERE transaction_id = ? ORDER BY key", (transaction_id,)
    )
    return [StagedCell(key, base, bool(written), value) for key, base, written, value in rows]


def staged_among(
    connection: sqlite3.Connection, transaction_id: TransactionId, keys: Iterable[str]
) -> dict[Key, StagedCell]:
    """Those of these cells that the transaction has read or written."""
    rows = connection.execute(
        "SELECT key, base, written, value FROM staged "
        "WHERE transaction_id = ? AND key IN (SELECT value FROM json_each(?))",
        (transaction_id, _json(keys)),
    )
    return {key: StagedCell(key, base, bool(written), value) for key, base, written, value in rows}


def cells_as_of(connection: sqlite3.Connection, began: int, keys: Sequence[Key]) -> dict[Key, Cell]:
    """The cells as the open transaction with this number sees them."""
    found: dict[Key, Cell] = {}
    rows = connection.execute(
        "SELECT key, revision, value, writer, instant FROM cells WHERE key IN (SELECT value FROM json_each(?))",
        (_json(keys),),
    ).fetchall()
    for key, revision, value, writer, instant in rows:
        if instant <= began:
            found[key] = cell_of(key, revision, value, writer)
            continue
        older = connection.execute(
            "SELECT key, revision, value, writer FROM history WHERE key = ? AND instant <= ? "
            "ORDER BY revision DESC LIMIT 1",
            (key, began),
        ).fetchone()
        # No older row: the cell was made after the transaction began, since an overwritten one would have been kept.
        if older is not None:
            found[key] = cell_of(*older)
    return {key: found.get(key) or Cell(key) for key in keys}


def list_transactions(
    connection: sqlite3.Connection,
    states: Sequence[State],
    created_before_ms: int | None,
    after: str | None,
    limit: int,
) -> TransactionPage:
    conditions = ["id > ?"]
    parameters: list[str | int] = [after or ""]
    if states:
        conditions.append("state IN (SELECT value FROM json_each(?))")
        parameters.append(_json(states))
        if not any(state.final for state in states):
            conditions.append("decided_ms IS NULL")
    if created_before_ms is not None:
        conditions.append("created_ms < ?")
        parameters.append(created_before_ms)
    stored = [
        Stored.of(row)
        for row in connection.execute(
            f"SELECT {RECORD_COLUMNS} FROM transactions WHERE {' AND '.join(conditions)} ORDER BY id LIMIT ?",
            (*parameters, limit),
        )
    ]
    return TransactionPage(tuple(one.public() for one in stored), stored[-1].id if len(stored) == limit else None)

"""The SQLite file: its tables, its connections, and what its errors mean.

    cells         the present value of every cell, and the prepared transaction that holds it, if any
    history       values overwritten while an open transaction could still ask for them
    transactions  one row a transaction: the record
    staged        what open transactions have read and written
    operations    the staging calls that were acknowledged, so that each counts once
    instant       a counter that moves on whenever a transaction begins
    clock         one row: the watermark by which a clock that is wrong is noticed
    dl_*          the rows of Delta tables, which move with the cells (`sqlite_delta_schema`)

An open transaction reads as of its beginning. It takes the counter's value and moves it on by one; every cell row
carries the counter's value at its writing. So a row belongs to the past of exactly those open transactions whose
number is not smaller than its own, commits need not touch the counter, and nothing is copied to the history unless
somebody may look.
"""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from lakepact.errors import Contended, Damaged, LakepactError, StoreUnavailable, StoreUnsuitable, Unreadable
from lakepact.stores.sql_format import upgrades
from lakepact.stores.sqlite_delta_schema import DELTA_TABLES, PENDING_BY_REQUEST
from lakepact.this_user import may_not_write, this_user

APPLICATION_ID: Final = 0x4C616B65
"""Written into the file's header ("Lake"), so that we never make tables in somebody else's database."""

OLDEST_SQLITE: Final = (3, 38, 0)
"""The first release that has both upserts and JSON functions whatever it was built with."""

STEPS: Final = {
    1: """
    CREATE TABLE cells (
        key       TEXT NOT NULL PRIMARY KEY,
        revision  INTEGER NOT NULL,
        value     TEXT,
        writer    TEXT,
        instant   INTEGER NOT NULL,
        locked_by TEXT
    );
    CREATE INDEX cells_locked ON cells (locked_by) WHERE locked_by IS NOT NULL;

    CREATE TABLE history (
        key       TEXT NOT NULL,
        revision  INTEGER NOT NULL,
        value     TEXT,
        writer    TEXT,
        instant   INTEGER NOT NULL,
        replaced  INTEGER NOT NULL,
        PRIMARY KEY (key, revision)
    ) WITHOUT ROWID;

    CREATE TABLE transactions (
        id             TEXT NOT NULL PRIMARY KEY,
        state          TEXT NOT NULL,
        request_hash   TEXT NOT NULL,
        created_ms     INTEGER NOT NULL,
        plan           TEXT,
        answer         TEXT,
        moved          TEXT,
        expires_ms     INTEGER,
        retry_until_ms INTEGER,
        decided_ms     INTEGER,
        isolation      TEXT,
        properties     TEXT,
        sealed         INTEGER,
        began          INTEGER,
        cell_count     INTEGER NOT NULL DEFAULT 0,
        value_bytes    INTEGER NOT NULL DEFAULT 0
    );
    CREATE INDEX transactions_undecided ON transactions (state, began) WHERE decided_ms IS NULL;
    CREATE INDEX transactions_untrimmed ON transactions (decided_ms) WHERE plan IS NOT NULL;

    CREATE TABLE staged (
        transaction_id TEXT NOT NULL,
        key            TEXT NOT NULL,
        base           INTEGER NOT NULL,
        written        INTEGER NOT NULL,
        value          TEXT,
        PRIMARY KEY (transaction_id, key)
    ) WITHOUT ROWID;

    CREATE TABLE operations (
        transaction_id TEXT NOT NULL,
        operation_id   TEXT NOT NULL,
        PRIMARY KEY (transaction_id, operation_id)
    ) WITHOUT ROWID;

    CREATE TABLE instant (value INTEGER NOT NULL);
    INSERT INTO instant VALUES (1);
    """,
    2: DELTA_TABLES,
    3: PENDING_BY_REQUEST,
}

_CLOCK: Final = "CREATE TABLE IF NOT EXISTS clock (watermark TEXT NOT NULL)"
"""Beside the format: it is about the machine rather than about the content, and an older release ignores it."""


def connect(path: Path, busy_timeout_s: float) -> sqlite3.Connection:
    """A connection in autocommit mode: every transaction in these stores is begun and ended by name."""
    connection = sqlite3.connect(
        path, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False, cached_statements=256
    )
    # FULL makes every COMMIT wait for the disk: acknowledged means durable. Savepoint journals stay in memory.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA temp_store = MEMORY")
    return connection


def prepare_file(path: Path, busy_timeout_s: float) -> None:
    """Make the file ready for use: in WAL mode, with our tables, in a format this release can read."""
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        needed = ".".join(map(str, OLDEST_SQLITE))
        raise StoreUnsuitable(f"SQLite {sqlite3.sqlite_version} is too old; Lakepact needs {needed} or newer")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if isinstance(error, PermissionError):
            _check_allowed(path)
        raise StoreUnavailable(f"the folder of {path} cannot be made: {error.strerror}") from None
    _make_for_its_owner(path)
    try:
        connection = connect(path, busy_timeout_s)
        try:
            _check_owner(connection, path)
            _switch_to_wal(connection, path, busy_timeout_s)
            _upgrade(connection, path)
        finally:
            connection.close()
    except sqlite3.Error as error:
        if _is_denied(error):
            _check_allowed(path)
        raise explained(error, f"{path} could not be opened") from None


def _make_for_its_owner(path: Path) -> None:
    """A new file is nobody else's to read: it holds keys that tokens are signed with. SQLite gives the two beside it
    the same mode. Why it cannot be made is said when it is opened."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _check_allowed(path: Path) -> None:
    """SQLite says that it cannot open a file, and not that somebody may not."""
    if (reason := may_not_write(path)) is not None:
        raise StoreUnsuitable(
            f"{path} could not be opened: {reason}. Run this as the user who runs the server, or give this user the "
            f"right to write there (the folder too: SQLite keeps files beside its own)"
        )


def _check_owner(connection: sqlite3.Connection, path: Path) -> None:
    # The tables first: whoever is making ours at this moment commits them together with the mark.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    if tables and owner != APPLICATION_ID:
        raise StoreUnsuitable(f"{path} is the database of another application; name a file of its own for Lakepact")


def _switch_to_wal(connection: sqlite3.Connection, path: Path, busy_timeout_s: float) -> None:
    # The switch needs the file to itself, and SQLite does not wait for that by its busy timeout when several processes
    # open a new file at once. It happens once in the life of a file.
    deadline_s = time.monotonic() + busy_timeout_s
    while True:
        try:
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)
            continue
        if mode != "wal":
            raise StoreUnsuitable(f"{path} lies on a file system without shared memory; use a local disk")
        return


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        for reached, script in upgrades(found, STEPS, str(path)):
            for statement in script.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {reached}")
        connection.execute(_CLOCK)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# --- errors ---


def is_busy(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _is_denied(error: sqlite3.Error) -> bool:
    """Whether the file could not be opened, or not for writing."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)


def explained(error: sqlite3.Error, what: str) -> LakepactError:
    """What a SQLite error means for the caller, given that nothing was committed."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_busy(error):
        return Contended(f"{what}: another process is writing to the file and did not finish in time. Try again")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Unreadable(f"{what}: the file is damaged or no SQLite database ({error}). Restore it from a backup")
    if _is_denied(error):
        return StoreUnavailable(
            f"{what}: {error}. Nothing was applied; see that the disk can be written to, and that {this_user()} may "
            f"write to the file and its folder, and try again"
        )
    if isinstance(error, sqlite3.OperationalError):
        return StoreUnavailable(f"{what}: {error}. Nothing was applied; see to the disk and try again")
    return Damaged(f"{what}: {error}. The file contradicts itself; Lakepact stops here rather than guess")

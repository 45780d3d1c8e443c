"""Upkeep of the SQLite file: end what has expired, forget history nobody can ask for, trim and delete old records."""

from __future__ import annotations

import sqlite3

import orjson

from lakepact.kernel.identity import uuid7
from lakepact.kernel.model import Collection, Recovery, Value
from lakepact.kernel.settings import KernelSettings
from lakepact.stores.sql_codec import RECORD_COLUMNS, Stored
from lakepact.stores.sqlite_commit import end
from lakepact.stores.sqlite_writer import Work


def recover(work: Work, limit: int, now_ms: int) -> Recovery:
    """In a database nothing is ever half done; what remains is to end what has outlived its time."""
    rows = work.execute(
        f"SELECT {RECORD_COLUMNS} FROM transactions WHERE decided_ms IS NULL "
        "AND (expires_ms <= ? OR (state = 'retryable' AND retry_until_ms <= ?)) LIMIT ?",
        (now_ms, now_ms, limit + 1),
    ).fetchall()
    for row in rows[:limit]:
        end(work, Stored.of(row), now_ms)
    pruned = _prune_history(work, limit)
    more = len(rows) > limit or pruned == limit
    return Recovery(expired=min(len(rows), limit), left=max(0, len(rows) - limit), more=more)


def _prune_history(work: Work, limit: int) -> int:
    """Delete overwritten values that lie in the past of no open or prepared transaction any more."""
    return work.execute(
        """
        DELETE FROM history WHERE (key, revision) IN (
            SELECT key, revision FROM history h
            WHERE NOT EXISTS (
                SELECT 1 FROM transactions WHERE state IN ('open', 'prepared') AND decided_ms IS NULL
                AND began >= h.instant AND began < h.replaced
            ) LIMIT ?
        )""",
        (limit,),
    ).rowcount


def watermark(connection: sqlite3.Connection) -> Value | None:
    row = connection.execute("SELECT watermark FROM clock").fetchone()
    return None if row is None else orjson.loads(row[0])


def put_watermark(work: Work, value: Value, was: Value | None) -> bool:
    row = work.execute("SELECT watermark FROM clock").fetchone()
    if (None if row is None else orjson.loads(row[0])) != was:
        return False
    work.execute("DELETE FROM clock")
    work.execute("INSERT INTO clock VALUES (?)", (orjson.dumps(value).decode(),))
    return True


def collect(work: Work, limit: int, settings: KernelSettings, now_ms: int) -> Collection:
    """Trim finished records to a stub that still gives the answer; delete stubs far beyond the horizon."""
    trimmed = work.execute(
        "UPDATE transactions SET plan = NULL, properties = NULL WHERE rowid IN ("
        "SELECT rowid FROM transactions WHERE plan IS NOT NULL AND decided_ms < ? ORDER BY decided_ms LIMIT ?)",
        (now_ms - int(settings.trim_after_s * 1000), limit),
    ).rowcount
    kept_ms = settings.horizon_days * 86_400_000 + int(settings.slack_s * 1000)
    oldest_kept_ms = max(0, now_ms - kept_ms)
    deleted = work.execute(
        "DELETE FROM transactions WHERE rowid IN ("
        "SELECT rowid FROM transactions WHERE id < ? AND decided_ms < ? ORDER BY id LIMIT ?)",
        (uuid7(oldest_kept_ms, 0), oldest_kept_ms, limit),
    ).rowcount
    return Collection(trimmed=trimmed, deleted=deleted, more=limit in (trimmed, deleted))

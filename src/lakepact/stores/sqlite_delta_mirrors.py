"""How far engines have followed Delta tables, in SQLite. Jobs of the writer thread, but for what only looks."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

import orjson

from lakepact.delta.ports import MirrorRow, MirrorState, Outgoing
from lakepact.stores.sql_delta import MIRROR_COLUMNS, mirror_of, outgoing_of
from lakepact.stores.sqlite_publish import register_mirrors
from lakepact.stores.sqlite_writer import Work

_OWNED = "mirror_engine = ? AND lease_owner = ? AND lease_until_ms > ?"


def set_engines(work: Work, table_id: str, engines: Sequence[str]) -> None:
    register_mirrors(work, [(table_id, engine) for engine in engines])
    wanted = orjson.dumps(list(engines)).decode()
    work.execute(
        "UPDATE dl_mirrors SET state = 'off' "
        "WHERE table_id = ? AND mirror_engine NOT IN (SELECT value FROM json_each(?))",
        (table_id, wanted),
    )
    work.execute(
        "UPDATE dl_mirrors SET state = 'active', next_attempt_ms = 0 "
        "WHERE table_id = ? AND state = 'off' AND mirror_engine IN (SELECT value FROM json_each(?))",
        (table_id, wanted),
    )


def claim(
    work: Work,
    engine: str,
    owner: str,
    now_ms: int,
    until_ms: int,
    limit: int,
    tables: str | None,
    warehouse: str | None,
) -> list[MirrorRow]:
    found = work.execute(
        """
        SELECT m.table_id FROM dl_mirrors m JOIN dl_tables t ON t.table_id = m.table_id
        WHERE m.mirror_engine = ?1 AND m.state IN ('active', 'retrying') AND m.next_attempt_ms <= ?2
          AND m.mirrored_version < t.current_version AND t.state = 'live'
          AND (m.lease_owner IS NULL OR m.lease_owner = ?3 OR m.lease_until_ms <= ?2)
          AND (?4 IS NULL OR m.table_id IN (SELECT value FROM json_each(?4)))
          AND (?6 IS NULL OR t.warehouse = ?6)
        ORDER BY m.table_id LIMIT ?5""",
        (engine, now_ms, owner, tables, limit, warehouse),
    ).fetchall()
    work.executemany(
        "UPDATE dl_mirrors SET lease_owner = ?, lease_until_ms = ? WHERE table_id = ? AND mirror_engine = ?",
        [(owner, until_ms, row[0], engine) for row in found],
    )
    claimed = orjson.dumps([row[0] for row in found]).decode()
    rows = work.execute(
        f"SELECT {MIRROR_COLUMNS} FROM dl_mirrors m JOIN dl_tables t ON t.table_id = m.table_id "
        f"WHERE m.mirror_engine = ? AND m.table_id IN (SELECT value FROM json_each(?)) ORDER BY m.table_id",
        (engine, claimed),
    ).fetchall()
    return [mirror_of(row) for row in rows]


def hold(work: Work, engine: str, owner: str, now_ms: int, until_ms: int) -> int:
    return work.execute(
        f"UPDATE dl_mirrors SET lease_until_ms = ? WHERE {_OWNED}", (until_ms, engine, owner, now_ms)
    ).rowcount


def mirrored(work: Work, engine: str, owner: str, versions: Mapping[str, int], now_ms: int) -> list[str]:
    return [
        table_id
        for table_id, version in versions.items()
        if work.execute(
            f"UPDATE dl_mirrors SET mirrored_version = max(mirrored_version, ?), state = 'active', attempts = 0, "
            f"next_attempt_ms = 0, last_error = NULL, last_sync_ms = ?, lease_owner = NULL, lease_until_ms = NULL "
            f"WHERE table_id = ? AND {_OWNED}",
            (version, now_ms, table_id, engine, owner, now_ms),
        ).rowcount
    ]


def ended(
    work: Work,
    engine: str,
    owner: str,
    table_id: str,
    error: str,
    state: MirrorState,
    next_attempt_ms: int,
    now_ms: int,
) -> bool:
    return bool(
        work.execute(
            f"UPDATE dl_mirrors SET state = ?, attempts = attempts + 1, next_attempt_ms = ?, last_error = ?, "
            f"lease_owner = NULL, lease_until_ms = NULL WHERE table_id = ? AND {_OWNED}",
            (state.value, next_attempt_ms, error, table_id, engine, owner, now_ms),
        ).rowcount
    )


def retry(work: Work, table_id: str | None, engine: str | None) -> int:
    return work.execute(
        "UPDATE dl_mirrors SET state = 'active', attempts = 0, next_attempt_ms = 0 "
        "WHERE state IN ('retrying', 'conflict', 'dead') "
        "AND (?1 IS NULL OR table_id = ?1) AND (?2 IS NULL OR mirror_engine = ?2)",
        (table_id, engine),
    ).rowcount


def status(connection: sqlite3.Connection, table_id: str | None, limit: int) -> list[MirrorRow]:
    rows = connection.execute(
        f"SELECT {MIRROR_COLUMNS} FROM dl_mirrors m JOIN dl_tables t ON t.table_id = m.table_id "
        f"WHERE t.state = 'live' AND (?1 IS NULL OR m.table_id = ?1) ORDER BY m.table_id, m.mirror_engine LIMIT ?2",
        (table_id, limit),
    ).fetchall()
    return [mirror_of(row) for row in rows]


def outgoing(connection: sqlite3.Connection, warehouse: str, limit: int) -> list[Outgoing]:
    rows = connection.execute(
        "SELECT number, transaction_id, ict_ms, tables FROM dl_outbox WHERE warehouse = ? ORDER BY number LIMIT ?",
        (warehouse, limit),
    ).fetchall()
    return [outgoing_of(row) for row in rows]


def sent(work: Work, warehouse: str, number: int) -> None:
    work.execute("DELETE FROM dl_outbox WHERE warehouse = ? AND number <= ?", (warehouse, number))
    work.execute("UPDATE dl_cuts SET published = max(published, ?) WHERE warehouse = ?", (number, warehouse))

"""The rows of Delta tables in SQLite: `DeltaRows` over the file that has the cells.

Changes are jobs of the store's one writer thread, each all or nothing; readers have their own connections and one
instant each. The commit that makes rows visible is in `sqlite_publish`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import orjson

from lakepact.delta.actions import Remove
from lakepact.delta.ports import (
    ErrorRow,
    MirrorRow,
    MirrorState,
    Outgoing,
    Swept,
    TableChange,
    TableContents,
    TableRow,
    Totals,
    VersionActions,
    VersionRow,
)
from lakepact.delta.rows import COLUMNS, FILE_COLUMNS, FIRST_COLUMNS, EncodedChange, Files
from lakepact.errors import InvalidRequest
from lakepact.kernel.ports import Clock
from lakepact.stores import sqlite_delta_mirrors as mirrors
from lakepact.stores.sql_codec import storable_text
from lakepact.stores.sql_delta import (
    ERROR_COLUMNS,
    TABLE_COLUMNS,
    VERSION_COLUMNS,
    EndsMirrors,
    contents_of,
    encode_changes,
    error_of,
    not_live,
    removes_of,
    rows_gone,
    shortened,
    table_of,
    totals_of,
    version_of,
    with_actions,
)
from lakepact.stores.sqlite_publish import PUBLISHED
from lakepact.stores.sqlite_writer import Work

T = TypeVar("T")

# The versions are taken first and run outside: joined openly, SQLite would look for all files up to a version once a
# version.
_FILES: Final = f"""
    WITH v AS MATERIALIZED (
        SELECT version, transaction_id FROM dl_table_versions WHERE table_id = ?1 AND version <= ?2 AND adds > 0
        AND EXISTS (SELECT 1 FROM dl_table_versions WHERE table_id = ?1 AND version = ?2))
    SELECT {", ".join(f"a.{column}" for column in FILE_COLUMNS)} FROM v CROSS JOIN dl_add_files a
    ON a.table_id = ?1 AND a.version = v.version AND a.transaction_id = v.transaction_id
    WHERE a.removed_version IS NULL OR a.removed_version > ?2"""

_OF_TABLE: Final = "a.table_id = ?1 AND a.version = v.version AND a.transaction_id = v.transaction_id"
# What others have written into their logs may be no JSON, or say something else.
_RECORDS: Final = (
    "(CASE WHEN json_valid(a.stats) THEN CASE WHEN json_type(a.stats, '$.numRecords') = 'integer' "
    "THEN json_extract(a.stats, '$.numRecords') END END "
    "- coalesce(json_extract(a.deletion_vector, '$.cardinality'), 0))"
)
_SUMS: Final = f"count(a.path), coalesce(sum(a.size_bytes), 0), sum{_RECORDS}, count{_RECORDS}"
_TOTALS: Final = f"""
    WITH v AS MATERIALIZED (
        SELECT version, transaction_id FROM dl_table_versions WHERE table_id = ?1 AND version <= ?2 AND adds > 0)
    SELECT EXISTS (SELECT 1 FROM dl_table_versions WHERE table_id = ?1 AND version = ?2), {_SUMS}
    FROM v CROSS JOIN dl_add_files a ON {_OF_TABLE} WHERE a.removed_version IS NULL OR a.removed_version > ?2"""
_GROWTH: Final = f"""
    WITH v AS MATERIALIZED (
        SELECT version, transaction_id, removes FROM dl_table_versions
        WHERE table_id = ?1 AND version > ?2 AND version <= ?3)
    SELECT (SELECT count(*) = ?3 - ?2 AND total(removes) = 0 FROM v) AND total(a.replaces) = 0, {_SUMS}
    FROM v CROSS JOIN dl_add_files a ON {_OF_TABLE}"""

_INSERT: Final = {
    table: f"INSERT INTO {table} ({', '.join((*FIRST_COLUMNS, *columns))}) "
    f"VALUES ({', '.join('?' * (len(FIRST_COLUMNS) + len(columns)))})"
    for table, columns in COLUMNS.items()
}
_ACTIONS: Final = {
    table: f"WITH v AS MATERIALIZED (SELECT version, transaction_id FROM dl_table_versions "
    f"WHERE table_id = ?1 AND version > ?2 AND version <= ?3) "
    f"SELECT a.version, {', '.join(f'a.{column}' for column in columns)} FROM v CROSS JOIN {table} a "
    f"ON a.table_id = ?1 AND a.version = v.version AND a.transaction_id = v.transaction_id"
    for table, columns in COLUMNS.items()
}
_NEWEST: Final = {
    table: f"SELECT {', '.join(f'a.{column}' for column in COLUMNS[table])} FROM {table} a "
    f"WHERE a.table_id = ?1 AND a.version <= ?2 AND {PUBLISHED} ORDER BY a.version DESC LIMIT 1"
    for table in ("dl_metadata_updates", "dl_protocol_updates")
}
# SQLite answers the bare columns beside max() from the row that has the maximum.
_NEWEST_EACH: Final = {
    table: f"SELECT {', '.join(f'a.{column}' for column in COLUMNS[table])}, max(a.version) FROM {table} a "
    f"WHERE a.table_id = ?1 AND a.version <= ?2 AND {PUBLISHED} GROUP BY a.{COLUMNS[table][0]}"
    for table in ("dl_txn_actions", "dl_domain_metadata")
}


class Submit(Protocol):
    def __call__(self, run: Callable[[Work], T], /) -> Awaitable[T]: ...


class Look(Protocol):
    def __call__(self, look: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]: ...


class SqliteDelta(EndsMirrors):
    """`DeltaRows` on one SQLite file."""

    def __init__(self, submit: Submit, look: Look, clock: Clock) -> None:
        self._submit = submit
        self._look = look
        self._clock = clock

    # --- writing ---

    async def put(
        self,
        transaction_id: str,
        changes: Sequence[TableChange],
        *,
        request_hash: str = "",
        tombstones: bool = False,
    ) -> None:
        encoded = encode_changes(transaction_id, changes)
        now_ms = self._clock.now_ms()
        try:
            await self._submit(lambda work: _put(work, transaction_id, request_hash, encoded, tombstones, now_ms))
        except (UnicodeEncodeError, OverflowError) as error:
            raise InvalidRequest(f"an action holds what a database cannot: {error}") from None

    async def move(
        self, transaction_id: str, table_id: str, version: int, to_version: int, *, request_hash: str = ""
    ) -> None:
        await self._submit(lambda work: _move(work, transaction_id, request_hash, table_id, version, to_version))

    async def discard(self, transaction_id: str) -> None:
        await self._submit(lambda work: _discard(work, transaction_id))

    async def sweep(self, limit: int = 100, *, grace_s: float = 3_600.0) -> Swept:
        before_ms = self._clock.confirmed_ms() - int(grace_s * 1000)
        return await self._submit(lambda work: _sweep(work, limit, before_ms))

    async def purge(self, table_id: str, limit: int = 10_000) -> bool:
        return await self._submit(lambda work: _purge(work, table_id, limit))

    # --- open transactions ---

    async def stage(self, transaction_id: str, table_id: str, statement_id: str, actions: str) -> None:
        storable_text("statement_id", statement_id)
        now_ms = self._clock.now_ms()
        await self._submit(
            lambda work: work.execute(
                "INSERT INTO dl_staged_changes (transaction_id, table_id, statement_id, actions, staged_ms) "
                "SELECT ?1, ?2, ?3, ?4, ?5 WHERE NOT EXISTS ("
                "SELECT 1 FROM transactions WHERE id = ?1 AND decided_ms IS NOT NULL) ON CONFLICT DO NOTHING",
                (transaction_id, table_id, statement_id, actions, now_ms),
            )
        )

    async def staged(self, transaction_id: str) -> Mapping[str, Mapping[str, str]]:
        found: dict[str, dict[str, str]] = {}
        rows = await self._rows(
            "SELECT table_id, statement_id, actions FROM dl_staged_changes WHERE transaction_id = ? ORDER BY sequence",
            transaction_id,
        )
        for table_id, statement_id, actions in rows:
            found.setdefault(table_id, {})[statement_id] = actions
        return found

    # --- reading ---

    async def files(self, table_id: str, version: int) -> Files:
        return Files(await self._rows(_FILES, table_id, version))

    async def totals(self, table_id: str, version: int) -> Totals | None:
        return totals_of((await self._rows(_TOTALS, table_id, version))[0])

    async def growth(self, table_id: str, after: int, until: int) -> Totals | None:
        return totals_of((await self._rows(_GROWTH, table_id, after, until))[0])

    async def contents(self, table_id: str, version: int) -> TableContents:
        def look(connection: sqlite3.Connection) -> dict[str, list[Any]]:
            found = {
                table: connection.execute(statement, (table_id, version)).fetchall()
                for table, statement in _NEWEST.items()
            }
            for table, statement in _NEWEST_EACH.items():
                found[table] = [row[:-1] for row in connection.execute(statement, (table_id, version))]
            return found

        return contents_of(table_id, version, await self._look(look))

    async def since(self, table_id: str, after: int, until: int) -> Sequence[VersionActions]:
        place = (table_id, after, until)

        def look(connection: sqlite3.Connection) -> tuple[list[Any], dict[str, list[Any]]]:
            versions = connection.execute(
                f"SELECT {VERSION_COLUMNS} FROM dl_table_versions "
                f"WHERE table_id = ? AND version > ? AND version <= ? ORDER BY version",
                place,
            ).fetchall()
            return versions, {
                table: connection.execute(statement, place).fetchall() for table, statement in _ACTIONS.items()
            }

        return with_actions(*await self._look(look))

    async def removed(self, table_id: str, after: int, until: int) -> Sequence[Remove]:
        rows = await self._rows(_ACTIONS["dl_remove_files"] + " ORDER BY v.version", table_id, after, until)
        return removes_of(rows)

    async def actions(self, table_id: str, version: int) -> VersionActions | None:
        found = await self.since(table_id, version - 1, version)
        return found[0] if found else None

    async def versions(self, table_id: str, before: int | None = None, limit: int = 100) -> Sequence[VersionRow]:
        rows = await self._rows(
            f"SELECT {VERSION_COLUMNS} FROM dl_table_versions WHERE table_id = ? AND version < ? "
            f"ORDER BY version DESC LIMIT ?",
            table_id,
            before if before is not None else 2**62,
            limit,
        )
        return [version_of(row) for row in rows]

    async def version_at(self, table_id: str, timestamp_ms: int) -> int | None:
        rows = await self._rows(
            "SELECT version FROM dl_table_versions WHERE table_id = ? AND ict_ms <= ? ORDER BY version DESC LIMIT 1",
            table_id,
            timestamp_ms,
        )
        return rows[0][0] if rows else None

    async def table(self, table_id: str) -> TableRow | None:
        rows = await self._rows(f"SELECT {TABLE_COLUMNS} FROM dl_tables WHERE table_id = ?", table_id)
        return table_of(rows[0]) if rows else None

    async def tables(
        self, warehouse: str, *, after: str = "", limit: int = 10_000, dropped: bool = False
    ) -> Sequence[TableRow]:
        rows = await self._rows(
            f"SELECT {TABLE_COLUMNS} FROM dl_tables WHERE warehouse = ? AND state = ? AND table_id > ? "
            f"ORDER BY table_id LIMIT ?",
            warehouse,
            "dropped" if dropped else "live",
            after,
            limit,
        )
        return [table_of(row) for row in rows]

    # --- what was refused ---

    async def log_errors(self, rows: Sequence[ErrorRow], *, keep: int = 10_000) -> None:
        await self._submit(lambda work: _log_errors(work, rows, keep))

    async def errors(self, limit: int = 100, *, table_id: str | None = None) -> Sequence[ErrorRow]:
        rows = await self._rows(
            f"SELECT {ERROR_COLUMNS}, timestamp FROM transaction_error_log "
            f"WHERE ?1 IS NULL OR table_id = ?1 ORDER BY sequence DESC LIMIT ?2",
            table_id,
            limit,
        )
        return [error_of(row) for row in rows]

    # --- mirrors ---

    async def set_mirrors(self, table_id: str, engines: Iterable[str]) -> None:
        wanted = list(engines)
        await self._submit(lambda work: mirrors.set_engines(work, table_id, wanted))

    async def claim(
        self,
        engine: str,
        owner: str,
        lease_s: float,
        limit: int = 100,
        *,
        tables: Iterable[str] | None = None,
        warehouse: str | None = None,
    ) -> Sequence[MirrorRow]:
        now_ms = self._clock.now_ms()
        until_ms = now_ms + int(lease_s * 1000)
        wanted = None if tables is None else orjson.dumps(list(tables)).decode()
        return await self._submit(
            lambda work: mirrors.claim(work, engine, owner, now_ms, until_ms, limit, wanted, warehouse)
        )

    async def hold(self, engine: str, owner: str, lease_s: float) -> int:
        now_ms = self._clock.now_ms()
        return await self._submit(lambda work: mirrors.hold(work, engine, owner, now_ms, now_ms + int(lease_s * 1000)))

    async def mirrored(self, engine: str, owner: str, versions: Mapping[str, int]) -> Sequence[str]:
        now_ms = self._clock.now_ms()
        return await self._submit(lambda work: mirrors.mirrored(work, engine, owner, versions, now_ms))

    async def _ended(
        self, engine: str, owner: str, table_id: str, error: str, state: MirrorState, next_attempt_ms: int
    ) -> bool:
        now_ms = self._clock.now_ms()
        return await self._submit(
            lambda work: mirrors.ended(work, engine, owner, table_id, error, state, next_attempt_ms, now_ms)
        )

    async def retry(self, *, table_id: str | None = None, engine: str | None = None) -> int:
        return await self._submit(lambda work: mirrors.retry(work, table_id, engine))

    async def mirror_status(self, *, table_id: str | None = None, limit: int = 10_000) -> Sequence[MirrorRow]:
        return await self._look(lambda connection: mirrors.status(connection, table_id, limit))

    async def outgoing(self, warehouse: str, limit: int = 1_000) -> Sequence[Outgoing]:
        return await self._look(lambda connection: mirrors.outgoing(connection, warehouse, limit))

    async def sent(self, warehouse: str, number: int) -> None:
        await self._submit(lambda work: mirrors.sent(work, warehouse, number))

    # --- how ---

    async def _rows(self, statement: str, *arguments: Any) -> list[Any]:
        return await self._look(lambda connection: connection.execute(statement, arguments).fetchall())


# --- jobs ---


def _put(
    work: Work,
    transaction_id: str,
    request_hash: str,
    changes: Iterable[EncodedChange],
    tombstones: bool,
    now_ms: int,
) -> None:
    written: list[EncodedChange] = []
    for change in changes:
        place = (transaction_id, change.table_id, change.version)
        if _is_published(work, place):
            continue
        if work.execute(_TAKE, place).rowcount:
            _delete_rows(work, place)
        work.execute(
            "INSERT INTO dl_pending (transaction_id, table_id, version, adds, removes, put_ms, request_hash) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*place, change.adds, change.removes, now_ms, request_hash),
        )
        for table, rows in change.rows.items():
            work.executemany(_INSERT[table], rows)
        written.append(change)
    for change in written:
        _verify(work, transaction_id, change.table_id, change.version, tombstones)


def _verify(work: Work, transaction_id: str, table_id: str, version: int, tombstones: bool = False) -> None:
    """Removed files must be live in the version before; added ones may stand for files that are, and then end them."""
    place = (table_id, version, transaction_id)
    missing = work.execute(_MISSING, place).fetchone()
    if missing is not None and not tombstones:
        raise not_live(table_id, version, missing[0])
    work.execute(_REPLACING, place)
    work.execute(
        "UPDATE dl_pending SET replaces = EXISTS (SELECT 1 FROM dl_add_files "
        "WHERE table_id = ?1 AND version = ?2 AND transaction_id = ?3 AND replaces) "
        "WHERE table_id = ?1 AND version = ?2 AND transaction_id = ?3",
        place,
    )


_TAKE: Final = "DELETE FROM dl_pending WHERE transaction_id = ? AND table_id = ? AND version = ?"
# Several versions of one transaction build on each other, so its own rows count among those before.
_LIVE_BEFORE: Final = (
    "SELECT 1 FROM dl_add_files a WHERE a.table_id = n.table_id AND a.path = n.path AND a.dv_id = n.dv_id "
    f"AND a.version < n.version AND a.removed_version IS NULL AND (a.transaction_id = ?3 OR {PUBLISHED})"
)
_MISSING: Final = (
    f"SELECT n.path FROM dl_remove_files n WHERE n.table_id = ?1 AND n.version = ?2 AND n.transaction_id = ?3 "
    f"AND NOT EXISTS ({_LIVE_BEFORE}) LIMIT 1"
)
_REPLACING: Final = (
    f"UPDATE dl_add_files AS n SET replaces = EXISTS ({_LIVE_BEFORE}) "
    f"WHERE n.table_id = ?1 AND n.version = ?2 AND n.transaction_id = ?3 AND n.replaces <> EXISTS ({_LIVE_BEFORE})"
)


def _move(work: Work, transaction_id: str, request_hash: str, table_id: str, version: int, to_version: int) -> None:
    planned: dict[int, str] = dict(
        work.execute(
            "SELECT version, request_hash FROM dl_pending "
            "WHERE transaction_id = ? AND table_id = ? AND version IN (?, ?)",
            (transaction_id, table_id, version, to_version),
        ).fetchall()
    )
    if _is_published(work, (transaction_id, table_id, to_version)):
        return
    if planned.get(version, planned.get(to_version)) != request_hash:
        raise rows_gone(transaction_id, table_id, version)
    if version != to_version and version in planned:
        # What an earlier attempt has left there gives way. (If only that is there, this has been done before.)
        if to_version in planned:
            work.execute(_TAKE, (transaction_id, table_id, to_version))
            _delete_rows(work, (transaction_id, table_id, to_version))
        for table in ("dl_pending", *COLUMNS):
            work.execute(
                f"UPDATE {table} SET version = ? WHERE transaction_id = ? AND table_id = ? AND version = ?",
                (to_version, transaction_id, table_id, version),
            )
    _verify(work, transaction_id, table_id, to_version)


def _is_published(work: Work, place: tuple[str, str, int]) -> bool:
    """Whether this transaction has published this version: another attempt under the same id was quicker."""
    row = work.execute(
        "SELECT 1 FROM dl_table_versions WHERE transaction_id = ? AND table_id = ? AND version = ?", place
    ).fetchone()
    return row is not None


def _delete_rows(work: Work, place: tuple[str, str, int]) -> None:
    for table in COLUMNS:
        work.execute(f"DELETE FROM {table} WHERE transaction_id = ? AND table_id = ? AND version = ?", place)


def _discard(work: Work, transaction_id: str) -> None:
    """A planned version has a row in `dl_pending` until it is published, so nothing published is found here."""
    taken = work.execute(
        "DELETE FROM dl_pending WHERE transaction_id = ? RETURNING transaction_id, table_id, version", (transaction_id,)
    ).fetchall()
    for place in taken:
        _delete_rows(work, place)
    work.execute("DELETE FROM dl_staged_changes WHERE transaction_id = ?", (transaction_id,))


def _sweep(work: Work, limit: int, before_ms: int) -> Swept:
    found = work.execute(
        "SELECT transaction_id FROM ("
        "SELECT transaction_id, max(put_ms) AS at_ms FROM dl_pending GROUP BY transaction_id UNION ALL "
        "SELECT transaction_id, max(staged_ms) FROM dl_staged_changes GROUP BY transaction_id) "
        "LEFT JOIN transactions ON id = transaction_id GROUP BY transaction_id "
        "HAVING max(decided_ms IS NOT NULL) OR (max(id) IS NULL AND max(at_ms) < ?) LIMIT ?",
        (before_ms, limit + 1),
    ).fetchall()
    for row in found[:limit]:
        _discard(work, row[0])
    return Swept(min(len(found), limit), more=len(found) > limit)


def _purge(work: Work, table_id: str, limit: int) -> bool:
    state = work.execute("SELECT state FROM dl_tables WHERE table_id = ?", (table_id,)).fetchone()
    if state is None or state[0] != "dropped":
        return False
    left = limit
    for table in COLUMNS:
        which = f"rowid IN (SELECT rowid FROM {table} WHERE table_id = ? LIMIT ?)"
        left -= work.execute(f"DELETE FROM {table} WHERE {which}", (table_id, left)).rowcount
        if left <= 0:
            return True
    for table in ("dl_pending", "dl_mirrors", "dl_table_versions", "dl_tables"):
        work.execute(f"DELETE FROM {table} WHERE table_id = ?", (table_id,))
    return False


def _log_errors(work: Work, rows: Sequence[ErrorRow], keep: int) -> None:
    work.executemany(
        f"INSERT INTO transaction_error_log ({ERROR_COLUMNS}, timestamp) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                row.txn_id,
                row.table_id,
                row.expected_version,
                row.actual_version,
                row.error_type,
                shortened(row.error_message),
                row.timestamp_ms,
            )
            for row in rows
        ],
    )
    work.execute(
        "DELETE FROM transaction_error_log WHERE sequence <= (SELECT max(sequence) FROM transaction_error_log) - ?",
        (keep,),
    )

"""The rows of Delta tables in PostgreSQL: `DeltaRows` over the schema that has the cells.

Rows are put with COPY in a transaction of their own that does not wait for the disk: the commit that publishes them
comes later in the same log, and waits. Everything else is one statement. The commit itself is in
`postgres_delta_functions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import asyncpg

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
from lakepact.delta.rows import COLUMNS, FIRST_COLUMNS, EncodedChange, Files, Row
from lakepact.errors import InvalidRequest
from lakepact.stores.postgres_call import gone
from lakepact.stores.postgres_delta_statements import DeltaStatements
from lakepact.stores.postgres_session import Database
from lakepact.stores.sql_codec import storable_text
from lakepact.stores.sql_delta import (
    EndsMirrors,
    contents_of,
    encode_changes,
    error_of,
    mirror_of,
    not_live,
    outgoing_of,
    removes_of,
    shortened,
    table_of,
    totals_of,
    version_of,
    with_actions,
)

_FOREVER: Final = 2**62


class PostgresDelta(EndsMirrors):
    """`DeltaRows` on a PostgreSQL schema."""

    def __init__(self, database: Database, schema: str) -> None:
        self._database = database
        self._schema = schema
        self._clock = database.clock
        self._statements = DeltaStatements(schema)

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
        if not encoded:
            return

        await self._working(
            transaction_id, lambda connection: self._put(connection, transaction_id, request_hash, encoded, tombstones)
        )

    async def _put(
        self,
        connection: Any,
        transaction_id: str,
        request_hash: str,
        changes: Sequence[EncodedChange],
        tombstones: bool,
    ) -> None:
        # Every statement has a time limit of its own, also those that begin and end: a dead connection says nothing.
        silence_s = self._database.silence_s
        await connection.execute("BEGIN", timeout=silence_s)
        try:
            wanted = await connection.fetchval(
                self._statements.put,
                transaction_id,
                request_hash,
                self._clock.now_ms(),
                [one.table_id for one in changes],
                [one.version for one in changes],
                [one.adds for one in changes],
                [one.removes for one in changes],
                timeout=silence_s,
            )
            written = [one for one, is_wanted in zip(changes, wanted, strict=True) if is_wanted]
            for table, rows in _by_table(written):
                await connection.copy_records_to_table(
                    table,
                    schema_name=self._schema,
                    columns=(*FIRST_COLUMNS, *COLUMNS[table]),
                    records=rows,
                    timeout=silence_s,
                )
            # A first version has nothing before it to remove or to replace.
            checked = [one for one in written if one.version > 0 and (one.adds or one.removes)]
            if checked:
                await connection.execute(
                    self._statements.verify,
                    transaction_id,
                    [one.table_id for one in checked],
                    [one.version for one in checked],
                    tombstones,
                    timeout=silence_s,
                )
        except BaseException:
            # If it cannot be said, the connection is of no more use, and the server ends what it had begun.
            try:
                await connection.execute("ROLLBACK", timeout=silence_s)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, TimeoutError):
                connection.terminate()
            raise
        await connection.execute("COMMIT", timeout=silence_s)

    async def move(
        self, transaction_id: str, table_id: str, version: int, to_version: int, *, request_hash: str = ""
    ) -> None:
        await self._working(
            transaction_id,
            lambda connection: connection.execute(
                self._statements.move,
                transaction_id,
                request_hash,
                table_id,
                version,
                to_version,
                timeout=self._database.silence_s,
            ),
        )

    async def _working(self, transaction_id: str, work: Any) -> None:
        try:
            await self._database.call().work(work)
        except (asyncpg.DataError, UnicodeEncodeError, OverflowError) as error:
            raise InvalidRequest(f"an action holds what PostgreSQL cannot store: {error}") from None
        except asyncpg.PostgresError as error:
            if error.sqlstate == "LP008":
                raise gone(transaction_id, error) from None
            if error.sqlstate == "LP009":
                version, _, table_id = str(error.detail).partition(" ")
                raise not_live(table_id, int(version), str(error.hint)) from None
            raise

    async def discard(self, transaction_id: str) -> None:
        await self._value(self._statements.discard, [transaction_id])

    async def sweep(self, limit: int = 100, *, grace_s: float = 3_600.0) -> Swept:
        before_ms = self._clock.confirmed_ms() - int(grace_s * 1000)
        found = [row[0] for row in await self._rows(self._statements.unpublished, before_ms, limit + 1)]
        if found:
            await self._value(self._statements.discard, found[:limit])
        return Swept(min(len(found), limit), more=len(found) > limit)

    async def purge(self, table_id: str, limit: int = 10_000) -> bool:
        return bool(await self._value(self._statements.purge, table_id, limit))

    # --- open transactions ---

    async def stage(self, transaction_id: str, table_id: str, statement_id: str, actions: str) -> None:
        storable_text("statement_id", statement_id)
        try:
            await self._rows(
                self._statements.stage, transaction_id, table_id, statement_id, actions, self._clock.now_ms()
            )
        except (asyncpg.DataError, UnicodeEncodeError) as error:
            raise InvalidRequest(f"what is staged cannot be stored: {error}") from None

    async def staged(self, transaction_id: str) -> Mapping[str, Mapping[str, str]]:
        found: dict[str, dict[str, str]] = {}
        for table_id, statement_id, actions in await self._rows(self._statements.staged, transaction_id):
            found.setdefault(table_id, {})[statement_id] = actions
        return found

    # --- reading ---

    async def files(self, table_id: str, version: int) -> Files:
        return Files(await self._rows(self._statements.files, table_id, version))

    async def totals(self, table_id: str, version: int) -> Totals | None:
        return totals_of((await self._rows(self._statements.totals, table_id, version))[0])

    async def growth(self, table_id: str, after: int, until: int) -> Totals | None:
        return totals_of((await self._rows(self._statements.growth, table_id, after, until))[0])

    async def contents(self, table_id: str, version: int) -> TableContents:
        call = self._database.call()
        rows = {
            table: await call.rows(statement, table_id, version) for table, statement in self._statements.newest.items()
        }
        return contents_of(table_id, version, rows)

    async def since(self, table_id: str, after: int, until: int) -> Sequence[VersionActions]:
        call = self._database.call()
        versions = await call.rows(self._statements.since, table_id, after, until)
        if not versions:
            return ()
        # What is published does not change, so these need not be of one instant; but they must not be of a later one.
        until = versions[-1]["version"]
        rows = {
            table: await call.rows(statement, table_id, after, until)
            for table, statement in self._statements.actions.items()
        }
        return with_actions(versions, rows)

    async def removed(self, table_id: str, after: int, until: int) -> Sequence[Remove]:
        return removes_of(await self._rows(self._statements.removed, table_id, after, until))

    async def actions(self, table_id: str, version: int) -> VersionActions | None:
        found = await self.since(table_id, version - 1, version)
        return found[0] if found else None

    async def versions(self, table_id: str, before: int | None = None, limit: int = 100) -> Sequence[VersionRow]:
        before = before if before is not None else _FOREVER
        return [version_of(row) for row in await self._rows(self._statements.versions, table_id, before, limit)]

    async def version_at(self, table_id: str, timestamp_ms: int) -> int | None:
        found: int | None = await self._value(self._statements.version_at, table_id, timestamp_ms)
        return found

    async def table(self, table_id: str) -> TableRow | None:
        rows = await self._rows(self._statements.table, table_id)
        return table_of(rows[0]) if rows else None

    async def tables(
        self, warehouse: str, *, after: str = "", limit: int = 10_000, dropped: bool = False
    ) -> Sequence[TableRow]:
        state = "dropped" if dropped else "live"
        return [table_of(row) for row in await self._rows(self._statements.tables, warehouse, state, after, limit)]

    # --- what was refused ---

    async def log_errors(self, rows: Sequence[ErrorRow], *, keep: int = 10_000) -> None:
        await self._value(
            self._statements.log_errors,
            [row.txn_id for row in rows],
            [row.table_id for row in rows],
            [row.expected_version for row in rows],
            [row.actual_version for row in rows],
            [row.error_type for row in rows],
            [shortened(row.error_message) for row in rows],
            [row.timestamp_ms for row in rows],
            keep,
        )

    async def errors(self, limit: int = 100, *, table_id: str | None = None) -> Sequence[ErrorRow]:
        return [error_of(row) for row in await self._rows(self._statements.errors, table_id, limit)]

    # --- mirrors ---

    async def set_mirrors(self, table_id: str, engines: Iterable[str]) -> None:
        await self._value(self._statements.set_mirrors, table_id, list(engines))

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
        wanted = None if tables is None else list(tables)
        rows = await self._rows(
            self._statements.claim, engine, owner, now_ms, now_ms + int(lease_s * 1000), limit, wanted, warehouse
        )
        return sorted((mirror_of(row) for row in rows), key=lambda row: row.table_id)

    async def hold(self, engine: str, owner: str, lease_s: float) -> int:
        now_ms = self._clock.now_ms()
        return int(await self._value(self._statements.hold, engine, owner, now_ms, now_ms + int(lease_s * 1000)))

    async def mirrored(self, engine: str, owner: str, versions: Mapping[str, int]) -> Sequence[str]:
        tables = sorted(versions)
        reached = [versions[table] for table in tables]
        rows = await self._rows(self._statements.mirrored, engine, owner, self._clock.now_ms(), tables, reached)
        return [row[0] for row in rows]

    async def _ended(
        self, engine: str, owner: str, table_id: str, error: str, state: MirrorState, next_attempt_ms: int
    ) -> bool:
        now_ms = self._clock.now_ms()
        return bool(
            await self._value(
                self._statements.ended,
                engine,
                owner,
                now_ms,
                table_id,
                state.value,
                next_attempt_ms,
                error,
            )
        )

    async def retry(self, *, table_id: str | None = None, engine: str | None = None) -> int:
        return int(await self._value(self._statements.retry, table_id, engine))

    async def mirror_status(self, *, table_id: str | None = None, limit: int = 10_000) -> Sequence[MirrorRow]:
        return [mirror_of(row) for row in await self._rows(self._statements.mirror_status, table_id, limit)]

    async def outgoing(self, warehouse: str, limit: int = 1_000) -> Sequence[Outgoing]:
        await self._value(self._statements.number, warehouse)
        return [outgoing_of(row) for row in await self._rows(self._statements.outgoing, warehouse, limit)]

    async def sent(self, warehouse: str, number: int) -> None:
        await self._rows(self._statements.sent, warehouse, number)

    # --- how ---

    async def _rows(self, statement: str, *arguments: Any) -> Any:
        return await self._database.call().rows(statement, *arguments)

    async def _value(self, statement: str, *arguments: Any) -> Any:
        return await self._database.call().value(statement, *arguments)


def _by_table(changes: Iterable[EncodedChange]) -> list[tuple[str, list[Row]]]:
    """All rows of each table together: one COPY each, whatever the number of versions."""
    together: dict[str, list[Row]] = {}
    for change in changes:
        for table, rows in change.rows.items():
            together.setdefault(table, []).extend(rows)
    return sorted(together.items())

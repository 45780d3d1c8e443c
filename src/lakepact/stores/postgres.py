"""Cells in PostgreSQL: for many stateless processes over one database.

A commit is one round trip: one call of a function that does it all in one database transaction
(`postgres_functions`). A read is one statement, so one snapshot, so one consistent cut. What the row of a transaction
means is decided in `sql_decide`, as for SQLite.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode

from lakepact.delta.ports import DeltaRows
from lakepact.errors import InvalidSetting
from lakepact.kernel.checks import check_id, check_limit, check_ttl
from lakepact.kernel.identity import TransactionId, first_id_of, parse_transaction_id, uuid7
from lakepact.kernel.keys import Key
from lakepact.kernel.model import (
    Cell,
    CellPage,
    Collection,
    CommitResult,
    Committed,
    Failed,
    Isolation,
    PrepareResult,
    Recovery,
    State,
    Transaction,
    TransactionPage,
    TransactionRecord,
    Value,
)
from lakepact.kernel.ports import Clock, Rng, StoreTime
from lakepact.kernel.seen import check_seen
from lakepact.kernel.settings import KernelSettings
from lakepact.stores.postgres_commit import Deciding
from lakepact.stores.postgres_delta import PostgresDelta
from lakepact.stores.postgres_schema import prepare_schema
from lakepact.stores.postgres_session import Database
from lakepact.stores.postgres_staging import Staging
from lakepact.stores.postgres_statements import Statements
from lakepact.stores.sql_codec import (
    Stored,
    cell_of,
    encode_answer,
    encode_properties,
    encode_staged,
    encode_transaction,
    key_range,
    legal_key,
    legal_keys,
    pass_size,
    storable_text,
)

CONNECTIONS: Final = 16
"""Connections a process keeps at most. Each is one commit at a time."""

_FOREVER: Final = 2**62


class PostgresCells:
    """`CellStore` on a PostgreSQL database. Make it with `open`."""

    def __init__(self, database: Database, schema: str, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._settings = database.settings
        self._statements = Statements(schema)
        self.delta: DeltaRows = PostgresDelta(database, schema)
        """The rows of Delta tables, in the same schema."""

    @classmethod
    async def open(
        cls,
        url: str,
        settings: KernelSettings,
        clock: Clock,
        rng: Rng,
        *,
        schema: str = "lakepact",
        connections: int = CONNECTIONS,
    ) -> PostgresCells:
        """Connect, and create or upgrade the schema if need be.

        `schema` and `connections` may also be given in the URL's query: `postgresql://host/db?schema=lakepact`.
        """
        dsn, schema, connections = _parted(url, schema, connections)
        database = await Database.connect(dsn, settings, clock, rng, connections=connections)
        try:
            await database.with_connection(lambda connection: prepare_schema(connection, schema))
        except BaseException:
            await database.close()
            raise
        return cls(database, schema, clock)

    async def close(self) -> None:
        await self._database.close()

    # --- cells ---

    async def read(self, keys: Iterable[Key]) -> Mapping[Key, Cell]:
        wanted = legal_keys(keys, self._settings)
        rows = await self._database.call().rows(self._statements.read, wanted)
        found = {row[0]: cell_of(*row) for row in rows}
        return {key: found.get(key) or Cell(key) for key in wanted}

    async def scan(self, prefix: str, after: str | None = None, limit: int = 100) -> CellPage:
        self._check_scan(prefix, after, limit)
        first, last = key_range(prefix, after)
        rows = await self._database.call().rows(self._statements.scan, first, last, limit)
        return CellPage(tuple(cell_of(*row) for row in rows), rows[-1][0] if len(rows) == limit else None)

    def _check_scan(self, prefix: str, after: str | None, limit: int) -> None:
        check_limit(limit, self._settings)
        if prefix:
            legal_key(prefix, self._settings)
        if after is not None:
            storable_text("after", after)

    async def commit(self, transaction: Transaction, *, settle_conflict: bool = True) -> CommitResult:
        request = encode_transaction(transaction, self._settings, self._clock.now_ms())
        return await self._deciding(request.id).commit(request, settle_conflict)

    async def prepare(self, transaction: Transaction, *, settle_conflict: bool = True) -> PrepareResult:
        request = encode_transaction(transaction, self._settings, self._clock.now_ms())
        return await self._deciding(request.id).prepare(request, settle_conflict)

    async def fail(self, transaction_id: TransactionId, request_hash: str, answer: Value) -> Committed | Failed:
        checked_id = check_id(transaction_id, self._settings, self._clock.now_ms())
        storable_text("request_hash", request_hash)
        encoded = encode_answer(answer, self._settings) or "{}"
        return await self._deciding(checked_id).fail(request_hash, encoded, answer)

    async def lookup(self, transaction_id: TransactionId) -> TransactionRecord | None:
        rows = await self._database.call().rows(self._statements.load, parse_transaction_id(transaction_id))
        return Stored.of(rows[0]).public() if rows else None

    # --- open transactions ---

    async def begin(
        self,
        transaction_id: TransactionId,
        *,
        request_hash: str = "",
        ttl_s: float | None = None,
        isolation: Isolation = Isolation.SERIALIZABLE,
        properties: Mapping[str, str] | None = None,
    ) -> TransactionRecord:
        checked_id = check_id(transaction_id, self._settings, self._clock.now_ms())
        storable_text("request_hash", request_hash)
        lifetime_s = check_ttl(ttl_s, self._settings)
        encoded = encode_properties(properties)
        return await self._staging(checked_id).begin(request_hash, lifetime_s, isolation, encoded)

    async def read_in(
        self, transaction_id: TransactionId, keys: Iterable[Key], *, note: bool = True
    ) -> Mapping[Key, Cell]:
        staging = self._staging(parse_transaction_id(transaction_id))
        wanted = legal_keys(keys, self._settings)
        return await (staging.read_in(wanted) if note else staging.look(wanted))

    async def scan_in(
        self, transaction_id: TransactionId, prefix: str, after: str | None = None, limit: int = 100
    ) -> CellPage:
        checked_id = parse_transaction_id(transaction_id)
        self._check_scan(prefix, after, limit)
        return await self._staging(checked_id).scan(prefix, after, limit)

    async def stage(
        self,
        transaction_id: TransactionId,
        operation_id: str,
        writes: Mapping[Key, Value | None],
        *,
        seen: Mapping[Key, Cell] | None = None,
    ) -> None:
        checked_id = parse_transaction_id(transaction_id)
        storable_text("operation_id", operation_id)
        encoded = encode_staged(writes, self._settings)
        planned_on = check_seen(checked_id, seen, self._settings)
        await self._staging(checked_id).stage(operation_id, encoded, planned_on)

    async def contents(self, transaction_id: TransactionId) -> Transaction:
        return await self._staging(parse_transaction_id(transaction_id)).contents()

    async def seal(self, transaction_id: TransactionId, answer: Value | None = None) -> Transaction:
        checked_id = parse_transaction_id(transaction_id)
        encode_answer(answer, self._settings)
        return await self._staging(checked_id).seal(answer)

    async def renew(self, transaction_id: TransactionId, ttl_s: float | None = None) -> TransactionRecord:
        checked_id = parse_transaction_id(transaction_id)
        return await self._staging(checked_id).renew(check_ttl(ttl_s, self._settings))

    async def abort(self, transaction_id: TransactionId) -> TransactionRecord:
        return await self._deciding(parse_transaction_id(transaction_id)).abort()

    async def transactions(
        self,
        states: Iterable[State] = (),
        *,
        created_before_ms: int | None = None,
        made_since_ms: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> TransactionPage:
        check_limit(limit, self._settings)
        wanted = tuple(State(state) for state in states) or tuple(State)
        if after is None and made_since_ms is not None:
            after = first_id_of(made_since_ms)
        statement = self._statements.list
        if not any(state.final for state in wanted):
            statement = self._statements.list_undecided
        rows = await self._database.call().rows(
            statement,
            storable_text("after", after or ""),
            [state.value for state in wanted],
            created_before_ms if created_before_ms is not None else _FOREVER,
            limit,
        )
        found = tuple(Stored.of(row).public() for row in rows)
        return TransactionPage(found, found[-1].id if len(found) == limit else None)

    # --- upkeep ---

    async def recover(self, limit: int = 1_000) -> Recovery:
        """In a database nothing is ever half done; what remains is to end what has outlived its time."""
        limit = pass_size(limit)
        call = self._database.call()
        now_ms = self._clock.now_ms()
        over = [row[0] for row in await call.rows(self._statements.expired, now_ms, limit + 1)]
        ended = 0
        if over:
            undecided = [state.value for state in State if not state.final]
            ended = await call.value(
                self._statements.finish, over[:limit], undecided, State.ABORTED.value, now_ms, True, None
            )
        pruned = await call.value(self._statements.prune, limit)
        return Recovery(expired=ended, left=len(over) - ended, more=len(over) > limit or pruned == limit)

    async def collect(self, limit: int = 1_000) -> Collection:
        """Trim finished records to a stub that still gives the answer; delete stubs far beyond the horizon."""
        limit = pass_size(limit)
        call = self._database.call()
        now_ms = self._clock.confirmed_ms()
        trim_before_ms = now_ms - int(self._settings.trim_after_s * 1000)
        trimmed = await call.value(self._statements.trim, trim_before_ms, limit)
        kept_ms = self._settings.horizon_days * 86_400_000 + int(self._settings.slack_s * 1000)
        oldest_kept_ms = max(0, now_ms - kept_ms)
        deleted = await call.value(self._statements.delete, uuid7(oldest_kept_ms, 0), oldest_kept_ms, limit)
        return Collection(trimmed=trimmed, deleted=deleted, more=limit in (trimmed, deleted))

    async def time(self) -> StoreTime:
        """The database's clock."""
        now_ms = await self._database.call().value("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint")
        return StoreTime(int(now_ms), independent=True)

    async def watermark(self) -> None:
        """The database has a clock of its own, so there is none."""

    async def put_watermark(self, value: Value, was: Value | None) -> bool:
        return False

    def _deciding(self, transaction_id: TransactionId) -> Deciding:
        return Deciding(self._database, self._statements, transaction_id)

    def _staging(self, transaction_id: TransactionId) -> Staging:
        return Staging(self._database, self._statements, transaction_id)


def driver_url(url: str) -> tuple[str, int]:
    """The URL for the driver, without the parameters of the store; and how many connections a process keeps."""
    dsn, _, connections = _parted(url, "", CONNECTIONS)
    return dsn, connections


def _parted(url: str, schema: str, connections: int) -> tuple[str, str, int]:
    """The URL for the driver, and what of its query is meant for us."""
    base, _, query_text = url.partition("?")
    query = dict(parse_qsl(query_text, keep_blank_values=True))
    schema = query.pop("schema", schema)
    wanted = query.pop("connections", str(connections))
    if not wanted.isdecimal() or not 1 <= int(wanted) <= 1_000:
        raise InvalidSetting(f"connections={wanted}: a process keeps 1 to 1000 connections")
    return f"{base}?{urlencode(query)}" if query else base, schema, int(wanted)

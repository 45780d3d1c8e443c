"""Cells in one SQLite file: the store that needs nothing installed, safe with several processes on the file.

One database transaction does all of a commit. Changes go through one writer thread with group commit
(`sqlite_writer`); readers have connections of their own and are never blocked, since in WAL mode a read transaction
sees one instant whatever is written meanwhile.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from lakepact.delta.ports import DeltaRows
from lakepact.errors import StoreUnavailable
from lakepact.kernel.checks import check_id, check_limit, check_ttl
from lakepact.kernel.identity import TransactionId, first_id_of, parse_transaction_id
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
from lakepact.kernel.ports import Clock, Rng
from lakepact.kernel.seen import check_seen
from lakepact.kernel.settings import KernelSettings
from lakepact.stores import pools, sqlite_commit, sqlite_rows, sqlite_staging, sqlite_upkeep
from lakepact.stores.sql_codec import (
    Stored,
    encode_answer,
    encode_properties,
    encode_staged,
    encode_transaction,
    legal_key,
    legal_keys,
    pass_size,
    storable_text,
)
from lakepact.stores.sql_decide import not_found
from lakepact.stores.sqlite_delta import SqliteDelta
from lakepact.stores.sqlite_schema import connect, explained, prepare_file
from lakepact.stores.sqlite_turn import Turns
from lakepact.stores.sqlite_writer import Work, Writer

T = TypeVar("T")

READERS: Final = 4
"""Reading threads, each with a connection. SQLite runs them side by side; Python gains little beyond a few."""


FEW_CELLS = 64
"""As many cells as a commit or a batch of loads usually asks for. More of them are read on a thread."""


READS_A_TURN = 32
"""After this many reads on the event loop others get a turn: a caller that only reads must not keep it for ever."""


class SqliteCells:
    """`CellStore` on one SQLite file. Make it with `open`."""

    def __init__(self, path: Path, settings: KernelSettings, clock: Clock, rng: Rng) -> None:
        self._path = path
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._writer = Writer(self._connect, Turns(path), clock, settings)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="lakepact-sqlite-reader")
        pools.register_threads("sqlite_readers", self._readers)
        self._reader = threading.local()
        self._reader_connections: list[sqlite3.Connection] = []
        self._here: sqlite_rows.CellsSeen | None = None
        self._here_is = 0
        self._reads_here = 0
        self._closed = False
        self.delta: DeltaRows = SqliteDelta(self._writer.submit, self._look, clock)
        """The rows of Delta tables, in the same file."""

    @classmethod
    async def open(cls, path: str | Path, settings: KernelSettings, clock: Clock, rng: Rng) -> SqliteCells:
        """Open the file, making it and its folder if need be."""
        await asyncio.to_thread(prepare_file, Path(path), settings.deadline_s)
        return cls(Path(path), settings, clock, rng)

    async def close(self) -> None:
        self._closed = True
        await self._writer.close()
        await asyncio.to_thread(self._readers.shutdown)
        while self._reader_connections:
            self._reader_connections.pop().close()

    # --- cells ---

    async def read(self, keys: Iterable[Key]) -> Mapping[Key, Cell]:
        asked = tuple(keys)
        if len(asked) <= FEW_CELLS and (found := self._read_here(asked)) is not None:
            self._reads_here += 1
            if self._reads_here % READS_A_TURN == 0:
                await asyncio.sleep(0)
            return found
        wanted = self._legal_keys(asked)
        return await self._look(lambda connection: sqlite_rows.read_cells(connection, wanted))

    def _legal_keys(self, keys: Iterable[Key]) -> tuple[Key, ...]:
        return legal_keys(keys, self._settings)

    async def scan(self, prefix: str, after: str | None = None, limit: int = 100) -> CellPage:
        self._check_scan(prefix, after, limit)
        return await self._look(lambda connection: sqlite_rows.scan_cells(connection, prefix, after, limit))

    def _check_scan(self, prefix: str, after: str | None, limit: int) -> None:
        check_limit(limit, self._settings)
        if prefix:
            legal_key(prefix, self._settings)
        if after is not None:
            storable_text("after", after)

    async def commit(self, transaction: Transaction, *, settle_conflict: bool = True) -> CommitResult:
        now_ms = self._clock.now_ms()
        request = encode_transaction(transaction, self._settings, now_ms)

        def job(work: Work) -> CommitResult:
            return sqlite_commit.commit(work, request, settle_conflict, self._settings, self._clock.now_ms())

        return await self._writer.submit(job, request.id)

    async def prepare(self, transaction: Transaction, *, settle_conflict: bool = True) -> PrepareResult:
        request = encode_transaction(transaction, self._settings, self._clock.now_ms())

        def job(work: Work) -> PrepareResult:
            return sqlite_commit.prepare(work, request, settle_conflict, self._settings, self._clock.now_ms())

        return await self._writer.submit(job, request.id)

    async def fail(self, transaction_id: TransactionId, request_hash: str, answer: Value) -> Committed | Failed:
        checked_id = check_id(transaction_id, self._settings, self._clock.now_ms())
        storable_text("request_hash", request_hash)
        encoded = encode_answer(answer, self._settings) or "{}"
        return await self._writer.submit(
            lambda work: sqlite_commit.fail(work, checked_id, request_hash, encoded, answer, self._clock.now_ms()),
            checked_id,
        )

    async def lookup(self, transaction_id: TransactionId) -> TransactionRecord | None:
        checked_id = parse_transaction_id(transaction_id)

        def look(connection: sqlite3.Connection) -> TransactionRecord | None:
            stored = sqlite_rows.load(connection, checked_id)
            return stored.public() if stored is not None else None

        return await self._look(look)

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
        ttl_ms = int(check_ttl(ttl_s, self._settings) * 1000)
        encoded = encode_properties(properties)
        return await self._writer.submit(
            lambda work: sqlite_staging.begin(
                work, checked_id, request_hash, ttl_ms, isolation, encoded, self._clock.now_ms()
            ),
            checked_id,
        )

    async def read_in(
        self, transaction_id: TransactionId, keys: Iterable[Key], *, note: bool = True
    ) -> Mapping[Key, Cell]:
        checked_id = parse_transaction_id(transaction_id)
        wanted = legal_keys(keys, self._settings)
        if not note:
            return await self._look_inside(
                checked_id, lambda connection, stored: sqlite_staging.look(connection, stored, wanted)
            )

        def look(connection: sqlite3.Connection) -> dict[Key, Cell] | None:
            stored = sqlite_rows.load(connection, checked_id)
            if not sqlite_staging.reads_leave_no_trace(stored, checked_id, self._clock.now_ms()):
                return None
            known = sqlite_rows.staged_among(connection, checked_id, wanted)
            return sqlite_staging.view(connection, checked_id, wanted, known)

        # Under snapshot isolation nothing needs to be remembered of a read, so the writer is left in peace.
        seen = await self._look(look)
        if seen is not None:
            return seen
        return await self._writer.submit(
            lambda work: sqlite_staging.read_in(work, checked_id, wanted, self._settings, self._clock.now_ms()),
            checked_id,
        )

    async def scan_in(
        self, transaction_id: TransactionId, prefix: str, after: str | None = None, limit: int = 100
    ) -> CellPage:
        self._check_scan(prefix, after, limit)
        return await self._look_inside(
            parse_transaction_id(transaction_id),
            lambda connection, stored: sqlite_staging.page(connection, stored, prefix, after, limit),
        )

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
        await self._writer.submit(
            lambda work: sqlite_staging.stage(
                work, checked_id, operation_id, encoded, planned_on, self._settings, self._clock.now_ms()
            ),
            checked_id,
        )

    async def contents(self, transaction_id: TransactionId) -> Transaction:
        checked_id = parse_transaction_id(transaction_id)

        def look(connection: sqlite3.Connection) -> Transaction:
            stored = sqlite_rows.load(connection, checked_id)
            if stored is None:
                raise not_found(checked_id)
            return stored.contents(sqlite_rows.staged_cells(connection, checked_id))

        return await self._look(look)

    async def seal(self, transaction_id: TransactionId, answer: Value | None = None) -> Transaction:
        checked_id = parse_transaction_id(transaction_id)
        encode_answer(answer, self._settings)
        return await self._writer.submit(
            lambda work: sqlite_staging.seal(work, checked_id, answer, self._clock.now_ms()), checked_id
        )

    async def renew(self, transaction_id: TransactionId, ttl_s: float | None = None) -> TransactionRecord:
        checked_id = parse_transaction_id(transaction_id)
        ttl_ms = int(check_ttl(ttl_s, self._settings) * 1000)

        def job(work: Work) -> TransactionRecord:
            now_ms = self._clock.now_ms()
            prepared_ms = int(self._settings.prepared_s * 1000)
            return sqlite_staging.renew(work, checked_id, ttl_ms, prepared_ms, now_ms)

        return await self._writer.submit(job, checked_id)

    async def abort(self, transaction_id: TransactionId) -> TransactionRecord:
        checked_id = parse_transaction_id(transaction_id)
        return await self._writer.submit(
            lambda work: sqlite_commit.abort(work, checked_id, self._clock.now_ms()), checked_id
        )

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
        if after is not None:
            storable_text("after", after)
        elif made_since_ms is not None:
            after = first_id_of(made_since_ms)
        wanted = tuple(State(state) for state in states)
        return await self._look(
            lambda connection: sqlite_rows.list_transactions(connection, wanted, created_before_ms, after, limit)
        )

    # --- upkeep ---

    async def recover(self, limit: int = 1_000) -> Recovery:
        return await self._writer.submit(
            lambda work: sqlite_upkeep.recover(work, pass_size(limit), self._clock.now_ms())
        )

    async def collect(self, limit: int = 1_000) -> Collection:
        return await self._writer.submit(
            lambda work: sqlite_upkeep.collect(work, pass_size(limit), self._settings, self._clock.confirmed_ms())
        )

    async def time(self) -> None:
        """A file has no clock, and SQLite's functions read the clock of this process."""

    async def watermark(self) -> Value | None:
        return await self._look(sqlite_upkeep.watermark)

    async def put_watermark(self, value: Value, was: Value | None) -> bool:
        return await self._writer.submit(lambda work: sqlite_upkeep.put_watermark(work, value, was))

    # --- how ---

    def _read_here(self, keys: Sequence[Key]) -> dict[Key, Cell] | None:
        """Read a few cells on the event loop itself, or None if that would mean waiting.

        A few rows of a local file take some ten microseconds, which is less than it takes to wake a thread; and in WAL
        mode a reader waits for nobody.
        """
        if self._closed:
            return None
        try:
            if self._here is None:
                connection = connect(self._path, busy_timeout_s=0)
                self._reader_connections.append(connection)
                connection.execute("PRAGMA query_only = ON")
                self._here, self._here_is = sqlite_rows.CellsSeen(connection), threading.get_ident()
            elif threading.get_ident() != self._here_is:
                # What is remembered belongs to one thread; one loop a store is the rule.
                return None
            return self._here.read(keys, self._legal_keys)
        except sqlite3.Error:
            return None

    async def _look(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """Run `look` on a reading thread, inside one read transaction: everything it sees is of one instant."""

        def read() -> T:
            try:
                connection = self._reading_connection()
                connection.execute("BEGIN")
                try:
                    return look(connection)
                finally:
                    connection.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise explained(error, "the store could not be read") from None

        try:
            future = asyncio.get_running_loop().run_in_executor(self._readers, read)
        except RuntimeError:
            raise StoreUnavailable("the store is closed") from None
        return await future

    async def _look_inside(self, transaction_id: TransactionId, look: Callable[[sqlite3.Connection, Stored], T]) -> T:
        """Look from inside an open or prepared transaction. The writer is only troubled to end one that is over."""

        def read(connection: sqlite3.Connection) -> tuple[T] | None:
            stored = sqlite_staging.readable(connection, transaction_id, self._clock.now_ms())
            return (look(connection, stored),) if stored is not None else None

        while (found := await self._look(read)) is None:
            await self._writer.submit(
                lambda work: sqlite_staging.end_if_over(work, transaction_id, self._clock.now_ms()), transaction_id
            )
        return found[0]

    def _reading_connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._reader, "connection", None)
        if connection is None:
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            self._reader.connection = connection
            self._reader_connections.append(connection)
        return connection

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path, self._settings.deadline_s)

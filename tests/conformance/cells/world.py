"""What the claims of this suite are made about: one state, and any number of handles on it.

To put another store under the suite, write an opener and add it to `OPENERS`. An opener is an async context manager.
It is entered once a test, with an empty state of its own, and yields a function that opens one more handle on that
state, as another process would. The handles are closed by the world.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import asyncpg

from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import (
    Cell,
    Committed,
    Isolation,
    Read,
    Transaction,
    TransactionRecord,
    Value,
    Write,
)
from lakepact.kernel.ports import CellStore
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import AsyncioTasks, SystemRng
from lakepact.stores.memory import MemoryDocuments
from lakepact.stores.postgres import PostgresCells
from lakepact.stores.sqlite import SqliteCells
from lakepact.stores.urls import open_store
from tests.support.stores import place_for

SETTINGS: Final = KernelSettings(deadline_s=120.0, backoff_s=0.001, max_backoff_s=0.02, max_cells=120, max_page=100)
"""Short pauses, so that waiting in vain is quick, limits that a test can reach, and time for a call on a slow disk."""


class SteeredClock:
    """The real time, moved ahead by hand. A pause is a real one: others need the time to get out of the way."""

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._stopped_s: tuple[float, float] | None = None

    def stop(self) -> None:
        """Let time pass only by `advance` from here on, for claims about what is just before or after an instant."""
        self._stopped_s = time.time(), time.monotonic()

    def advance(self, seconds: float) -> None:
        self._ahead_s += seconds

    def now_ms(self) -> int:
        wall_s = self._stopped_s[0] if self._stopped_s else time.time()
        return int((wall_s + self._ahead_s) * 1000)

    def confirmed_ms(self) -> int:
        return self.now_ms()

    def monotonic_s(self) -> float:
        return (self._stopped_s[1] if self._stopped_s else time.monotonic()) + self._ahead_s

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What an opener may use."""

    folder: Path
    clock: SteeredClock
    postgres: Callable[[], str]
    """Starts the server when first asked for its URL."""


OpenHandle = Callable[[KernelSettings], Awaitable[CellStore]]
Opener = Callable[[Surroundings], AbstractAsyncContextManager[OpenHandle]]


@asynccontextmanager
async def sqlite(around: Surroundings) -> AsyncIterator[OpenHandle]:
    async def open_handle(settings: KernelSettings) -> CellStore:
        return await SqliteCells.open(around.folder / "cells.db", settings, around.clock, SystemRng())

    yield open_handle


@asynccontextmanager
async def postgres(around: Surroundings) -> AsyncIterator[OpenHandle]:
    url, schema = around.postgres(), f"test_{random.getrandbits(64):016x}"

    async def open_handle(settings: KernelSettings) -> CellStore:
        return await PostgresCells.open(url, settings, around.clock, SystemRng(), schema=schema, connections=8)

    yield open_handle
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    finally:
        await connection.close()


@asynccontextmanager
async def memory(around: Surroundings) -> AsyncIterator[OpenHandle]:
    documents = MemoryDocuments()

    async def open_handle(settings: KernelSettings) -> CellStore:
        return DocumentCells(documents, around.clock, SystemRng(), AsyncioTasks(), settings)

    yield open_handle


def documents(kind: str) -> Opener:
    """Any kind of document store that `tests.support.stores` knows a place for."""

    @asynccontextmanager
    async def opener(around: Surroundings) -> AsyncIterator[OpenHandle]:
        with place_for(kind, around.folder) as place:

            async def open_handle(settings: KernelSettings) -> CellStore:
                return await open_store(place.url, settings, clock=around.clock, options=place.options)

            yield open_handle

    return opener


OPENERS: Final[Mapping[str, Opener]] = {
    "sqlite": sqlite,
    "postgres": postgres,
    "memory": memory,
    "file": documents("file"),
    "s3": documents("s3-strict"),
    "gcs": documents("gcs-strict"),
    "azure": documents("azurite"),
}


class World:
    """One state and its handles, with short words for what every test says."""

    def __init__(self, kind: str, clock: SteeredClock, open_handle: OpenHandle) -> None:
        self.kind = kind
        self.clock = clock
        self._open_handle = open_handle
        self._handles: list[CellStore] = []
        self._rng = SystemRng()

    @classmethod
    @asynccontextmanager
    async def opened(cls, kind: str, around: Surroundings) -> AsyncIterator[Self]:
        async with OPENERS[kind](around) as open_handle:
            world = cls(kind, around.clock, open_handle)
            try:
                world.store = await world.open()
                yield world
            finally:
                await world.close()

    store: CellStore
    """The first handle."""

    async def open(self, settings: KernelSettings = SETTINGS) -> CellStore:
        """One more handle on the same state, as another process would have."""
        handle = await self._open_handle(settings)
        self._handles.append(handle)
        return handle

    async def close(self) -> None:
        for handle in self._handles:
            await handle.close()

    # --- words ---

    def id(self) -> TransactionId:
        return uuid7(self.clock.now_ms(), self._rng.bits(74))

    def transaction(
        self,
        writes: Mapping[Key, tuple[int, Value | None]] | None = None,
        reads: Mapping[Key, int] | None = None,
        *,
        id: TransactionId | None = None,
        hash: str = "hash",
        answer: Value | None = None,
        sealed: bool = False,
    ) -> Transaction:
        return Transaction(
            id=id or self.id(),
            request_hash=hash,
            writes=tuple(Write(key, revision, value) for key, (revision, value) in (writes or {}).items()),
            reads=tuple(Read(key, revision) for key, revision in (reads or {}).items()),
            answer=answer or {},
            sealed=sealed,
        )

    async def put(self, values: Mapping[Key, Value | None], store: CellStore | None = None) -> TransactionId:
        """Commit these values on whatever revisions the cells have now."""
        store = store or self.store
        cells = await store.read(values)
        plan = self.transaction({key: (cells[key].revision, value) for key, value in values.items()})
        result = await store.commit(plan)
        assert isinstance(result, Committed), result
        return result.id

    async def cell(self, key: Key, store: CellStore | None = None) -> Cell:
        return (await (store or self.store).read([key]))[key]

    async def value(self, key: Key, store: CellStore | None = None) -> Any:
        return (await self.cell(key, store)).value

    async def begin(
        self,
        *,
        store: CellStore | None = None,
        isolation: Isolation = Isolation.SERIALIZABLE,
        ttl_s: float | None = None,
    ) -> TransactionId:
        """The id of a transaction that is open now."""
        record = await (store or self.store).begin(self.id(), isolation=isolation, ttl_s=ttl_s)
        return record.id

    async def record(self, transaction_id: TransactionId, store: CellStore | None = None) -> TransactionRecord:
        record = await (store or self.store).lookup(transaction_id)
        assert record is not None
        return record

    def expire(self) -> None:
        """Move the clock beyond the life of every transaction there may be."""
        self.clock.advance(SETTINGS.max_ttl_s + SETTINGS.retryable_s + 1)


def keys(count: int, folder: str = "cells") -> list[Key]:
    return [key_of("main", folder, f"{number:04d}") for number in range(count)]


A, B, C, D = (key_of("main", "tables", name) for name in "abcd")

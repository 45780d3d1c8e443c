"""A warehouse with Delta tables of real Parquet files, its mirrors, and ways to make them fail."""

from __future__ import annotations

import random
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import asyncpg
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from lakepact.catalog import Catalog, CatalogSettings, Watch
from lakepact.catalog.delta_tables import CreateDelta, DeltaCommit
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.work import Call
from lakepact.delta import schema as schemas
from lakepact.delta.actions import Action, Add, Metadata, Remove
from lakepact.delta.engine_types import from_arrow
from lakepact.delta.paths import encode_path, partition_path
from lakepact.delta.ports import DeltaRows, MirrorRow
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.model import Transaction
from lakepact.kernel.ports import BlobEntry, BlobStore, CellStore
from lakepact.kernel.settings import KernelSettings
from lakepact.mirrors import Mirrors, MirrorSettings
from lakepact.runtime import AsyncioTasks, SystemRng
from lakepact.stores import delta_rows, open_blobs
from lakepact.stores.postgres import PostgresCells
from lakepact.stores.sqlite import SqliteCells
from tests.conformance.cells.world import SteeredClock


class Killed(BaseException):
    """The process is no more."""


class FaultyBlobs:
    """A blob store that can be told to fail or to die."""

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner
        self.fail: Callable[[str], Exception | None] = lambda name: None
        """Asked before every write; what it answers is raised."""

        self.die_after: int | None = None
        """So many more writes happen."""

        self.written: list[str] = []

    async def put(self, name: str, data: bytes) -> bool:
        self._before(name)
        return await self._inner.put(name, data)

    async def put_all(self, blobs: Mapping[str, bytes]) -> None:
        for name, data in blobs.items():
            await self.put(name, data)

    async def replace(self, name: str, data: bytes, was: bytes | None) -> bool:
        self._before(name)
        return await self._inner.replace(name, data, was)

    def _before(self, name: str) -> None:
        if self.die_after is not None:
            if self.die_after == 0:
                raise Killed
            self.die_after -= 1
        error = self.fail(name)
        if error is not None:
            raise error
        self.written.append(name)

    async def get(self, name: str) -> bytes | None:
        return await self._inner.get(name)

    async def exists(self, name: str) -> bool:
        return await self._inner.exists(name)

    async def make_folder(self, name: str) -> None:
        await self._inner.make_folder(name)

    async def list(self, prefix: str, after: str | None = None, limit: int = 1_000) -> Sequence[BlobEntry]:
        return await self._inner.list(prefix, after, limit)

    async def delete(self, name: str) -> None:
        await self._inner.delete(name)

    async def close(self) -> None:
        await self._inner.close()


class Inline(Watch):
    """Mirrors right after every commit, as a server does, if it is told to."""

    def __init__(self) -> None:
        self.mirrors: Mirrors | None = None

    async def committed(self, transaction: Transaction) -> None:
        if self.mirrors is not None:
            await self.mirrors.after_commit(transaction)


class Lake:
    def __init__(
        self,
        folder: Path,
        store: CellStore,
        blobs: BlobStore,
        clock: SteeredClock,
        engines: tuple[str, ...],
        url: str,
    ) -> None:
        self.folder = folder
        self.url = url
        self.store = store
        self.blobs = FaultyBlobs(blobs)
        self.clock = clock
        self.tasks = AsyncioTasks()
        self.watch = Inline()
        rows = delta_rows(store)
        assert rows is not None
        self.rows: DeltaRows = rows
        self.lags: list[tuple[str, float]] = []
        self.failures: list[tuple[str, str]] = []
        self.engines = engines
        self.catalog = self.open_catalog()

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        folder: Path,
        postgres: str | None,
        engines: tuple[str, ...] = ("delta_log",),
        *,
        url: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Self]:
        """`url`: the warehouse, if it is not a folder beside the database."""
        clock = SteeredClock()
        schema = f"test_{random.getrandbits(64):016x}"
        store: CellStore
        if postgres is None:
            store = await SqliteCells.open(folder / "lakepact.db", KernelSettings(), clock, SystemRng())
        else:
            store = await PostgresCells.open(
                postgres, KernelSettings(), clock, SystemRng(), schema=schema, connections=4
            )
        url = url or f"file://{folder}/warehouse"
        blobs = await open_blobs(url, options)
        lake = cls(folder / "warehouse", store, blobs, clock, engines, url)
        await lake.catalog.create_namespace(lake.call("createNamespace"), ("db",), {})
        try:
            yield lake
        finally:
            await lake.tasks.drain()
            await blobs.close()
            await store.close()
            if postgres is not None:
                connection = await asyncpg.connect(postgres)
                await connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
                await connection.close()

    def open_catalog(self) -> Catalog:
        return Catalog(
            Warehouse("main", self.url),
            self.store,
            self.blobs,
            self.clock,
            SystemRng(),
            self.tasks,
            CatalogSettings(mirrors=self.engines),
            rows=self.rows,
            watch=self.watch,
        )

    def call(self, operation: str) -> Call:
        return Call(self.catalog.new_id(), operation)

    def mirrors(self, owner: str = "me", **settings: Any) -> Mirrors:
        return Mirrors(
            {"main": self.catalog},
            self.rows,
            self.clock,
            owner=owner,
            settings=MirrorSettings(**settings),
            on_lag=lambda engine, lag_ms: self.lags.append((engine, lag_ms)),
            on_failed=lambda engine, kind: self.failures.append((engine, kind)),
        )

    # --- tables ---

    async def create(
        self, name: str, schema: pa.Schema, partitions: Sequence[str] = (), mirrors: tuple[str, ...] | None = None
    ) -> str:
        request = CreateDelta(name, schemas.dump(from_arrow(schema)), tuple(partitions), mirrors=mirrors)
        done = await self.catalog.create_delta(self.call("createDeltaTable"), ("db",), request)
        await self.tasks.drain()
        table_id: str = done.result["table-id"]
        return table_id

    async def location(self, name: str) -> str:
        return (await self.catalog.load_delta(Identifier(("db",), name), files=False)).pointer.location

    async def place(self, name: str) -> Path:
        return Path((await self.location(name)).removeprefix("file://"))

    async def log(self, name: str) -> list[str]:
        return sorted(one.name for one in (await self.place(name) / "_delta_log").glob("*"))

    async def files(self, name: str, rows: pa.Table, partition: Mapping[str, str | None] | None = None) -> list[Action]:
        """Write rows as one file; the action that adds it."""
        partition = partition or {}
        place = await self.place(name)
        folder = partition_path(partition, list(partition)) + "/" if partition else ""
        path = f"{folder}{uuid.uuid4()}.parquet"
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, place / path)
        size = (place / path).stat().st_size
        return [Add(encode_path(path), partition, size, self.clock.now_ms(), stats=f'{{"numRecords":{rows.num_rows}}}')]

    async def commit(self, **changes: Sequence[Action]) -> None:
        """One commit over these tables."""
        await self.catalog.commit_delta(
            self.call("commitTransaction"),
            [DeltaCommit(Identifier(("db",), name), tuple(actions)) for name, actions in changes.items()],
        )
        await self.tasks.drain()

    async def append(self, **tables: pa.Table) -> None:
        """One commit: these rows are added to these tables, as one file each."""
        await self.commit(**{name: await self.files(name, rows) for name, rows in tables.items()})

    async def remove_all(self, name: str) -> list[Action]:
        """What removes all files of a table."""
        table = await self.catalog.load_delta(Identifier(("db",), name))
        return [
            Remove(one.path, self.clock.now_ms(), True, one.partition_values, one.size)
            for one in table.state.files.values()
        ]

    async def evolve(self, name: str, schema: pa.Schema) -> list[Action]:
        """What gives a table another schema."""
        old = (await self.catalog.load_delta(Identifier(("db",), name), files=False)).state.metadata
        return [
            Metadata(
                old.id,
                schemas.dump(from_arrow(schema)),
                old.partition_columns,
                old.configuration,
                old.name,
                old.description,
                old.created_time,
            )
        ]

    async def status(self, name: str, engine: str = "delta_log") -> MirrorRow:
        table_id = (await self.catalog.load_delta(Identifier(("db",), name), files=False)).pointer.id
        [row] = [one for one in await self.rows.mirror_status(table_id=table_id) if one.engine == engine]
        return row

    def manifest(self, name: str = "latest") -> dict[str, Any]:
        document: dict[str, Any] = orjson.loads((self.folder / "_transactions" / name).read_bytes())
        return document

    def tree(self) -> dict[str, bytes]:
        """Everything the mirrors have written."""
        return {
            str(path.relative_to(self.folder)): path.read_bytes()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and ("_delta_log" in path.parts or "_transactions" in path.parts)
        }

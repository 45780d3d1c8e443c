"""Delta tables in process, on PostgreSQL with fsync on: commits against bare COPY, opening against a bare SELECT, and
delta-rs committing the same files to plain logs, one table after another."""

from __future__ import annotations

import asyncio
import gc
import statistics
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sized
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import asyncpg
import deltalake
import pyarrow as pa
from deltalake.transaction import AddAction, RemoveAction

from lakepact.catalog import Catalog, CatalogSettings
from lakepact.catalog.delta_tables import CreateDelta, DeltaCommit
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.work import Call
from lakepact.delta.actions import Add
from lakepact.delta.ports import DeltaRows
from lakepact.delta.rows import COLUMNS, FIRST_COLUMNS, encode_change
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.model import CommitResult, Transaction
from lakepact.kernel.ports import CellStore
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores import delta_rows, open_blobs, open_store
from tests.bench.report import against, table
from tests.support.postgres import running_postgres

SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
STATS = '{"numRecords":1000,"minValues":{"id":1},"maxValues":{"id":1000},"nullCount":{"id":0}}'
SHAPES = ((2, 100, 0.3), (3, 500, None), (5, 1_000, 0.5))
"""Tables, files each, and the share of a bare COPY's speed that we aim for."""

TURNS = 9
LARGE = 100_000
COPIED = ("bench_files", [*FIRST_COLUMNS, *COLUMNS["dl_add_files"]])


class Timed:
    """A store, and how long each of its deciding steps took. Locks are taken inside of the step and end with it, so
    none was held for longer: the rows were written before."""

    def __init__(self, store: CellStore) -> None:
        self._store = store
        self.held: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, transaction: Transaction, *, settle_conflict: bool = True) -> CommitResult:
        began = time.perf_counter()
        try:
            return await self._store.commit(transaction, settle_conflict=settle_conflict)
        finally:
            self.held.append(time.perf_counter() - began)


class World:
    def __init__(self, catalog: Catalog, store: Timed, rows: DeltaRows, bare: Any, folder: Path) -> None:
        self.catalog = catalog
        self.store = store
        self.rows = rows
        self.bare = bare
        self.folder = folder

    @classmethod
    @asynccontextmanager
    async def opened(cls) -> AsyncIterator[World]:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            url = stack.enter_context(running_postgres(fsync="on"))
            store = await open_store(url)
            stack.push_async_callback(store.close)
            blobs = await open_blobs(folder.as_uri())
            stack.push_async_callback(blobs.close)
            rows = delta_rows(store)
            assert rows is not None
            tasks = AsyncioTasks()
            timed = Timed(store)
            catalog = Catalog(
                Warehouse("main", folder.as_uri()),
                cast(CellStore, timed),
                blobs,
                SystemClock(),
                SystemRng(),
                tasks,
                CatalogSettings(),
                rows=rows,
            )
            bare = await asyncpg.connect(url)
            stack.push_async_callback(bare.close)
            # The same columns and the same keys as the real one: what is compared is what happens around the rows.
            schema = await bare.fetchval("SELECT schemaname FROM pg_tables WHERE tablename = 'dl_add_files'")
            await bare.execute(f'CREATE TABLE bench_files (LIKE "{schema}".dl_add_files INCLUDING ALL)')
            await catalog.create_namespace(Call(catalog.new_id(), "createNamespace"), ("db",), {})
            yield cls(catalog, timed, rows, bare, folder)
            await tasks.drain()

    async def create(self, name: str) -> str:
        done = await self.catalog.create_delta(
            Call(self.catalog.new_id(), "createDeltaTable"), ("db",), CreateDelta(name, SCHEMA)
        )
        table_id: str = done.result["table-id"]
        return table_id

    async def commit(self, changes: dict[str, list[Add]]) -> float:
        commits = [DeltaCommit(Identifier(("db",), name), tuple(adds)) for name, adds in changes.items()]
        began = time.perf_counter()
        await self.catalog.commit_delta(Call(self.catalog.new_id(), "commitTransaction"), commits)
        return time.perf_counter() - began

    async def copy(self, changes: dict[str, list[Add]]) -> float:
        """The same rows, in one transaction, and nothing else."""
        encoded = [encode_change(str(uuid.uuid4()), name, 1, adds) for name, adds in changes.items()]
        target, columns = COPIED
        began = time.perf_counter()
        async with self.bare.transaction():
            for one in encoded:
                await self.bare.copy_records_to_table(target, records=one.rows["dl_add_files"], columns=columns)
        return time.perf_counter() - began


async def run() -> None:
    async with World.opened() as world:
        table(
            "Delta commits in process: PostgreSQL, fsync on, median ms",
            ("tables x files", "ours", "locks held", "bare COPY", "speed of COPY", "delta-rs, one by one"),
            [await _commits(world, *shape) for shape in SHAPES],
        )
        table(
            f"Opening a Delta table of {LARGE:,} files: PostgreSQL, median ms",
            ("", "ours", "bare SELECT", "times"),
            [await _opening(world)],
        )


async def _counted(read: Callable[[], Awaitable[Sized]]) -> float:
    """How long it takes to get all the rows, each time from a clean slate: so many are much to collect."""
    gc.collect()
    began = time.perf_counter()
    found = await read()
    taken = time.perf_counter() - began
    assert len(found) == LARGE
    return taken


def _files(count: int) -> list[Add]:
    return [Add(f"{uuid.uuid4()}.parquet", {}, 1_000_000, 1_767_225_600_000, stats=STATS) for _ in range(count)]


async def _commits(world: World, tables: int, files: int, aim: float | None) -> tuple[object, ...]:
    names = [f"t{tables}_{number}" for number in range(tables)]
    for name in names:
        await world.create(name)
    ours, bare, theirs = [], [], []
    world.store.held.clear()
    for _ in range(TURNS):
        changes = {name: _files(files) for name in names}
        ours.append(await world.commit(changes))
        bare.append(await world.copy({name: _files(files) for name in names}))
        theirs.append(await asyncio.to_thread(_delta_rs, world.folder / str(uuid.uuid4()), changes))
    speed = statistics.median(bare) / statistics.median(ours)
    shown = f"{speed:.2f}" if aim is None else against(speed, f"{aim}", met=speed >= aim)
    whole, held, copied, one_by_one = (
        f"{statistics.median(taken) * 1000:.1f}" for taken in (ours, world.store.held, bare, theirs)
    )
    return f"{tables} x {files}", whole, held, copied, shown, one_by_one


def _delta_rs(folder: Path, changes: dict[str, list[Add]]) -> float:
    schema = pa.schema([("id", pa.int64())])
    for name in changes:
        (folder / name).mkdir(parents=True)
        deltalake.DeltaTable.create(str(folder / name), schema)
    began = time.perf_counter()
    for name, adds in changes.items():
        actions: list[AddAction | RemoveAction] = [
            AddAction(one.path, one.size, {}, one.modification_time, True, one.stats or "") for one in adds
        ]
        found = deltalake.DeltaTable(str(folder / name))
        found.create_write_transaction(actions, "append", found.schema())
    return time.perf_counter() - began


async def _opening(world: World) -> tuple[object, ...]:
    table_id = await world.create("large")
    for _ in range(10):
        await world.commit({"large": _files(LARGE // 10)})
    schema = await world.bare.fetchval("SELECT schemaname FROM pg_tables WHERE tablename = 'dl_add_files'")
    columns = ", ".join(COLUMNS["dl_add_files"][:-1])
    select = f'SELECT {columns} FROM "{schema}".dl_add_files WHERE table_id = $1'
    ours, bare = [], []
    for _ in range(TURNS):
        ours.append(await _counted(lambda: world.rows.files(table_id, 10)))
        bare.append(await _counted(lambda: world.bare.fetch(select, table_id)))
    times = statistics.median(ours) / statistics.median(bare)
    milliseconds = [f"{statistics.median(taken) * 1000:.0f}" for taken in (ours, bare)]
    return "files of one version", *milliseconds, against(times, "1.5", met=times <= 1.5)

"""From a commit to the moment it can be read from the mirrors, under ten commits a second of two tables."""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakepact.catalog import Catalog, CatalogSettings, Watch
from lakepact.catalog.delta_tables import CreateDelta, DeltaCommit
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.work import Call
from lakepact.delta.actions import Action, Add
from lakepact.delta.engine_types import from_arrow
from lakepact.delta.schema import dump
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.model import Transaction
from lakepact.mirrors import Mirrors
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores import delta_rows, open_blobs, open_store
from tests.bench.report import against, table
from tests.support.postgres import running_postgres

COMMITS = 100
EVERY_S = 0.1
TABLES = ("features", "labels")
FILES = 10
IDS = pa.schema([("id", pa.int64())])


class _Inline(Watch):
    mirrors: Mirrors | None = None

    async def committed(self, transaction: Transaction) -> None:
        if self.mirrors is not None:
            await self.mirrors.after_commit(transaction)


async def run() -> None:
    rows = []
    for engines in (("delta_log",), ("delta_log", "duckdb")):
        lags = await _lags(engines)
        for engine in engines:
            taken = sorted(lags[engine])
            p50, p95 = taken[len(taken) // 2], taken[int(len(taken) * 0.95)]
            aim = against(p95 / 1000, "1 s at p95", met=p95 < 1_000)
            rows.append((" and ".join(engines), engine, len(taken), f"{p50:.0f} ms", f"{p95:.0f} ms", aim))
    table(
        f"From commit to mirror: PostgreSQL, {1 / EVERY_S:.0f} commits a second, {len(TABLES)} tables x {FILES} files",
        ("engines", "engine", "versions", "p50", "p95", "p95 in s"),
        rows,
    )


async def _lags(engines: tuple[str, ...]) -> dict[str, list[float]]:
    lags: dict[str, list[float]] = {engine: [] for engine in engines}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = await open_store(stack.enter_context(running_postgres(fsync="on")))
        stack.push_async_callback(store.close)
        blobs = await open_blobs(folder.as_uri())
        stack.push_async_callback(blobs.close)
        rows = delta_rows(store)
        assert rows is not None
        clock, rng, tasks, watch = SystemClock(), SystemRng(), AsyncioTasks(), _Inline()
        settings = CatalogSettings(mirrors=engines)
        catalog = Catalog(
            Warehouse("main", folder.as_uri()), store, blobs, clock, rng, tasks, settings, rows=rows, watch=watch
        )
        watch.mirrors = Mirrors(
            {"main": catalog}, rows, clock, owner="bench", on_lag=lambda engine, lag_ms: lags[engine].append(lag_ms)
        )
        await catalog.create_namespace(Call(catalog.new_id(), "createNamespace"), ("db",), {})
        folders = {}
        for name in TABLES:
            request = CreateDelta(name, dump(from_arrow(IDS)))
            await catalog.create_delta(Call(catalog.new_id(), "createDeltaTable"), ("db",), request)
            pointer = (await catalog.load_delta(Identifier(("db",), name), files=False)).pointer
            folders[name] = Path(pointer.location.removeprefix("file://"))
        await tasks.drain()
        for taken in lags.values():
            taken.clear()
        began = time.perf_counter()
        for number in range(COMMITS):
            changes = {name: await asyncio.to_thread(_written, folders[name]) for name in TABLES}
            await asyncio.sleep(max(0.0, began + number * EVERY_S - time.perf_counter()))
            await catalog.commit_delta(
                Call(catalog.new_id(), "commitTransaction"),
                [DeltaCommit(Identifier(("db",), name), tuple(actions)) for name, actions in changes.items()],
            )
        await tasks.drain()
    return lags


def _written(folder: Path) -> list[Action]:
    made: list[Action] = []
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        path = folder / f"{uuid.uuid4()}.parquet"
        pq.write_table(pa.table({"id": [number]}, IDS), path)
        made.append(Add(path.name, {}, path.stat().st_size, 1, stats='{"numRecords":1}'))
    return made

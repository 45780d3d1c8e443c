"""Keyed commits a second on the SQL stores, against the bare driver doing the same row changes by hand.

The hand-written transaction inserts one row for the record and updates one row a cell, compared on its revision, with
the same durability. It has no idempotent replay, no history for open transactions, no checks and no answers: the ratio
is the price of those. With sixteen tasks each has cells of its own, so nothing conflicts.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import orjson

from lakepact.kernel.ports import CellStore
from lakepact.stores import open_store
from tests.bench.report import against, table
from tests.bench.world import VALUE, Mover, fresh_id, keys
from tests.support.postgres import running_postgres

COUNTS = (1, 5, 20)
TASKS = (1, 16)
SECONDS = 2.0
AIMS = {("sqlite", 1): 0.35, ("sqlite", 16): 0.8, ("postgres", 1): 0.6, ("postgres", 16): 0.6}

Commit = Callable[[], Awaitable[None]]

_INSERT = "INSERT INTO bare_transactions (id, hash, state, answer, plan) VALUES ({})"
_UPDATE = "UPDATE bare_cells SET revision = revision + 1, value = {}, writer = {} WHERE key = {} AND revision = {}"
_TABLES = """
CREATE TABLE bare_cells (key TEXT PRIMARY KEY, revision BIGINT NOT NULL, value TEXT, writer TEXT);
CREATE TABLE bare_transactions (id TEXT PRIMARY KEY, hash TEXT, state TEXT, answer TEXT, plan TEXT);
"""


class BareSqlite:
    """One connection on one thread, as a careful program would have it."""

    def __init__(self, path: Path) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(_TABLES)

    def mover(self, cells: Sequence[str]) -> Commit:
        self._connection.executemany("INSERT INTO bare_cells VALUES (?, 0, NULL, NULL)", [(key,) for key in cells])
        revision = 0

        def transaction() -> None:
            nonlocal revision
            transaction_id, plan, rows = _row_changes(cells, revision)
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(_INSERT.format("?, ?, ?, ?, ?"), (transaction_id, "hash", "committed", "{}", plan))
            self._connection.executemany(_UPDATE.format("?", "?", "?", "?"), rows)
            self._connection.execute("COMMIT")
            revision += 1

        async def commit() -> None:
            await asyncio.get_running_loop().run_in_executor(self._thread, transaction)

        return commit

    def close(self) -> None:
        self._thread.shutdown()
        self._connection.close()


async def bare_postgres_mover(connection: asyncpg.Connection[asyncpg.Record], cells: Sequence[str]) -> Commit:
    await connection.executemany("INSERT INTO bare_cells VALUES ($1, 0, NULL, NULL)", [(key,) for key in cells])
    revision = 0

    async def commit() -> None:
        nonlocal revision
        transaction_id, plan, rows = _row_changes(cells, revision)
        async with connection.transaction():
            await connection.execute(
                _INSERT.format("$1, $2, $3, $4, $5"), transaction_id, "hash", "committed", "{}", plan
            )
            await connection.executemany(_UPDATE.format("$1", "$2", "$3", "$4"), rows)
        revision += 1

    return commit


def _row_changes(cells: Sequence[str], revision: int) -> tuple[str, str, list[tuple[str, str, str, int]]]:
    transaction_id, value = fresh_id(), orjson.dumps(VALUE).decode()
    plan = orjson.dumps({key: {"revision": revision, "value": VALUE} for key in cells}).decode()
    return transaction_id, plan, [(value, transaction_id, key, revision) for key in cells]


async def run() -> None:
    rows: list[Sequence[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(f"sqlite:///{Path(folder) / 'cells.db'}")
        bare = BareSqlite(Path(folder) / "bare.db")

        async def sqlite_movers(cells: list[list[str]]) -> list[Commit]:
            return [bare.mover(each) for each in cells]

        await _compare("sqlite", store, sqlite_movers, rows)
        bare.close()
        await store.close()
    with running_postgres(fsync="on", full_page_writes="on", synchronous_commit="on") as url:
        store = await open_store(url)
        connections = [await asyncpg.connect(url) for _ in range(max(TASKS))]
        await connections[0].execute(_TABLES)

        async def postgres_movers(cells: list[list[str]]) -> list[Commit]:
            return [await bare_postgres_mover(*each) for each in zip(connections, cells, strict=False)]

        await _compare("postgres", store, postgres_movers, rows)
        for connection in connections:
            await connection.close()
        await store.close()
    table(
        "Keyed commits a second against the bare driver (fsync on)",
        ("store", "tasks", "cells", "Lakepact", "bare driver", "ratio"),
        rows,
    )


async def _compare(
    name: str,
    store: CellStore,
    bare_movers: Callable[[list[list[str]]], Awaitable[list[Commit]]],
    rows: list[Sequence[object]],
) -> None:
    for tasks in TASKS:
        for count in COUNTS:
            cells = [list(keys(count, f"{tasks}-{count}-{task}")) for task in range(tasks)]
            ours = [Mover(store, each).commit for each in cells]
            bare = await bare_movers([[str(key) for key in each] for each in cells])
            # Turn about, so that a change of the machine's mood falls on both.
            rates = [[], []]  # type: list[list[float]]
            for _ in range(3):
                rates[0].append(await _per_second(ours))
                rates[1].append(await _per_second(bare))
            mine, theirs = (sorted(measured)[1] for measured in rates)
            aim = AIMS[name, tasks]
            verdict = against(mine / theirs, f">= {aim}", met=mine / theirs >= aim)
            rows.append((name, tasks, count, f"{mine:,.0f}", f"{theirs:,.0f}", verdict))


async def _per_second(commits: Sequence[Commit]) -> float:
    """All of them at once, again and again, for a while."""
    done = 0
    began = time.perf_counter()

    async def again(commit: Commit) -> None:
        nonlocal done
        while time.perf_counter() - began < SECONDS / 3:
            await commit()
            done += 1

    await asyncio.gather(*map(again, commits))
    return done / (time.perf_counter() - began)

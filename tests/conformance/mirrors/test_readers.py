"""Readers beside many commits: whoever takes a cut, by manifest or by DuckDB file, sees a transaction whole or not."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakepact.catalog.delta_tables import DeltaCommit
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.model import Transaction
from lakepact.mirrors import Mirrors
from lakepact.mirrors.duckdb_engine import FILE
from tests.conformance.mirrors.lake import Inline, Lake
from tests.support.postgres import LazyPostgres
from tests.support.waiting import PATIENCE_S

COMMITS = 400 if os.environ.get("LAKEPACT_LONG") == "1" else 40
TABLES = ("a", "b", "c")
NUMBERS = pa.schema([("n", pa.int64())])


class ManyServers(Inline):
    """Every commit is mirrored by one of several processes."""

    def __init__(self, servers: list[Mirrors]) -> None:
        super().__init__()
        self._servers = servers

    async def committed(self, transaction: Transaction) -> None:
        await random.choice(self._servers).after_commit(transaction)


@pytest.fixture(params=["sqlite", "postgres"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, postgres: LazyPostgres) -> AbstractAsyncContextManager[Lake]:
    url = postgres.url() if request.param == "postgres" else None
    return Lake.opened(tmp_path, url, ("delta_log", "duckdb"))


async def write(lake: Lake, is_seen: Callable[[int], bool]) -> None:
    """Every commit replaces what is in all tables by its own number. Now and then it waits until that is seen."""
    for number in range(1, COMMITS + 1):
        changes: dict[str, list[Any]] = {}
        for name in TABLES:
            new = await lake.files(name, pa.table({"n": [number]}, NUMBERS))
            changes[name] = [*await lake.remove_all(name), *new]
        await lake.catalog.commit_delta(lake.call("commitTransaction"), _commits(changes))
        if number % (COMMITS // 5) == 0:
            async with asyncio.timeout(PATIENCE_S):
                while not is_seen(number):
                    await asyncio.sleep(0.01)


def _commits(changes: dict[str, list[Any]]) -> list[Any]:
    return [DeltaCommit(Identifier(("db",), name), tuple(actions)) for name, actions in changes.items()]


def by_manifest(folder: Path) -> set[tuple[int, ...]]:
    """What the tables hold at the versions of the latest cut."""
    try:
        latest = orjson.loads((folder / "_transactions" / "latest").read_bytes())
    except FileNotFoundError:
        return set()
    assert not latest["behind"]
    return {
        tuple(DeltaTable(location.removeprefix("file://"), version=version).to_pyarrow_table()["n"].to_pylist())
        for location, version in latest["tables"].items()
    }


def by_duckdb(folder: Path, copy: Path) -> set[tuple[int, ...]]:
    # A process can open a database file only once at a time by its name: others are played by a copy.
    try:
        shutil.copyfile(folder / FILE, copy)
    except FileNotFoundError:
        return set()
    with duckdb.connect(str(copy), read_only=True) as connection:
        return {tuple(row[0] for row in connection.execute(f"SELECT n FROM db.{name}").fetchall()) for name in TABLES}


async def test_no_reader_sees_half_of_a_transaction(lake: Lake, tmp_path: Path) -> None:
    for name in TABLES:
        await lake.create(name, NUMBERS)
    servers = [lake.mirrors(f"server-{number}") for number in range(3)]
    lake.watch = ManyServers(servers)
    lake.catalog = lake.open_catalog()
    await servers[0].turn()
    cuts: list[set[tuple[int, ...]]] = []
    files: list[set[tuple[int, ...]]] = []
    writing = asyncio.create_task(write(lake, lambda number: {(number,)} in cuts and {(number,)} in files))
    while not writing.done():
        cuts.append(await asyncio.to_thread(by_manifest, lake.folder))
        files.append(await asyncio.to_thread(by_duckdb, lake.folder, tmp_path / "copy.duckdb"))
    await writing
    await lake.tasks.drain()
    # Whatever was going on at once, nobody has to wait for a turn.
    cuts.append(by_manifest(lake.folder))
    files.append(by_duckdb(lake.folder, tmp_path / "copy.duckdb"))
    assert cuts[-1] == files[-1] == {(COMMITS,)}
    for found in (cuts, files):
        assert all(len(one) == 1 for one in found if one), found
        numbers = [max(next(iter(one)), default=0) for one in found if one]
        assert numbers == sorted(numbers), "nor does anything go back"
        assert len(set(numbers)) > 3, "the reader has seen several cuts"
    assert not lake.failures
    sequences = sorted(int(path.stem) for path in (lake.folder / "_transactions").glob("0*.json"))
    assert sequences == list(range(1, COMMITS + len(TABLES) + 1))

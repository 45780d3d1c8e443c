"""What is SQLite's own: several processes, group commit, busy files, full disks, formats."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from lakepact.errors import Contended, FormatTooNew, KeyReused, StoreUnavailable, StoreUnsuitable, Unreadable
from lakepact.kernel.identity import uuid7
from lakepact.kernel.model import CommitResult, Committed, Conflict, Transaction, Value, Write
from lakepact.kernel.ports import CellStore
from lakepact.runtime import SystemRng
from lakepact.stores.sql_format import FORMAT, NEWEST_READABLE
from lakepact.stores.sqlite import SqliteCells
from lakepact.stores.sqlite_schema import APPLICATION_ID
from tests.conformance.cells import sqlite_process
from tests.conformance.cells.world import SETTINGS, A, B, SteeredClock, Surroundings, World, keys
from tests.support.waiting import wait_until_async

ROOT = Path(__file__).parents[3]


@pytest.fixture
def file_world(surroundings: Surroundings) -> AbstractAsyncContextManager[World]:
    return World.opened("sqlite", surroundings)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cells.db"


@asynccontextmanager
async def _opened(path: Path) -> AsyncIterator[CellStore]:
    store = await SqliteCells.open(path, SETTINGS, SteeredClock(), SystemRng())
    try:
        yield store
    finally:
        await store.close()


async def test_p6_a_caller_that_only_reads_does_not_keep_others_from_their_turn(file_world: World) -> None:
    await file_world.put({A: {"n": 0}})
    other = asyncio.create_task(asyncio.sleep(0))
    for _ in range(1_000):
        if other.done():
            break
        await file_world.store.read([A])
    assert other.done()


async def test_a_cell_that_has_not_changed_is_not_decoded_again_and_one_changed_elsewhere_is(
    file_world: World,
) -> None:
    other = await file_world.open()
    for number in range(3):
        await file_world.put({A: {"n": number}}, other if number % 2 else None)
        [first, again] = [await file_world.cell(A) for _ in range(2)]
        assert first is again
        assert (first.revision, first.value) == (number + 1, {"n": number})


async def test_what_is_in_the_file_counts_and_not_what_is_remembered_of_its_revision(path: Path) -> None:
    async with _opened(path) as store:
        await store.commit(Transaction(uuid7(SteeredClock().now_ms(), 1), "hash", (Write(A, 0, {"n": 1}),)))
        assert (await store.read([A]))[A].value == {"n": 1}
        with sqlite3.connect(path) as connection:
            connection.execute("""UPDATE cells SET value = '{"n":7}' WHERE key = ?""", (A,))
        assert (await store.read([A]))[A].value == {"n": 7}


async def test_what_is_remembered_belongs_to_one_thread(file_world: World) -> None:
    await file_world.put({A: {"n": 1}})
    first = await file_world.cell(A)
    elsewhere = await asyncio.to_thread(lambda: asyncio.run(file_world.cell(A)))
    assert elsewhere == first and elsewhere is not first
    assert await file_world.cell(A) is first


# --- several processes ---


async def test_p2_what_is_remembered_of_some_cells_and_read_of_others_is_of_one_instant(file_world: World) -> None:
    other = await file_world.open()
    large: Value = {"n": 2, "of": "x" * 10_000}
    values: list[Value | None] = [{"n": 1}, None, large, {"n": 3}, large, None, {"n": 4}]
    for value in values:
        assert (await file_world.store.read([A]))[A] == (await other.read([A]))[A]
        await file_world.put({A: value, B: value}, other)
        # The first is remembered from here on, the second is not yet.
        assert (await file_world.store.read([A]))[A].value == value
        for _ in range(2):
            assert [cell.value for cell in (await file_world.store.read([A, B])).values()] == [value, value]


async def test_p1_p2_processes_on_one_file_lose_nothing_and_tear_nothing(file_world: World, path: Path) -> None:
    await file_world.put({key: {"n": 100} for key in sqlite_process.ACCOUNTS})
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.conformance.cells.sqlite_process", str(path), "15", str(seed), cwd=ROOT
        )
        for seed in range(3)
    ]
    ended = asyncio.gather(*(process.wait() for process in processes))
    cuts = 0
    while not ended.done():
        cells = await file_world.store.read(sqlite_process.ACCOUNTS)
        assert sum((cell.value or {})["n"] for cell in cells.values()) == 400
        cuts += 1
        await asyncio.sleep(0)
    assert await ended == [0, 0, 0]
    assert cuts
    counter = await file_world.cell(sqlite_process.COUNTER)
    assert (counter.value, counter.revision) == ({"n": 45}, 45)


async def test_a_new_file_can_be_opened_by_many_at_once(path: Path) -> None:
    stores = await asyncio.gather(*(SqliteCells.open(path, SETTINGS, SteeredClock(), SystemRng()) for _ in range(8)))
    for store in stores:
        assert (await store.scan("")).cells == ()
        await store.close()


async def test_a_new_file_is_its_owners_alone_and_one_that_is_there_stays_as_it_is(path: Path) -> None:
    for mode in (0o600, 0o640):
        async with _opened(path) as store:
            await store.commit(Transaction(uuid7(SteeredClock().now_ms(), mode), "hash", (Write(A, 0, {"n": 1}),)))
            files = list(path.parent.glob(f"{path.name}*"))
            assert len(files) == 5 and {file.stat().st_mode & 0o777 for file in files} == {mode}
        path.chmod(0o640)


async def test_a_missing_folder_is_made(tmp_path: Path) -> None:
    async with _opened(tmp_path / "new" / "folder" / "cells.db") as store:
        assert (await store.scan("")).cells == ()


# --- group commit ---


def _durable_commits(path: Path) -> int:
    """How many transactions the write-ahead log holds: frames that end one carry the size of the database."""
    log = path.with_name(path.name + "-wal").read_bytes()
    page_size = struct.unpack(">I", log[8:12])[0]
    frames = range(32, len(log), page_size + 24)
    return sum(struct.unpack(">I", log[start + 4 : start + 8])[0] > 0 for start in frames)


async def test_commits_that_wait_together_share_one_write_to_the_disk(file_world: World, path: Path) -> None:
    await file_world.put({A: {"n": 1}})
    before = _durable_commits(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    commits = [
        asyncio.ensure_future(file_world.store.commit(file_world.transaction({key: (0, {"n": 1})})))
        for key in keys(100)
    ]
    # Every commit is queued before its first pause. The writer has taken some and waits for the file with them.
    await asyncio.sleep(0)
    other.execute("ROLLBACK")
    other.close()
    assert all(isinstance(result, Committed) for result in await asyncio.gather(*commits))
    assert 1 <= _durable_commits(path) - before <= 2


async def test_what_fails_in_a_group_takes_nothing_with_it(file_world: World) -> None:
    await file_world.put({A: {"n": 1}})
    used = file_world.transaction({B: (0, {"n": 1})}, hash="one")
    await file_world.store.commit(used)
    good = [file_world.transaction({key: (0, {"n": 1})}) for key in keys(20)]
    moved = [file_world.transaction({key: (0, {"n": 2}), A: (0, {"n": 2})}) for key in keys(20, "moved")]
    reused = [replace(used, request_hash="two") for _ in range(20)]

    async def outcome(transaction: Transaction) -> type:
        try:
            return type(await file_world.store.commit(transaction))
        except KeyReused as error:
            return type(error)

    mixed = [plan for group in zip(good, moved, reused, strict=True) for plan in group]
    assert await asyncio.gather(*map(outcome, mixed)) == [Committed, Conflict, KeyReused] * 20
    live = {cell.key for cell in (await file_world.store.scan("", limit=100)).cells}
    assert live == {A, B, *keys(20)}


async def test_a_caller_who_gives_up_disturbs_nobody(file_world: World) -> None:
    tasks = [
        asyncio.ensure_future(file_world.store.commit(file_world.transaction({key: (0, {"n": 1})}))) for key in keys(20)
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, Committed | asyncio.CancelledError) for result in results)
    await file_world.put({A: {"n": 1}})


async def test_a_transaction_lives_for_its_whole_ttl_after_a_wait_for_the_disk(path: Path) -> None:
    class SlowClock(SteeredClock):
        """A second passes between any two readings."""

        def now_ms(self) -> int:
            self.advance(1)
            return super().now_ms()

    clock = SlowClock()
    store = await SqliteCells.open(path, SETTINGS, clock, SystemRng())
    try:
        clock.stop()
        record = await store.begin(uuid7(clock.now_ms(), 1), ttl_s=60)
        assert record.expires_ms == record.created_ms + 60_000
    finally:
        await store.close()


async def test_a_closed_store_says_so(path: Path) -> None:
    store = await SqliteCells.open(path, SETTINGS, SteeredClock(), SystemRng())
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.read([A])
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.recover()


# --- a disk and a file that will not have it ---


async def test_p9_a_busy_file_is_contended_and_nothing_is_applied(file_world: World, path: Path) -> None:
    hasty = await file_world.open(replace(SETTINGS, deadline_s=0.1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    plan = file_world.transaction({A: (0, {"n": 1})})
    with pytest.raises(Contended):
        await hasty.commit(plan)
    assert await hasty.lookup(plan.id) is None
    assert (await hasty.scan("")).cells == ()
    other.execute("ROLLBACK")
    other.close()

    async def committed() -> CommitResult | None:
        # Its deadline is as short as before, and another process may still be slow.
        with suppress(Contended):
            return await hasty.commit(plan)
        return None

    assert isinstance(await wait_until_async(committed), Committed)


async def test_p9_on_a_full_disk_nobody_is_told_what_is_not_certain(path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.conformance.cells.sqlite_full_disk",
        str(path),
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    output, _ = await process.communicate()
    report = json.loads(output)
    assert report["before"] == "Committed"
    assert report["full"] == ["OutcomeUnknown", "Committed", "OutcomeUnknown"]
    assert report["read while full"] == ["NoneType", "TransactionRecord", "NoneType"]
    assert report["again"] == ["Committed"] * 3
    assert report["revisions"] == [1, 1, 1]


# --- what is in the file ---


async def test_p5_the_file_is_in_wal_mode_and_marked_as_ours(file_world: World, path: Path) -> None:
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    connection.close()


async def test_a_newer_format_is_refused_and_left_alone(path: Path) -> None:
    async with _opened(path):
        pass
    _set_format(path, NEWEST_READABLE + 1)
    with pytest.raises(FormatTooNew, match="Upgrade"):
        async with _opened(path):
            pass
    assert _format(path) == NEWEST_READABLE + 1


async def test_the_next_format_is_read_and_not_rewritten(path: Path) -> None:
    async with _opened(path):
        pass
    _set_format(path, NEWEST_READABLE)
    async with _opened(path) as store:
        assert (await store.scan("")).cells == ()
    assert _format(path) == NEWEST_READABLE


async def test_the_database_of_another_application_is_refused_and_left_alone(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()
    with pytest.raises(StoreUnsuitable, match="another application"):
        async with _opened(path):
            pass
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("mine",)]
    connection.close()


async def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"certainly not a database, but long enough to look like something" * 100)
    with pytest.raises(Unreadable):
        async with _opened(path):
            pass


async def test_history_is_kept_only_while_somebody_may_look(file_world: World, path: Path) -> None:
    def history() -> int:
        connection = sqlite3.connect(path)
        count: int = connection.execute("SELECT count(*) FROM history").fetchone()[0]
        connection.close()
        return count

    for number in range(3):
        await file_world.put({A: {"n": number}})
    assert history() == 0
    transaction_id = await file_world.begin()
    for number in range(3):
        await file_world.put({A: {"n": number}})
    assert history() == 1
    await file_world.store.recover()
    assert history() == 1
    await file_world.store.abort(transaction_id)
    await file_world.store.recover()
    assert history() == 0


def _set_format(path: Path, number: int) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {number}")
    connection.commit()
    connection.close()


def _format(path: Path) -> int:
    connection = sqlite3.connect(path)
    found: int = connection.execute("PRAGMA user_version").fetchone()[0]
    connection.close()
    return found

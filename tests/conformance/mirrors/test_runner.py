"""Who follows what, and when: in the background, by one of several, for imported tables and for large lakes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from lakepact.catalog.delta_tables import DeltaCommit
from lakepact.delta.ports import MirrorState
from lakepact.errors import StoreUnavailable
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.model import State, Transaction, Write
from lakepact.mirrors import Outcome
from lakepact.mirrors import lake as lakes
from lakepact.mirrors.duckdb_engine import FILE
from tests.conformance.mirrors.lake import Lake
from tests.support.waiting import PATIENCE_S, wait_until_async

IDS = pa.schema([("id", pa.int64())])


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": list(numbers)}, IDS)


async def in_step(lake: Lake, name: str) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            status = await lake.status(name)
            if status.mirrored_version == status.current_version:
                return
            await asyncio.sleep(0.05)


async def test_a_mirror_that_failed_is_tried_again_in_the_background(lake: Lake) -> None:
    mirrors = lake.mirrors(interval_s=3_600.0)
    lake.watch.mirrors = mirrors
    mirrors.start()
    try:
        await lake.create("a", IDS)
        lake.blobs.fail = lambda name: StoreUnavailable("not now")
        [file] = await lake.files("a", ids(1))
        await lake.commit(a=[file])

        async def is_retrying() -> bool:
            return (await lake.status("a")).state is MirrorState.RETRYING

        # The commit leaves the table to the background if that is at it.
        await wait_until_async(is_retrying)
        lake.blobs.fail = lambda name: None
        await in_step(lake, "a")
    finally:
        await mirrors.stop()
    assert (await lake.status("a")).mirrored_version == 1


async def test_what_a_dead_process_held_is_taken_over_when_its_lease_ends(lake: Lake) -> None:
    table_id = await lake.create("a", IDS)
    lake.clock.stop()
    assert await lake.rows.claim("delta_log", "the dead one", 20.0)
    await lake.mirrors().turn()
    assert (await lake.status("a")).mirrored_version == -1, "it may be alive"
    lake.clock.advance(21)
    await lake.mirrors().turn()
    assert (await lake.status("a")).mirrored_version == 0
    assert await lake.rows.mirrored("delta_log", "the dead one", {table_id: 0}) == []


async def test_a_commit_that_finds_its_table_taken_is_not_forgotten(lake: Lake) -> None:
    """The holder looks once more before it lets go."""
    one, other = lake.mirrors("one"), lake.mirrors("other")
    await lake.create("a", IDS)
    await one.turn()
    lake.watch.mirrors = one
    inside = asyncio.Event()
    go_on = asyncio.Event()
    inner = lake.blobs.put

    async def slow(name: str, data: bytes) -> bool:
        if name.endswith(f"{1:020}.json"):
            inside.set()
            await go_on.wait()
        return await inner(name, data)

    lake.blobs.put = slow  # type: ignore[method-assign]
    first = asyncio.create_task(lake.append(a=ids(1)))
    await inside.wait()
    left = asyncio.Event()

    async def committed(transaction: Transaction) -> None:
        await other.after_commit(transaction)
        left.set()

    lake.watch.committed = committed  # type: ignore[method-assign]
    [file] = await lake.files("a", ids(2))
    await lake.catalog.commit_delta(lake.call("commitTransaction"), [DeltaCommit(Identifier(("db",), "a"), (file,))])
    # The other one has come, found the table taken, and gone.
    async with asyncio.timeout(PATIENCE_S):
        await left.wait()
    go_on.set()
    await first
    await lake.tasks.drain()
    assert (await lake.status("a")).mirrored_version == 2
    assert lake.manifest()["tables"] == {await lake.location("a"): 2}


async def test_how_each_copy_came_along_can_be_asked(lake: Lake) -> None:
    a, b = await lake.create("a", IDS), await lake.create("b", IDS)
    place = (await lake.place("b")).name
    lake.blobs.fail = lambda name: StoreUnavailable("full") if place in name else None
    assert await lake.mirrors().mirror([a, b]) == {
        a: [Outcome("delta_log", True, None, 0)],
        b: [Outcome("delta_log", False, "full", -1)],
    }


async def test_commits_of_others_and_odd_cells_are_nobodys_matter(lake: Lake) -> None:
    odd = Transaction(
        TransactionId("0190a1b2-0000-7000-8000-000000000000"),
        "",
        tuple(Write(key, 0, {}) for key in ("lakepact/upkeep/lease", "elsewhere/delta/x", "main/names/.db/t", "main")),  # type: ignore[arg-type]
    )
    await lake.mirrors().after_commit(odd)
    assert not lake.failures


async def test_a_lake_too_large_for_one_read_is_still_one_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lakes, "_MOST_AT_ONCE", 2)
    async with Lake.opened(tmp_path, None, ("duckdb",)) as lake:
        for name in "abcd":
            await lake.create(name, IDS)
        await lake.append(**{name: ids(1) for name in "abcd"})
        await lake.mirrors().turn()
        with duckdb.connect(str(lake.folder / FILE), read_only=True) as connection:
            assert [connection.execute(f"SELECT id FROM db.{name}").fetchall() for name in "abcd"] == [[(1,)]] * 4
        assert not (await lake.store.transactions([State.OPEN])).transactions

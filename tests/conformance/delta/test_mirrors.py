"""Mirrors: who follows which table, who is at it, and in which order commits are published."""

from __future__ import annotations

import asyncio

from lakepact.delta.beside import DeltaChanges
from lakepact.delta.ports import MirrorState
from lakepact.kernel.model import Committed, Transaction, Write
from tests.conformance.delta.lake import WAREHOUSE, Change, Lake, add, adds

LOG, DUCK = "delta_log", "duckdb"


async def claimed(lake: Lake, owner: str, engine: str = LOG, **more: object) -> list[str]:
    return [row.table_id for row in await lake.rows.claim(engine, owner, 10.0, **more)]  # type: ignore[arg-type]


async def test_a_table_that_lags_is_claimed_by_one_owner_until_it_is_in_step(lake: Lake) -> None:
    lake.clock.stop()
    await lake.create("t", "u", engines=(LOG, DUCK))
    await lake.create("quiet")
    assert await claimed(lake, "one") == ["t", "u"]
    assert await claimed(lake, "two") == []
    assert await claimed(lake, "one") == ["t", "u"], "its own it gets again"
    assert await claimed(lake, "two", DUCK) == ["t", "u"], "another engine is another matter"
    assert await lake.rows.mirrored(LOG, "two", {"t": 0}) == []
    assert await lake.rows.mirrored(LOG, "one", {"t": 0}) == ["t"]
    assert await claimed(lake, "two") == []
    await lake.write("t", 1, add("a"))
    (row,) = await lake.rows.claim(LOG, "two", 10.0)
    assert (row.table_id, row.mirrored_version, row.current_version, row.lease_owner) == ("t", 0, 1, "two")
    lake.clock.advance(11)
    assert await claimed(lake, "three") == ["t", "u"], "a lease that has run out is anybody's"
    assert await lake.rows.mirrored(LOG, "two", {"t": 1}) == [], "and its owner has lost it"


async def test_a_claim_can_be_for_the_tables_of_one_commit_and_is_bounded(lake: Lake) -> None:
    lake.clock.stop()
    await lake.create(*"abcd", engines=(LOG,))
    assert await claimed(lake, "one", tables=["b", "c", "nobody"]) == ["b", "c"]
    assert await claimed(lake, "two", limit=1) == ["a"]
    assert await claimed(lake, "three", tables=[]) == []
    assert await claimed(lake, "three") == ["d"]


async def test_a_lease_is_prolonged_by_its_owner_alone(lake: Lake) -> None:
    lake.clock.stop()
    await lake.create("t", "u", engines=(LOG,))
    await claimed(lake, "one")
    lake.clock.advance(8)
    assert (await lake.rows.hold(LOG, "one", 10.0), await lake.rows.hold(LOG, "two", 10.0)) == (2, 0)
    lake.clock.advance(8)
    assert await claimed(lake, "two") == []
    lake.clock.advance(3)
    assert await lake.rows.hold(LOG, "one", 10.0) == 0
    assert await claimed(lake, "two") == ["t", "u"]


async def test_a_failure_waits_for_its_time_and_a_conflict_or_a_dead_one_for_a_person(lake: Lake) -> None:
    lake.clock.stop()
    await lake.create("a", "b", "c", engines=(LOG,))
    await claimed(lake, "one")
    soon_ms = lake.clock.now_ms() + 5_000
    assert await lake.rows.mirror_failed(LOG, "one", "a", "disk\x00 full \ud800", retry_at_ms=soon_ms)
    assert await lake.rows.mirror_failed(LOG, "one", "b", "x" * 9_999, retry_at_ms=None)
    assert await lake.rows.mirror_conflict(LOG, "one", "c", "version 0 is somebody else's")
    assert not await lake.rows.mirror_failed(LOG, "one", "a", "again", retry_at_ms=None), "the lease has ended"
    rows = await lake.rows.mirror_status()
    assert [(row.table_id, row.state, row.attempts, row.lease_owner) for row in rows] == [
        ("a", MirrorState.RETRYING, 1, None),
        ("b", MirrorState.DEAD, 1, None),
        ("c", MirrorState.CONFLICT, 1, None),
    ]
    assert rows[0].last_error is not None and rows[0].last_error.startswith("disk  full")
    assert rows[1].last_error is not None and len(rows[1].last_error) == 4_000
    assert await claimed(lake, "two") == []
    lake.clock.advance(6)
    assert await claimed(lake, "two") == ["a"]
    assert await lake.rows.mirrored(LOG, "two", {"a": 0}) == ["a"]
    (row,) = await lake.rows.mirror_status(table_id="a")
    assert (row.state, row.attempts, row.last_error, row.mirrored_version) == (MirrorState.ACTIVE, 0, None, 0)
    assert row.last_sync_ms is not None
    assert await lake.rows.retry(table_id="b") == 1
    assert await lake.rows.retry(engine=DUCK) == 0
    assert await lake.rows.retry() == 1
    assert await claimed(lake, "three") == ["b", "c"]


async def test_engines_of_a_table_can_be_changed(lake: Lake) -> None:
    await lake.create("t", engines=(LOG,))
    await lake.rows.set_mirrors("t", [DUCK])
    assert (await claimed(lake, "one"), await claimed(lake, "one", DUCK)) == ([], ["t"])
    states = {row.engine: row.state for row in await lake.rows.mirror_status()}
    assert states == {LOG: MirrorState.OFF, DUCK: MirrorState.ACTIVE}
    await lake.rows.set_mirrors("t", [LOG, DUCK])
    assert await claimed(lake, "one") == ["t"]
    # A later commit may name engines too; those that are there stay as they are.
    await lake.rows.set_mirrors("t", [])
    beside = DeltaChanges(WAREHOUSE, mirrors={"t": (LOG,)}).document()
    plan = Transaction(lake.id(), "hash", (Write(lake.key("t"), 1, {"version": 0}),), beside=beside)
    assert isinstance(await lake.store.commit(plan), Committed)
    assert await claimed(lake, "two") == []


async def test_a_dropped_table_is_mirrored_no_more(lake: Lake) -> None:
    await lake.create("t", engines=(LOG,))
    beside = DeltaChanges(WAREHOUSE, drop=("t",)).document()
    plan = Transaction(lake.id(), "hash", (Write(lake.key("t"), 1, None),), beside=beside)
    assert isinstance(await lake.store.commit(plan), Committed)
    assert await claimed(lake, "one") == [] and list(await lake.rows.mirror_status()) == []
    assert [one.tables for one in await lake.rows.outgoing(WAREHOUSE)] == [{"t": 0}, {"t": None}]


async def test_many_mirrorers_never_get_the_same_table(lake: Lake) -> None:
    lake.clock.stop()
    tables = [f"t{number:02d}" for number in range(30)]
    await lake.create(*tables, engines=(LOG,))
    got = await asyncio.gather(*(claimed(lake, f"owner-{number}", limit=4) for number in range(12)))
    taken = [table for some in got for table in some]
    assert len(taken) == len(set(taken))
    while more := await claimed(lake, "last", limit=100):
        taken += [table for table in more if table not in taken]
        await lake.rows.mirrored(LOG, "last", dict.fromkeys(more, 0))
    assert sorted(taken) == tables


async def test_commits_are_numbered_without_gaps_in_the_order_they_build_on_each_other(lake: Lake) -> None:
    await lake.create("t", "u", engines=(LOG,))
    await lake.write("t", 1, add("a"))
    first = await lake.rows.outgoing(WAREHOUSE)
    changes = [Change("t", 2, adds("b")), Change("u", 1, adds("c"))]
    plan = lake.plan(changes)
    await lake.put_rows(plan.id, changes)
    await lake.store.commit(plan)
    found = await lake.rows.outgoing(WAREHOUSE)
    assert [(one.number, one.tables) for one in found] == [
        (1, {"t": 0, "u": 0}),
        (2, {"t": 1}),
        (3, {"t": 2, "u": 1}),
    ]
    assert found[:2] == first and found[2].transaction_id == plan.id and found[2].ict_ms == 3_000
    assert [one.number for one in await lake.rows.outgoing(WAREHOUSE, 1)] == [1]
    await lake.rows.sent(WAREHOUSE, 2)
    await lake.rows.sent(WAREHOUSE, 1)
    assert [one.number for one in await lake.rows.outgoing(WAREHOUSE)] == [3]
    await lake.rows.sent(WAREHOUSE, 3)
    await lake.write("u", 2)
    assert [one.number for one in await lake.rows.outgoing(WAREHOUSE)] == [4]
    assert list(await lake.rows.outgoing("another")) == []

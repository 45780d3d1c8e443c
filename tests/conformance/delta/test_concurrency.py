"""Many writers on the same Delta tables: versions grow by one, nothing is lost, and nobody waits in a circle."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from lakepact.delta.ports import TableChange
from lakepact.errors import Contended
from lakepact.kernel.model import Busy, CommitResult, Committed, Conflict, Transaction
from lakepact.kernel.ports import CellStore
from tests.conformance.delta.lake import WAREHOUSE, Change, Lake, add, remove

TABLES = ("e", "a", "d", "b", "c")


async def append(lake: Lake, worker: int, count: int, done: list[tuple[str, dict[str, int]]]) -> None:
    """Append one file to some tables at a time, in any order, going on past others by moving the rows."""
    chance = random.Random(worker)
    handle = await lake.open()
    rows = lake.rows_of(handle)
    for number in range(count):
        tables = chance.sample(TABLES, chance.randint(1, 4))
        path = f"{worker}-{number}"
        cells = await handle.read([lake.key(table) for table in tables])
        planned = {table: cells[lake.key(table)].revision for table in tables}
        transaction_id = lake.id()
        await rows.put(transaction_id, [TableChange(table, planned[table], [add(path)]) for table in tables])
        while True:
            changes = [Change(table, planned[table], [add(path)]) for table in tables]
            plan = lake.plan(changes, id=transaction_id)
            chance.shuffle(tables)
            try:
                result = await handle.commit(plan, settle_conflict=False)
            except Contended:
                continue
            if isinstance(result, Committed):
                done.append((path, dict(planned)))
                break
            assert isinstance(result, Conflict | Busy), result
            cells = await handle.read([lake.key(table) for table in tables])
            for table in tables:
                now = cells[lake.key(table)].revision
                if now != planned[table]:
                    await rows.move(transaction_id, table, planned[table], now)
                    planned[table] = now


async def test_no_append_is_lost_and_versions_grow_by_exactly_one(lake: Lake) -> None:
    await lake.create(*TABLES)
    done: list[tuple[str, dict[str, int]]] = []
    await asyncio.gather(*(append(lake, worker, 25, done) for worker in range(6)))
    assert len(done) == 150
    per_table = Counter(table for _, planned in done for table in planned)
    for table in TABLES:
        assert await lake.version_of(table) == (per_table[table], per_table[table])
        history = await lake.rows.versions(table, limit=1_000)
        assert [row.version for row in history] == list(range(per_table[table], -1, -1))
        mine = {planned[table]: path for path, planned in done if table in planned}
        assert await lake.paths(table, per_table[table]) == sorted(mine.values())
        for said in await lake.rows.since(table, 0, per_table[table]):
            assert [action.path for action in said.actions] == [mine[said.row.version]]  # type: ignore[union-attr]
    # The order of cuts is one in which every table goes up by one.
    reached = dict.fromkeys(TABLES, -1)
    numbers = []
    for outgoing in await lake.rows.outgoing(WAREHOUSE):
        numbers.append(outgoing.number)
        for table, version in outgoing.tables.items():
            reached[table] += 1
            assert version == reached[table]
    assert numbers == list(range(1, 152))


async def test_of_two_who_remove_the_same_file_one_wins(lake: Lake) -> None:
    await lake.create("t")
    handles = [await lake.open() for _ in range(4)]
    version = 0
    for round_number in range(15):
        version += 1
        await lake.write("t", version, add(f"{round_number}"))
        version += 1
        change = Change("t", version, [remove(f"{round_number}")])
        plans = [lake.plan([change]) for _ in range(4)]
        await asyncio.gather(
            *(lake.put_rows(plan.id, [change], lake.rows_of(one)) for plan, one in zip(plans, handles, strict=True))
        )
        results = await asyncio.gather(*(one.commit(plan) for plan, one in zip(plans, handles, strict=True)))
        assert sorted(type(result).__name__ for result in results) == ["Committed"] + ["Conflict"] * 3
        assert await lake.paths("t", version) == []
        for plan in plans:
            await lake.rows.discard(plan.id)
    assert await lake.version_of("t") == (30, 30)


async def put_and_commit(lake: Lake, handle: CellStore, plan: Transaction, changes: list[Change]) -> CommitResult:
    await lake.put_rows(plan.id, changes, lake.rows_of(handle))
    return await handle.commit(plan)


async def test_the_same_transaction_from_many_places_is_applied_once(lake: Lake) -> None:
    await lake.create("t", "u")
    handles = [await lake.open() for _ in range(4)]
    for version in range(1, 9):
        changes = [Change(table, version, [add(f"{table}{version}")]) for table in "tu"]
        plan = lake.plan(changes, more={lake.key(f"other{version}"): (0, {"n": 1})})

        results = await asyncio.gather(*(put_and_commit(lake, handle, plan, changes) for handle in handles))
        assert sorted(isinstance(result, Committed) and result.replayed for result in results) == [False] + [True] * 3
        for table in "tu":
            assert await lake.version_of(table) == (version, version)
            assert len(await lake.rows.files(table, version)) == version


async def test_a_discard_beside_a_commit_never_loses_rows_of_it(lake: Lake) -> None:
    """Whoever comes first: the commit with all its rows, or a refusal and nothing."""
    await lake.create("t")
    other = await lake.open()
    version, applied = 1, 0
    for _ in range(30):
        change = Change("t", version, [add(f"{version}-{number}") for number in range(20)])
        plan = lake.plan([change])
        await lake.put_rows(plan.id, [change])
        result, _ = await asyncio.gather(
            lake.store.commit(plan), lake.rows_of(other).discard(plan.id), return_exceptions=True
        )
        if isinstance(result, Committed):
            applied += 1
            assert len(await lake.rows.files("t", version)) == 20 * applied
            version += 1
        else:
            assert type(result).__name__ == "RowsGone", result
        assert await lake.version_of("t") == (version - 1, version - 1)

"""What stands beside the cells of a commit takes effect with them, once, or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakepact.delta.beside import DeltaChanges, NewTable, Renamed
from lakepact.delta.ports import TableChange
from lakepact.errors import Damaged, InvalidRequest, KeepsNoRows, KeyReused, RowsGone, ValueTooLarge
from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Busy, Committed, Conflict, Prepared, State, Transaction, Write
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores import delta_rows
from lakepact.stores.memory import MemoryDocuments
from tests.conformance.cells.world import A, B
from tests.conformance.delta.lake import WAREHOUSE, Change, Lake, add, adds, remove

ICEBERG = key_of("main", "tables", "iceberg")


async def ready(lake: Lake, *tables: str, version: int = 1) -> Transaction:
    """A commit whose rows are written: the next version of these tables, one file each."""
    changes = [Change(table, version, adds(f"{table}-{version}")) for table in tables]
    plan = lake.plan(changes)
    await lake.put_rows(plan.id, changes)
    return plan


async def test_two_formats_move_in_one_commit(lake: Lake) -> None:
    await lake.create("t", "u")
    plan = await ready(lake, "t", "u")
    plan = replace(plan, writes=(*plan.writes, Write(ICEBERG, 0, {"metadata": 1})))
    assert isinstance(await lake.store.commit(plan), Committed)
    assert [await lake.version_of(table) for table in "tu"] == [(1, 1), (1, 1)]
    assert await lake.value(ICEBERG) == {"metadata": 1}
    assert await lake.paths("u", 1) == ["u-1"]


async def test_a_commit_sent_again_is_applied_once(lake: Lake) -> None:
    await lake.create("t")
    plan = await ready(lake, "t")
    first, *others = [await lake.store.commit(plan) for _ in range(3)]
    assert isinstance(first, Committed) and not first.replayed
    assert all(isinstance(other, Committed) and other.replayed and other.answer == first.answer for other in others)
    # Not even another document under the same id has any effect.
    other = replace(plan, beside=lake.beside([Change("t", 2, [])]))
    await lake.put_rows(plan.id, [Change("t", 2, [])])
    assert isinstance(await lake.store.commit(other), Committed)
    assert await lake.version_of("t") == (1, 1)
    assert [one.tables for one in await lake.rows.outgoing(WAREHOUSE)] == [{"t": 0}, {"t": 1}]


@pytest.mark.parametrize("settle", [True, False])
async def test_a_conflict_publishes_nothing(lake: Lake, settle: bool) -> None:
    await lake.create("t", "u")
    plan = await ready(lake, "t", "u")
    await lake.write("u", 1, add("first"))
    result = await lake.store.commit(plan, settle_conflict=settle)
    assert isinstance(result, Conflict) and [moved.key for moved in result.moved] == [lake.key("u")]
    assert [await lake.version_of(table) for table in "tu"] == [(0, 0), (1, 1)]
    assert await lake.paths("u", 1) == ["first"]
    if not settle:
        # The same id goes on with a new plan, once its rows have moved.
        await lake.rows.move(plan.id, "u", 1, 2)
        changes = [Change("t", 1, adds("t-1")), Change("u", 2, adds("u-1"))]
        assert isinstance(await lake.store.commit(lake.plan(changes, id=plan.id)), Committed)
        assert await lake.paths("u", 2) == ["first", "u-1"]
        assert [await lake.version_of(table) for table in "tu"] == [(1, 1), (2, 2)]


async def test_a_commit_that_meets_a_prepared_one_publishes_nothing_until_it_may(lake: Lake) -> None:
    await lake.create("t", "u")
    holder = Transaction(lake.id(), "hash", (Write(lake.key("u"), 1, {"version": 0}),))
    assert isinstance(await lake.store.prepare(holder), Prepared)
    plan = await ready(lake, "t", "u")
    assert isinstance(await lake.store.commit(plan), Busy)
    assert [await lake.version_of(table) for table in "tu"] == [(0, 0), (0, 0)]
    await lake.store.abort(holder.id)
    assert isinstance(await lake.store.commit(plan), Committed)
    assert [await lake.version_of(table) for table in "tu"] == [(1, 1), (1, 1)]


async def test_an_open_transaction_is_published_with_its_seal(lake: Lake) -> None:
    await lake.create("t")
    opened = await lake.begin()
    await lake.store.read_in(opened, [lake.key("t"), A])
    await lake.rows.stage(opened, "t", "1", "[1]")
    await lake.store.stage(opened, "1", {lake.key("t"): {"version": 1}, ICEBERG: {"metadata": 1}})
    change = Change("t", 1, adds("a"))
    await lake.put_rows(opened, [change])
    sealed = await lake.store.seal(opened, {"ok": True})
    assert sealed.beside is None
    committed = replace(sealed, beside=lake.beside([change]))
    for replayed in (False, True):
        result = await lake.store.commit(committed)
        assert isinstance(result, Committed) and result.replayed is replayed
    assert await lake.version_of("t") == (1, 1)
    assert await lake.paths("t", 1) == ["a"]
    assert await lake.rows.staged(opened) == {}


async def test_an_open_transaction_that_is_too_late_publishes_nothing(lake: Lake) -> None:
    await lake.create("t")
    opened = await lake.begin()
    await lake.store.stage(opened, "1", {lake.key("t"): {"version": 1}})
    change = Change("t", 1, adds("late"))
    await lake.put_rows(opened, [change])
    await lake.write("t", 1, add("early"))
    sealed = replace(await lake.store.seal(opened), beside=lake.beside([change]))
    assert isinstance(await lake.store.commit(sealed), Conflict)
    await lake.rows.discard(opened)
    assert await lake.paths("t", 1) == ["early"]


@pytest.mark.parametrize("was_open", [True, False])
async def test_a_prepared_transaction_is_published_by_its_commit(lake: Lake, was_open: bool) -> None:
    await lake.create("t")
    change = Change("t", 1, adds("a"))
    plan = lake.plan([change])
    if was_open:
        opened = await lake.begin()
        await lake.store.stage(opened, "1", {lake.key("t"): {"version": 1}})
        plan = replace(await lake.store.seal(opened), beside=plan.beside)
    await lake.put_rows(plan.id, [change])
    assert isinstance(await lake.store.prepare(plan), Prepared)
    assert await lake.current("t") == 0
    for replayed in (False, True):
        result = await lake.store.commit(plan)
        assert isinstance(result, Committed) and result.replayed is replayed
    assert await lake.version_of("t") == (1, 1)
    assert await lake.paths("t", 1) == ["a"]


async def test_rows_that_were_discarded_meanwhile_refuse_the_commit_and_leave_no_trace(lake: Lake) -> None:
    await lake.create("t", "u")
    plan = await ready(lake, "t", "u")
    await lake.rows.discard(plan.id)
    await lake.put_rows(plan.id, [Change("t", 1, adds("t-1"))])
    with pytest.raises(RowsGone, match="version 1 of Delta table u"):
        await lake.store.commit(plan)
    assert await lake.store.lookup(plan.id) is None
    assert [await lake.version_of(table) for table in "tu"] == [(0, 0), (0, 0)]
    await lake.put_rows(plan.id, [Change(table, 1, adds(f"{table}-1")) for table in "tu"])
    assert isinstance(await lake.store.commit(plan), Committed)


async def test_rows_that_were_discarded_refuse_a_sealed_and_a_prepared_commit_too(lake: Lake) -> None:
    await lake.create("t")
    change = Change("t", 1, adds("a"))
    for prepare, state in ((False, State.OPEN), (True, State.PREPARED)):
        opened = await lake.begin()
        await lake.store.stage(opened, "1", {lake.key("t"): {"version": 1}})
        plan = replace(await lake.store.seal(opened), beside=lake.beside([change]))
        if prepare:
            await lake.store.prepare(plan)
        with pytest.raises(RowsGone):
            await lake.store.commit(plan)
        assert (await lake.record(opened)).state is state
        assert await lake.version_of("t") == (0, 0)
    await lake.put_rows(plan.id, [change])
    assert isinstance(await lake.store.commit(plan), Committed)


async def test_more_rows_than_announced_are_as_wrong_as_fewer(lake: Lake) -> None:
    await lake.create("t")
    plan = lake.plan([Change("t", 1, adds("a"))])
    await lake.put_rows(plan.id, [Change("t", 1, adds("a", "b"))])
    with pytest.raises(RowsGone):
        await lake.store.commit(plan)


async def test_a_request_publishes_its_own_rows_and_not_those_of_another_under_its_id(lake: Lake) -> None:
    await lake.create("t")
    one, two = (replace(lake.plan([Change("t", 1, adds(path))]), request_hash=path) for path in ("one", "two"))
    two = replace(two, id=one.id)
    await lake.rows.put(one.id, [TableChange("t", 1, adds("one"))], request_hash="one")
    await lake.rows.put(two.id, [TableChange("t", 1, adds("two"))], request_hash="two")
    with pytest.raises(RowsGone):
        await lake.store.commit(one)
    with pytest.raises(RowsGone):
        await lake.rows.move(one.id, "t", 1, 1, request_hash="one")
    with pytest.raises(RowsGone):
        await lake.rows.move(one.id, "t", 1, 2, request_hash="one")
    assert isinstance(await lake.store.commit(two), Committed)
    assert await lake.paths("t", 1) == ["two"]
    with pytest.raises(KeyReused):
        await lake.store.commit(one)


async def test_a_sealed_and_a_prepared_one_are_told_apart_by_their_hash_too(lake: Lake) -> None:
    await lake.create("t", "u")
    for prepare, table in ((False, "t"), (True, "u")):
        opened, change = lake.id(), Change(table, 1, adds("a"))
        await lake.store.begin(opened, request_hash="hash")
        await lake.store.stage(opened, "1", {lake.key(table): {"version": 1}})
        plan = replace(await lake.store.seal(opened), beside=lake.beside([change]))
        await lake.rows.put(opened, [TableChange(table, 1, change.actions)], request_hash="other")
        if prepare:
            assert isinstance(await lake.store.prepare(plan), Prepared)
        with pytest.raises(RowsGone):
            await lake.store.commit(plan)
        await lake.rows.put(opened, [TableChange(table, 1, change.actions)], request_hash="hash")
        assert isinstance(await lake.store.commit(plan), Committed)
        assert await lake.version_of(table) == (1, 1)


async def test_rows_that_contradict_the_cells_are_damage_and_nothing_is_applied(lake: Lake) -> None:
    await lake.create("t", "u")
    await lake.write("t", 1, add("a"))
    skipped = lake.plan([Change("t", 3, [])], revisions={"t": 2})
    await lake.put_rows(skipped.id, [Change("t", 3, [])])
    earlier = lake.plan([Change("t", 2, [])])
    assert earlier.beside is not None
    earlier.beside["delta"]["versions"][0]["ict_ms"] = 2_000
    await lake.put_rows(earlier.id, [Change("t", 2, [])])
    changes = (
        DeltaChanges(WAREHOUSE, create=(NewTable("t", ".", "t", "file:///new"),)),
        DeltaChanges(WAREHOUSE, create=(NewTable("v", ".", "v", "file:///u"),)),
        DeltaChanges(WAREHOUSE, rename=(Renamed("v", ".", "v"),)),
        DeltaChanges(WAREHOUSE, drop=("v",)),
    )
    plans = [Transaction(lake.id(), "hash", (Write(A, 0, {"n": 1}),), beside=change.document()) for change in changes]
    for plan in (skipped, earlier, *plans):
        with pytest.raises(Damaged, match="a person must look"):
            await lake.store.commit(plan)
        assert await lake.store.lookup(plan.id) is None
    assert await lake.version_of("t") == (1, 1) and (await lake.cell(A)).revision == 0


async def test_a_removed_file_that_is_gone_from_the_rows_is_damage(lake: Lake) -> None:
    """The rows were checked when they were put, and the cell has not moved: nobody may have taken the file."""
    await lake.create("t")
    await lake.write("t", 1, add("a"))
    change = Change("t", 2, [remove("a")])
    plan = lake.plan([change])
    await lake.put_rows(plan.id, [change])
    other = Change("t", 2, [remove("a")])
    thief = lake.plan([other])
    await lake.put_rows(thief.id, [other])
    # A commit that moves the rows without the cell: a bug that the companion must not let through.
    assert isinstance(await lake.store.commit(replace(thief, writes=(Write(B, 0, {}),))), Committed)
    with pytest.raises(Damaged):
        await lake.store.commit(plan)


async def test_what_is_beside_is_checked_before_anything_is_written(lake: Lake) -> None:
    for beside, error in (
        ({}, InvalidRequest),
        ({"iceberg": {}}, InvalidRequest),
        ({"delta": {"text": "\x00"}}, InvalidRequest),
        ({"delta": {"set": {1, 2}}}, InvalidRequest),
        ({"delta": {"long": "x" * (KernelSettings().max_transaction_bytes + 1)}}, ValueTooLarge),
    ):
        plan = Transaction(lake.id(), "hash", (Write(A, 0, {}),), beside=beside)
        with pytest.raises(error):
            await lake.store.commit(plan)
        assert await lake.store.lookup(plan.id) is None


async def test_a_commit_with_nothing_beside_touches_no_rows(lake: Lake) -> None:
    await lake.create("t")
    await lake.put({A: {"n": 1}})
    assert len(await lake.rows.outgoing(WAREHOUSE)) == 1
    quiet = DeltaChanges(WAREHOUSE, outbox=False).document()
    assert isinstance(
        await lake.store.commit(Transaction(lake.id(), "hash", (Write(B, 0, {}),), beside=quiet)), Committed
    )
    assert len(await lake.rows.outgoing(WAREHOUSE)) == 1


async def test_a_store_of_documents_refuses_what_is_beside_before_it_writes_anything() -> None:
    documents = MemoryDocuments()
    store = DocumentCells(documents, SystemClock(), SystemRng(), AsyncioTasks(), KernelSettings())
    assert delta_rows(store) is None
    fresh_id = uuid7(SystemClock().now_ms(), SystemRng().bits(74))
    beside = DeltaChanges(WAREHOUSE, drop=("t",)).document()
    plan = Transaction(fresh_id, "hash", (Write(A, 0, {"n": 1}),), beside=beside)
    for step in (store.commit, store.prepare):
        with pytest.raises(KeepsNoRows, match="sqlite or postgresql"):
            await step(plan)
    assert await documents.list("", None, 10) == []
    await store.close()

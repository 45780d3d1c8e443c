"""Committing: all of it or none of it, on the revisions it was planned on."""

from __future__ import annotations

import pytest

from lakepact.errors import TransactionClosed, TransactionNotFound
from lakepact.kernel.model import Cell, Committed, Conflict, Moved, Read, State
from tests.conformance.cells.world import A, B, C, D, World, keys


async def test_a_committed_cell_has_its_value_its_revision_and_its_writer(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1}), B: (0, {"n": 2})}, answer={"status": 204})
    assert await world.store.commit(plan) == Committed(plan.id, {"status": 204})
    assert await world.store.read([A, B]) == {A: Cell(A, 1, {"n": 1}, plan.id), B: Cell(B, 1, {"n": 2}, plan.id)}


async def test_a_revision_grows_by_one_with_every_change(world: World) -> None:
    for revision in range(5):
        result = await world.store.commit(world.transaction({A: (revision, {"n": revision})}))
        assert isinstance(result, Committed)
        assert (await world.cell(A)).revision == revision + 1


async def test_a_tombstone_keeps_the_revision_and_hides_the_value(world: World) -> None:
    await world.put({A: {"n": 1}})
    gone = await world.put({A: None})
    assert await world.cell(A) == Cell(A, 2, None, gone)
    assert not (await world.cell(A)).exists


async def test_a_cell_created_after_its_tombstone_goes_on_counting(world: World) -> None:
    await world.put({A: {"n": 1}})
    await world.put({A: None})
    assert isinstance(await world.store.commit(world.transaction({A: (0, {"n": 2})})), Conflict)
    back = world.transaction({A: (2, {"n": 3})})
    assert isinstance(await world.store.commit(back), Committed)
    assert await world.cell(A) == Cell(A, 3, {"n": 3}, back.id)


async def test_a_transaction_without_writes_is_recorded(world: World) -> None:
    plan = world.transaction(answer={"looked": True})
    assert await world.store.commit(plan) == Committed(plan.id, {"looked": True})
    assert (await world.record(plan.id)).state is State.COMMITTED
    assert await world.store.commit(plan) == Committed(plan.id, {"looked": True}, replayed=True)


async def test_p4_a_transaction_commits_only_if_what_it_read_has_not_moved(world: World) -> None:
    await world.put({A: {"n": 1}})
    await world.put({A: {"n": 2}})
    stale = world.transaction({B: (0, {"n": 1})}, {A: 1})
    assert await world.store.commit(stale) == Conflict(stale.id, (Moved(A, 1, 2),))
    fresh = world.transaction({B: (0, {"n": 1})}, {A: 2, C: 0})
    assert await world.store.commit(fresh) == Committed(fresh.id, {})


async def test_p4_a_transaction_that_only_reads_is_checked_too(world: World) -> None:
    await world.put({A: {"n": 1}})
    assert isinstance(await world.store.commit(world.transaction(reads={A: 1, B: 0})), Committed)
    result = await world.store.commit(world.transaction(reads={A: 0, B: 1}))
    assert isinstance(result, Conflict)
    assert set(result.moved) == {Moved(A, 0, 1), Moved(B, 1, 0)}


async def test_a_cell_that_was_only_read_stays_as_it_was(world: World) -> None:
    first = await world.put({A: {"n": 1}})
    await world.store.commit(world.transaction({B: (0, {})}, {A: 1, C: 0}))
    assert await world.cell(A) == Cell(A, 1, {"n": 1}, first)
    assert await world.cell(C) == Cell(C)
    await world.put({C: {"n": 1}})
    assert (await world.cell(C)).revision == 1


async def test_p9_a_conflict_names_every_moved_cell_and_nothing_is_applied(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    await world.put({A: {"n": 2}, B: None})
    plan = world.transaction({A: (1, {"mine": 1}), B: (1, {"mine": 1}), C: (3, {"mine": 1}), D: (0, {"mine": 1})})
    result = await world.store.commit(plan)
    assert isinstance(result, Conflict) and result.final and not result.replayed
    assert set(result.moved) == {Moved(A, 1, 2), Moved(B, 1, 2), Moved(C, 3, 0)}
    cells = await world.store.read([A, B, C, D])
    assert [cells[key].value for key in (A, B, C, D)] == [{"n": 2}, None, None, None]
    assert [cells[key].revision for key in (A, B, C, D)] == [2, 2, 0, 0]


async def test_p9_a_conflict_names_moved_reads_beside_moved_writes(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    result = await world.store.commit(world.transaction({A: (0, {}), C: (0, {})}, {B: 0, D: 0}))
    assert isinstance(result, Conflict)
    assert set(result.moved) == {Moved(A, 0, 1), Moved(B, 0, 1)}


async def test_p2_of_two_plans_on_one_revision_only_the_first_is_applied(world: World) -> None:
    await world.put({A: {"n": 0}})
    first, second = world.transaction({A: (1, {"n": 1})}), world.transaction({A: (1, {"n": 2})})
    assert isinstance(await world.store.commit(first), Committed)
    assert isinstance(await world.store.commit(second), Conflict)
    assert await world.value(A) == {"n": 1}


async def test_many_cells_are_one_commit(world: World) -> None:
    cells = keys(100)
    await world.put({key: {"n": 0} for key in cells})
    plan = world.transaction({key: (1, {"n": 1}) for key in cells[:80]}, dict.fromkeys(cells[80:], 1))
    assert isinstance(await world.store.commit(plan), Committed)
    found = await world.store.read(cells)
    assert [found[key].value for key in cells] == [{"n": 1}] * 80 + [{"n": 0}] * 20


async def test_p5_what_is_acknowledged_is_there_for_every_later_handle(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})}, answer={"done": True})
    await world.store.commit(plan)
    other = await world.open()
    assert await world.value(A, other) == {"n": 1}
    assert await other.commit(plan) == Committed(plan.id, {"done": True}, replayed=True)


# --- the record ---


async def test_the_record_of_a_commit_tells_its_plan_and_its_answer(world: World) -> None:
    await world.put({B: {"n": 1}})
    before_ms = world.clock.now_ms()
    plan = world.transaction({A: (0, {"n": 1}), C: (0, None)}, {B: 1}, answer={"status": 204}, hash="of this request")
    await world.store.commit(plan)
    record = await world.record(plan.id)
    assert (record.id, record.state, record.request_hash) == (plan.id, State.COMMITTED, "of this request")
    assert {write.key: (write.revision, write.value) for write in record.writes} == {A: (0, {"n": 1}), C: (0, None)}
    assert record.reads == (Read(B, 1),)
    assert record.answer == {"status": 204}
    assert record.moved == ()
    assert before_ms <= record.created_ms <= world.clock.now_ms()
    assert record.decided_ms is not None and record.decided_ms >= record.created_ms


async def test_the_record_of_a_conflict_tells_what_had_moved(world: World) -> None:
    await world.put({A: {"n": 1}})
    plan = world.transaction({A: (0, {"n": 2})})
    result = await world.store.commit(plan)
    assert isinstance(result, Conflict)
    record = await world.record(plan.id)
    assert record.state is State.FAILED
    assert record.moved == result.moved


async def test_a_lookup_of_an_unused_id_is_none(world: World) -> None:
    assert await world.store.lookup(world.id()) is None


async def test_a_sealed_plan_without_its_transaction_is_refused(world: World) -> None:
    with pytest.raises(TransactionNotFound):
        await world.store.commit(world.transaction({A: (0, {})}, sealed=True))
    assert await world.cell(A) == Cell(A)


async def test_an_aborted_id_cannot_be_committed(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.abort(transaction_id)
    with pytest.raises(TransactionClosed, match="aborted"):
        await world.store.commit(world.transaction({A: (0, {})}, id=transaction_id, hash=""))
    assert await world.cell(A) == Cell(A)

"""Two phases: a prepared transaction holds its cells until it is decided or expires, and no reader notices."""

from __future__ import annotations

import pytest

from lakepact.errors import PreparedOtherwise, TransactionClosed, WrongState
from lakepact.kernel.model import Busy, Cell, Committed, Conflict, Moved, Prepared, State
from tests.conformance.cells.world import SETTINGS, A, B, C, D, World


async def test_a_prepared_transaction_is_committed_as_it_was_prepared(world: World) -> None:
    await world.put({A: {"n": 1}})
    world.clock.stop()
    plan = world.transaction({A: (1, {"n": 2}), B: (0, {"n": 2}), C: (0, None)}, answer={"early": True})
    prepared = await world.store.prepare(plan)
    assert isinstance(prepared, Prepared)
    assert prepared.expires_ms == world.clock.now_ms() + SETTINGS.open_ttl_s * 1000
    assert await world.value(A) == {"n": 1}
    for other in ({D: (0, {"n": 9})}, {A: (1, {"n": 3}), B: (0, {"n": 2}), C: (0, None)}):
        with pytest.raises(PreparedOtherwise):
            await world.store.commit(world.transaction(other, id=plan.id, answer={"wrong": True}))
    last_word = world.transaction({C: (0, None), B: (0, {"n": 2}), A: (1, {"n": 2})}, id=plan.id, answer={"late": True})
    assert await world.store.commit(last_word) == Committed(plan.id, {"late": True})
    assert await world.store.read([A, B, C, D]) == {
        A: Cell(A, 2, {"n": 2}, plan.id),
        B: Cell(B, 1, {"n": 2}, plan.id),
        C: Cell(C, 1, None, plan.id),
        D: Cell(D),
    }
    assert await world.store.commit(plan) == Committed(plan.id, {"late": True}, replayed=True)


async def test_an_open_transaction_can_be_prepared_and_committed_from_another_handle(world: World) -> None:
    transaction_id = await world.begin(ttl_s=77)
    await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    plan = await world.store.seal(transaction_id)
    expires_ms = (await world.record(transaction_id)).expires_ms
    assert expires_ms is not None
    assert await world.store.prepare(plan) == Prepared(transaction_id, expires_ms)
    other = await world.open()
    assert await other.prepare(plan) == Prepared(transaction_id, expires_ms)
    assert await other.commit(plan) == Committed(transaction_id, {})
    assert await world.value(A) == {"n": 1}


async def test_preparing_twice_is_preparing_once(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})})
    assert await world.store.prepare(plan) == await world.store.prepare(plan)


async def test_preparing_what_is_decided_gives_the_answer(world: World) -> None:
    done = world.transaction({A: (0, {"n": 1})}, answer={"n": 1})
    await world.store.commit(done)
    assert await world.store.prepare(done) == Committed(done.id, {"n": 1}, replayed=True)
    refused = world.transaction({A: (0, {"n": 1})})
    await world.store.commit(refused)
    assert await world.store.prepare(refused) == Conflict(refused.id, (Moved(A, 0, 1),), replayed=True)


async def test_an_open_transaction_is_not_prepared_without_being_sealed(world: World) -> None:
    transaction_id = await world.begin()
    with pytest.raises(WrongState):
        await world.store.prepare(world.transaction({A: (0, {})}, id=transaction_id, hash=""))


async def test_a_conflict_is_found_when_preparing(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    plan = world.transaction({A: (0, {}), C: (0, {})}, {B: 5})
    result = await world.store.prepare(plan)
    assert isinstance(result, Conflict) and result.final
    assert set(result.moved) == {Moved(A, 0, 1), Moved(B, 5, 1)}
    assert (await world.record(plan.id)).state is State.FAILED
    await world.put({A: {"n": 2}, B: {"n": 2}, C: {"n": 2}})


async def test_a_conflict_found_when_preparing_need_not_be_final(world: World) -> None:
    await world.put({A: {"n": 1}})
    plan = world.transaction({A: (0, {"mine": 1})})
    assert await world.store.prepare(plan, settle_conflict=False) == Conflict(plan.id, (Moved(A, 0, 1),), final=False)
    again = world.transaction({A: (1, {"mine": 1})}, id=plan.id)
    assert isinstance(await world.store.prepare(again), Prepared)
    assert isinstance(await world.store.commit(again), Committed)
    assert await world.value(A) == {"mine": 1}


# --- holding ---


async def test_p10_readers_never_wait_for_a_prepared_transaction(world: World) -> None:
    first = await world.put({A: {"n": 1}})
    await world.store.prepare(world.transaction({A: (1, {"n": 2}), B: (0, {"n": 2})}, {C: 0}))
    assert await world.store.read([A, B, C]) == {A: Cell(A, 1, {"n": 1}, first), B: Cell(B), C: Cell(C)}
    assert [cell.key for cell in (await world.store.scan("")).cells] == [A]


async def test_other_writers_are_told_who_is_in_the_way(world: World) -> None:
    await world.put({A: {"n": 1}})
    holder = world.transaction({A: (1, {"n": 2}), B: (0, {"n": 2})})
    await world.store.prepare(holder)
    for plan in (world.transaction({A: (1, {"n": 3})}), world.transaction({B: (0, {"n": 3}), D: (0, {})})):
        result = await world.store.commit(plan)
        assert isinstance(result, Busy)
        assert (result.id, result.owner) == (plan.id, holder.id)
        assert result.retry_after_s > 0
        prepared = await world.store.prepare(plan)
        assert isinstance(prepared, Busy) and prepared.owner == holder.id
    assert await world.value(A) == {"n": 1}
    assert (await world.cell(D)).revision == 0


async def test_p9_busy_means_nothing_was_applied_and_the_same_id_may_try_again(world: World) -> None:
    holder = world.transaction({A: (0, {"n": 1})})
    await world.store.prepare(holder)
    plan = world.transaction({A: (0, {"mine": 1}), B: (0, {"mine": 1})})
    assert isinstance(await world.store.commit(plan), Busy)
    record = await world.store.lookup(plan.id)
    assert record is None or record.state is State.RETRYABLE
    await world.store.abort(holder.id)
    assert isinstance(await world.store.commit(plan), Committed)
    assert await world.value(A) == {"mine": 1}


async def test_cells_that_were_only_read_are_held_too(world: World) -> None:
    await world.put({A: {"n": 1}})
    holder = world.transaction({B: (0, {"n": 1})}, {A: 1, C: 0})
    await world.store.prepare(holder)
    for blocked in (world.transaction({A: (1, {})}), world.transaction({C: (0, {})})):
        result = await world.store.commit(blocked)
        assert isinstance(result, Busy) and result.owner == holder.id
    assert await world.store.commit(holder) == Committed(holder.id, {})
    await world.put({A: {"n": 2}, C: {"n": 2}})
    assert [(await world.cell(key)).revision for key in (A, B, C)] == [2, 1, 1]


async def test_p10_a_prepared_transaction_blocks_nobody_else(world: World) -> None:
    await world.store.prepare(world.transaction({A: (0, {"n": 1}), B: (0, {"n": 1})}))
    assert isinstance(await world.store.commit(world.transaction({C: (0, {"n": 1})}, {D: 0})), Committed)


async def test_a_writer_that_was_busy_gets_through_when_the_holder_ends(world: World) -> None:
    """Whether a store waits for the holder or answers at once: the same transaction may be sent again."""
    await world.put({A: {"n": 1}})
    holder, plan = world.transaction({A: (1, {"n": 2})}), world.transaction({A: (1, {"n": 3})})
    await world.store.prepare(holder)
    assert isinstance(await world.store.commit(plan), Busy)
    await world.store.abort(holder.id)
    assert isinstance(await world.store.commit(plan), Committed)
    assert await world.value(A) == {"n": 3}


async def test_p4_a_prepared_transaction_cannot_be_skewed(world: World) -> None:
    """It has read A and will write B; whoever has read B and writes A must not slip in between."""
    await world.put({A: {"on": 1}, B: {"on": 1}})
    holder = world.transaction({B: (1, {"on": 0})}, {A: 1})
    await world.store.prepare(holder)
    other = world.transaction({A: (1, {"on": 0})}, {B: 1})
    assert isinstance(await world.store.commit(other), Busy)
    assert isinstance(await world.store.commit(holder), Committed)
    assert isinstance(await world.store.commit(other), Conflict)


# --- ending ---


async def test_aborting_frees_the_cells(world: World) -> None:
    await world.put({A: {"n": 1}})
    plan = world.transaction({A: (1, {"n": 2}), B: (0, {"n": 2})}, {C: 0})
    await world.store.prepare(plan)
    assert (await (await world.open()).abort(plan.id)).state is State.ABORTED
    assert (await world.store.abort(plan.id)).state is State.ABORTED
    await world.put({A: {"n": 3}, B: {"n": 3}, C: {"n": 3}})
    with pytest.raises(TransactionClosed, match="aborted"):
        await world.store.commit(plan)
    with pytest.raises(TransactionClosed, match="aborted"):
        await world.store.prepare(plan)
    assert [(await world.cell(key)).revision for key in (A, B, C)] == [2, 1, 1]


async def test_p6_whoever_meets_an_expired_lock_ends_its_transaction(world: World) -> None:
    await world.put({A: {"n": 1}})
    dead = world.transaction({A: (1, {"dead": 1}), B: (0, {"dead": 1})})
    await world.store.prepare(dead)
    world.clock.advance(SETTINGS.open_ttl_s + 1)
    assert isinstance(await world.store.commit(world.transaction({A: (1, {"n": 2})})), Committed)
    assert (await world.record(dead.id)).state is State.ABORTED
    assert isinstance(await world.store.commit(world.transaction({B: (0, {"n": 2})})), Committed)
    with pytest.raises(TransactionClosed):
        await world.store.commit(dead)
    assert await world.value(A) == {"n": 2}


async def test_p6_recovery_ends_expired_locks_nobody_meets(world: World) -> None:
    dead = world.transaction({A: (0, {"dead": 1})}, {B: 0})
    await world.store.prepare(dead)
    world.clock.advance(SETTINGS.open_ttl_s + 1)
    assert (await world.store.recover()).expired == 1
    assert (await world.record(dead.id)).state is State.ABORTED
    await world.put({A: {"n": 1}, B: {"n": 1}})


async def test_a_prepared_transaction_past_its_time_is_not_committed(world: World) -> None:
    plan = world.transaction({A: (0, {"late": 1})})
    await world.store.prepare(plan)
    world.clock.advance(SETTINGS.open_ttl_s + 1)
    with pytest.raises(TransactionClosed):
        await world.store.commit(plan)
    assert await world.cell(A) == Cell(A)


async def test_a_renewed_prepared_transaction_keeps_its_cells(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})})
    await world.store.prepare(plan)
    await world.store.renew(plan.id, SETTINGS.open_ttl_s * 3)
    world.clock.advance(SETTINGS.open_ttl_s + 1)
    assert isinstance(await world.store.commit(world.transaction({A: (0, {"n": 2})})), Busy)
    assert (await world.store.recover()).expired == 0
    assert isinstance(await world.store.commit(plan), Committed)
    assert await world.value(A) == {"n": 1}


async def test_nothing_is_staged_into_a_prepared_transaction(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    plan = await world.store.seal(transaction_id)
    await world.store.prepare(plan)
    with pytest.raises(WrongState):
        await world.store.stage(transaction_id, "2", {B: {"n": 1}})
    with pytest.raises(WrongState):
        await world.store.read_in(transaction_id, [B])
    assert isinstance(await world.store.commit(plan), Committed)


async def test_an_open_transaction_sees_the_past_of_a_prepared_commit(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    plan = world.transaction({A: (1, {"n": 2})}, {B: 1})
    await world.store.prepare(plan)
    reader = await world.begin()
    assert (await world.store.read_in(reader, [A]))[A].value == {"n": 1}
    await world.store.commit(plan)
    result = await world.store.commit(await world.store.seal(reader))
    assert result == Conflict(reader, (Moved(A, 1, 2),))

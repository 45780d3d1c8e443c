"""P3, exactly once: the same id and hash get the same answer, another hash gets none."""

from __future__ import annotations

import pytest

from lakepact.errors import Contended, KeyReused, TransactionClosed, WrongState
from lakepact.kernel.model import Committed, Conflict, Failed, Moved, State
from tests.conformance.cells.world import A, B, World


async def test_p3_the_same_id_again_gets_the_stored_answer_and_no_second_effect(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})}, answer={"status": 204})
    await world.store.commit(plan)
    assert await world.store.commit(plan) == Committed(plan.id, {"status": 204}, replayed=True)
    assert (await world.cell(A)).revision == 1


async def test_p3_the_answer_is_the_same_however_much_has_happened_since(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})}, answer={"n": 1})
    await world.store.commit(plan)
    for number in range(3):
        await world.put({A: {"n": number}})
    assert await world.store.commit(plan) == Committed(plan.id, {"n": 1}, replayed=True)
    assert (await world.cell(A)).revision == 4


async def test_p3_the_stored_answer_counts_not_the_one_sent_again(world: World) -> None:
    first = world.transaction({A: (0, {"n": 1})}, answer={"first": True})
    await world.store.commit(first)
    again = world.transaction({A: (0, {"n": 2})}, id=first.id, answer={"second": True})
    assert await world.store.commit(again) == Committed(first.id, {"first": True}, replayed=True)
    assert await world.value(A) == {"n": 1}


async def test_p9_a_conflict_is_final_even_if_the_cells_come_to_fit(world: World) -> None:
    plan = world.transaction({A: (1, {"late": True})})
    assert await world.store.commit(plan) == Conflict(plan.id, (Moved(A, 1, 0),))
    await world.put({A: {"n": 1}})
    assert await world.store.commit(plan) == Conflict(plan.id, (Moved(A, 1, 0),), replayed=True)
    assert await world.value(A) == {"n": 1}


async def test_p3_an_id_written_in_capitals_is_the_same_id(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})})
    await world.store.commit(plan)
    shouted = world.transaction({A: (0, {"n": 1})}, id=type(plan.id)(plan.id.upper()))
    assert await world.store.commit(shouted) == Committed(plan.id, {}, replayed=True)
    assert (await world.cell(A)).revision == 1


# --- another request under the same id ---


async def test_another_request_under_a_committed_id_is_refused(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})}, hash="one")
    await world.store.commit(plan)
    await _all_refused(world, plan.id)
    assert (await world.record(plan.id)).state is State.COMMITTED


async def test_another_request_under_an_id_with_a_stored_conflict_is_refused(world: World) -> None:
    plan = world.transaction({A: (5, {"n": 1})}, hash="one")
    await world.store.commit(plan)
    await _all_refused(world, plan.id)


async def test_another_request_under_a_failed_id_is_refused(world: World) -> None:
    transaction_id = world.id()
    await world.store.fail(transaction_id, "one", {"status": 404})
    await _all_refused(world, transaction_id)


async def test_another_request_under_a_retryable_id_is_refused(world: World) -> None:
    plan = world.transaction({A: (5, {"n": 1})}, hash="one")
    await world.store.commit(plan, settle_conflict=False)
    await _all_refused(world, plan.id)
    assert (await world.record(plan.id)).state is State.RETRYABLE


async def test_another_request_under_an_open_id_is_refused(world: World) -> None:
    record = await world.store.begin(world.id(), request_hash="one")
    await _all_refused(world, record.id)
    assert (await world.record(record.id)).state is State.OPEN


async def test_another_request_under_a_prepared_id_is_refused(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})}, hash="one")
    await world.store.prepare(plan)
    await _all_refused(world, plan.id)
    assert (await world.record(plan.id)).state is State.PREPARED


async def _all_refused(world: World, transaction_id: object) -> None:
    other = world.transaction({B: (0, {"n": 2})}, id=transaction_id, hash="two")  # type: ignore[arg-type]
    with pytest.raises(KeyReused, match="different request"):
        await world.store.commit(other)
    with pytest.raises(KeyReused):
        await world.store.prepare(other)
    with pytest.raises(KeyReused):
        await world.store.fail(other.id, "two", {})
    with pytest.raises(KeyReused):
        await world.store.begin(other.id, request_hash="two")
    assert (await world.cell(B)).revision == 0


# --- conflicts that are not settled ---


async def test_an_unsettled_conflict_can_be_committed_with_a_new_plan(world: World) -> None:
    await world.put({A: {"n": 1}})
    plan = world.transaction({A: (0, {"mine": True})})
    refused = await world.store.commit(plan, settle_conflict=False)
    assert refused == Conflict(plan.id, (Moved(A, 0, 1),), final=False)
    assert (await world.record(plan.id)).state is State.RETRYABLE
    again = world.transaction({A: (1, {"mine": True}), B: (0, {"mine": True})}, id=plan.id, answer={"ok": True})
    assert await world.store.commit(again) == Committed(plan.id, {"ok": True})
    assert await world.value(A) == {"mine": True}
    assert await world.value(B) == {"mine": True}


async def test_an_unsettled_conflict_can_conflict_again_and_then_be_settled(world: World) -> None:
    plan = world.transaction({A: (1, {})})
    for _ in range(2):
        assert await world.store.commit(plan, settle_conflict=False) == Conflict(
            plan.id, (Moved(A, 1, 0),), final=False
        )
    assert await world.store.commit(plan) == Conflict(plan.id, (Moved(A, 1, 0),))
    assert await world.store.commit(plan, settle_conflict=False) == Conflict(plan.id, (Moved(A, 1, 0),), replayed=True)


async def test_an_unsettled_conflict_can_be_failed(world: World) -> None:
    plan = world.transaction({A: (1, {})})
    await world.store.commit(plan, settle_conflict=False)
    assert await world.store.fail(plan.id, "hash", {"status": 409}) == Failed(plan.id, {"status": 409})
    assert await world.store.commit(plan) == Failed(plan.id, {"status": 409}, replayed=True)
    record = await world.record(plan.id)
    assert (record.state, record.answer, record.moved) == (State.FAILED, {"status": 409}, ())


async def test_an_unsettled_conflict_can_be_given_up(world: World) -> None:
    plan = world.transaction({A: (1, {})})
    await world.store.commit(plan, settle_conflict=False)
    assert (await world.store.abort(plan.id)).state is State.ABORTED
    with pytest.raises(TransactionClosed):
        await world.store.commit(world.transaction({A: (0, {})}, id=plan.id))


async def test_a_retryable_transaction_is_not_renewed(world: World) -> None:
    plan = world.transaction({A: (1, {})})
    await world.store.commit(plan, settle_conflict=False)
    with pytest.raises(WrongState):
        await world.store.renew(plan.id)


# --- refusals the caller records ---


async def test_a_recorded_refusal_is_the_answer_of_its_id(world: World) -> None:
    plan = world.transaction({A: (0, {})})
    assert await world.store.fail(plan.id, "hash", {"status": 404}) == Failed(plan.id, {"status": 404})
    assert await world.store.fail(plan.id, "hash", {"other": 1}) == Failed(plan.id, {"status": 404}, replayed=True)
    assert await world.store.commit(plan) == Failed(plan.id, {"status": 404}, replayed=True)
    assert await world.store.prepare(plan) == Failed(plan.id, {"status": 404}, replayed=True)
    assert (await world.cell(A)).revision == 0


async def test_a_committed_transaction_cannot_be_failed(world: World) -> None:
    plan = world.transaction({A: (0, {})}, answer={"status": 204})
    await world.store.commit(plan)
    assert await world.store.fail(plan.id, "hash", {}) == Committed(plan.id, {"status": 204}, replayed=True)
    assert (await world.record(plan.id)).state is State.COMMITTED


async def test_a_stored_conflict_cannot_be_failed_over(world: World) -> None:
    plan = world.transaction({A: (1, {})})
    await world.store.commit(plan)
    with pytest.raises(WrongState):
        await world.store.fail(plan.id, "hash", {})
    assert await world.store.commit(plan) == Conflict(plan.id, (Moved(A, 1, 0),), replayed=True)


async def test_an_open_transaction_can_be_failed_and_is_then_closed(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    assert await world.store.fail(transaction_id, "", {"status": 400}) == Failed(transaction_id, {"status": 400})
    with pytest.raises(TransactionClosed):
        await world.store.stage(transaction_id, "2", {A: {"n": 2}})
    assert (await world.cell(A)).revision == 0


async def test_a_prepared_transaction_cannot_be_failed(world: World) -> None:
    plan = world.transaction({A: (0, {"n": 1})})
    await world.store.prepare(plan)
    with pytest.raises(Contended):
        await world.store.fail(plan.id, "hash", {})
    assert isinstance(await world.store.commit(plan), Committed)


async def test_an_aborted_transaction_cannot_be_failed(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.abort(transaction_id)
    with pytest.raises(TransactionClosed):
        await world.store.fail(transaction_id, "", {})

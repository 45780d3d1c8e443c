"""Listing, recovery and collection."""

from __future__ import annotations

import asyncio

import pytest

from lakepact.errors import InvalidTransactionId, SnapshotTooOld, TransactionClosed
from lakepact.kernel.identity import TransactionId, first_id_of, timestamp_ms
from lakepact.kernel.model import Committed, Conflict, Failed, Moved, State, TransactionRecord
from lakepact.kernel.ports import CellStore
from tests.conformance.cells.world import SETTINGS, A, B, World

_DAY_S = 86_400


# --- listing ---


async def _listed(store: CellStore, limit: int = 50, **filters: object) -> list[TransactionRecord]:
    found: list[TransactionRecord] = []
    after: str | None = None
    for _ in range(200):
        page = await store.transactions(after=after, limit=limit, **filters)  # type: ignore[arg-type]
        assert len(page.transactions) <= limit
        found.extend(page.transactions)
        after = page.after
        if after is None:
            return found
    raise AssertionError("the listing does not end")


async def _one_of_each(world: World) -> dict[State, TransactionId]:
    committed = await world.put({A: {"n": 1}})
    await world.store.fail(failed := world.id(), "hash", {})
    retryable = world.transaction({A: (7, {})})
    await world.store.commit(retryable, settle_conflict=False)
    aborted = await world.begin()
    await world.store.abort(aborted)
    prepared = world.transaction({B: (0, {})})
    await world.store.prepare(prepared)
    return {
        State.COMMITTED: committed,
        State.FAILED: failed,
        State.RETRYABLE: retryable.id,
        State.ABORTED: aborted,
        State.PREPARED: prepared.id,
        State.OPEN: await world.begin(),
    }


async def test_transactions_are_listed_by_state(world: World) -> None:
    ids = await _one_of_each(world)
    for state, transaction_id in ids.items():
        listed = await _listed(world.store, states=[state])
        assert [record.id for record in listed] == [transaction_id]
        assert listed[0] == await world.record(transaction_id)
    undecided = await _listed(world.store, states=(State.OPEN, State.PREPARED, State.RETRYABLE))
    assert {record.state for record in undecided} == {State.OPEN, State.PREPARED, State.RETRYABLE}
    assert {record.id for record in await _listed(world.store)} == set(ids.values())


@pytest.mark.parametrize("limit", [1, 3, 100])
async def test_transactions_are_listed_in_the_order_of_their_ids(world: World, limit: int) -> None:
    ids = []
    for number in range(7):
        ids.append(await world.put({A: {"n": number}}))
        world.clock.advance(_DAY_S / 2)
    assert [record.id for record in await _listed(world.store, limit)] == sorted(ids)


async def test_a_listing_goes_on_behind_any_id(world: World) -> None:
    ids = []
    for number in range(3):
        ids.append(await world.put({A: {"n": number}}))
        world.clock.advance(_DAY_S)
    page = await world.store.transactions(limit=2)
    assert ([one.id for one in page.transactions], page.after) == (ids[:2], ids[1])
    never_used = first_id_of(timestamp_ms(ids[1]))
    for after, rest in ((ids[0], ids[1:]), (never_used, ids[1:]), (ids[2], [])):
        assert [one.id for one in (await world.store.transactions(after=after)).transactions] == rest


async def test_transactions_are_listed_by_age(world: World) -> None:
    old = await world.begin()
    world.clock.advance(60)
    between_ms = world.clock.now_ms()
    world.clock.advance(60)
    new = await world.begin()
    assert [record.id for record in await _listed(world.store, created_before_ms=between_ms)] == [old]
    assert [record.id for record in await _listed(world.store, states=[State.OPEN])] == [old, new]
    assert await _listed(world.store, states=[State.COMMITTED], created_before_ms=between_ms) == []


# --- recovery ---


async def test_p6_recovery_ends_what_has_outlived_its_time(world: World) -> None:
    ids = await _one_of_each(world)
    world.expire()
    total = 0
    while (pass_ := await world.store.recover()).expired or pass_.more:
        total += pass_.expired
    assert total == 3
    for state, transaction_id in ids.items():
        expected = state if state.final else State.ABORTED
        assert (await world.record(transaction_id)).state is expected
    await world.put({A: {"n": 2}, B: {"n": 2}})


async def test_recovery_leaves_alone_what_is_still_in_its_time(world: World) -> None:
    ids = await _one_of_each(world)
    await world.store.recover()
    for state, transaction_id in ids.items():
        assert (await world.record(transaction_id)).state is state


async def test_an_expired_retryable_id_cannot_be_committed_any_more(world: World) -> None:
    plan = world.transaction({A: (7, {})})
    await world.store.commit(plan, settle_conflict=False)
    world.clock.advance(SETTINGS.retryable_s + 1)
    with pytest.raises(TransactionClosed):
        await world.store.commit(world.transaction({A: (0, {})}, id=plan.id))
    assert (await world.record(plan.id)).state is State.ABORTED


async def test_p7_recovery_converges_whoever_runs_it_and_how_often(world: World) -> None:
    ids = await _one_of_each(world)
    handles = [world.store, await world.open(), await world.open()]
    world.expire()
    await asyncio.gather(*(handle.recover() for handle in handles))
    await world.store.recover()
    first = await _listed(world.store)
    assert {record.id for record in first} == set(ids.values())
    assert all(record.state.final for record in first)
    for handle in handles:
        again = await handle.recover()
        assert (again.expired, again.given_up, again.left) == (0, 0, 0)
    assert await _listed(world.store) == first


async def test_recovery_goes_on_where_its_limit_stopped_it(world: World) -> None:
    for _ in range(5):
        await world.begin(ttl_s=10)
    world.clock.advance(11)
    expired = 0
    for _ in range(20):
        pass_ = await world.store.recover(limit=2)
        expired += pass_.expired
        if not pass_.more and not pass_.left:
            break
    assert expired == 5
    assert await _listed(world.store, states=[State.OPEN]) == []


async def test_p8_recovery_keeps_what_an_open_transaction_may_still_read(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    old = await world.begin()
    await world.store.read_in(old, [A])
    await world.put({A: {"n": 2}, B: {"n": 2}})
    new = await world.begin()
    await world.store.read_in(new, [A])
    await world.put({A: {"n": 3}, B: {"n": 3}})
    for _ in range(2):
        await world.store.recover()
        for transaction_id, number in ((old, 1), (new, 2)):
            try:
                seen = await world.store.read_in(transaction_id, [A, B])
            except SnapshotTooOld:
                continue
            assert [seen[key].value for key in (A, B)] == [{"n": number}] * 2
    await world.store.abort(old)
    await world.store.recover()
    try:
        assert (await world.store.read_in(new, [B]))[B].value == {"n": 2}
    except SnapshotTooOld:
        return


# --- collection ---


async def _collect_all(store: CellStore) -> tuple[int, int]:
    trimmed = deleted = 0
    for _ in range(20):
        pass_ = await store.collect()
        trimmed, deleted = trimmed + pass_.trimmed, deleted + pass_.deleted
        if not (pass_.trimmed or pass_.deleted or pass_.more):
            return trimmed, deleted
    raise AssertionError("the collection does not end")


async def test_p3_a_trimmed_record_still_gives_its_answer(world: World) -> None:
    done = world.transaction({A: (0, {"n": 1})}, answer={"status": 204})
    refused = world.transaction({A: (0, {"n": 2})})
    failed = world.id()
    await world.store.commit(done)
    await world.store.commit(refused)
    await world.store.fail(failed, "hash", {"status": 404})
    assert await _collect_all(world.store) == (0, 0)
    world.clock.advance(SETTINGS.trim_after_s + 60)
    await world.store.recover()
    trimmed, deleted = await _collect_all(world.store)
    assert trimmed >= 2 and deleted == 0
    assert await world.store.commit(done) == Committed(done.id, {"status": 204}, replayed=True)
    assert await world.store.commit(refused) == Conflict(refused.id, (Moved(A, 0, 1),), replayed=True)
    assert await world.store.fail(failed, "hash", {}) == Failed(failed, {"status": 404}, replayed=True)
    record = await world.record(done.id)
    assert (record.state, record.request_hash, record.answer) == (State.COMMITTED, "hash", {"status": 204})
    assert (record.writes, record.reads) == ((), ())
    assert await world.value(A) == {"n": 1}


async def test_p8_what_is_not_finished_is_never_collected(world: World) -> None:
    patient = await world.open(settings=type(SETTINGS)(max_ttl_s=100 * _DAY_S))
    record = await patient.begin(world.id(), ttl_s=90 * _DAY_S)
    await patient.stage(record.id, "1", {A: {"n": 1}})
    world.clock.advance(40 * _DAY_S)
    await _collect_all(patient)
    plan = await patient.seal(record.id)
    assert [write.key for write in plan.writes] == [A]


async def test_p3_a_stub_is_deleted_only_when_its_id_is_refused_anyway(world: World) -> None:
    world.clock.stop()
    plan = world.transaction({A: (0, {"n": 1})})
    await world.store.commit(plan)
    await world.store.recover()
    world.clock.advance(SETTINGS.horizon_days * _DAY_S - 60)
    await _collect_all(world.store)
    assert isinstance(await world.store.commit(plan), Committed)
    world.clock.advance(SETTINGS.slack_s)
    await _collect_all(world.store)
    assert await world.store.lookup(plan.id) is not None
    with pytest.raises(InvalidTransactionId):
        await world.store.commit(plan)
    world.clock.advance(120)
    await _collect_all(world.store)
    assert await world.store.lookup(plan.id) is None
    with pytest.raises(InvalidTransactionId):
        await world.store.commit(plan)
    assert await world.value(A) == {"n": 1}


async def test_p7_collecting_twice_changes_nothing_more(world: World) -> None:
    await world.put({A: {"n": 1}})
    world.clock.advance(SETTINGS.trim_after_s + 60)
    await world.store.recover()
    other = await world.open()
    await asyncio.gather(world.store.collect(), other.collect())
    await _collect_all(world.store)
    assert await _collect_all(other) == (0, 0)


async def test_a_listing_may_begin_at_an_instant(world: World) -> None:
    ids, made_ms = [], []
    for number in range(4):
        made_ms.append(world.clock.now_ms())
        ids.append(await world.put({A: {"n": number}}))
        world.clock.advance(_DAY_S / 3)
    for number, since_ms in enumerate(made_ms):
        assert [one.id for one in await _listed(world.store, 1, made_since_ms=since_ms)] == ids[number:]

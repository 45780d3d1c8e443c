"""Open transactions: staged over several calls, reading at one instant, decided at one instant.

One file, as it is one contract: the life of an open transaction, from `begin` to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from lakepact.errors import (
    Contended,
    KeyReused,
    SnapshotTooOld,
    TooManyCells,
    TransactionClosed,
    ValueTooLarge,
    WrongState,
)
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Committed, Conflict, Isolation, Moved, Read, State, Transaction
from lakepact.kernel.ports import CellStore
from tests.conformance.cells.world import SETTINGS, A, B, C, D, World, keys


def _writes(plan: Transaction) -> dict[str, tuple[int, object]]:
    return {write.key: (write.revision, write.value) for write in plan.writes}


def _reads(plan: Transaction) -> dict[str, int]:
    return {read.key: read.revision for read in plan.reads}


# --- begin ---


async def test_a_begun_transaction_is_open_until_it_expires(world: World) -> None:
    world.clock.stop()
    now_ms = world.clock.now_ms()
    transaction_id = world.id()
    record = await world.store.begin(transaction_id, request_hash="h", ttl_s=60, properties={"by": "a test", "ü": "ü"})
    assert (record.id, record.state, record.request_hash) == (transaction_id, State.OPEN, "h")
    assert record.isolation is Isolation.SERIALIZABLE
    assert record.properties == {"by": "a test", "ü": "ü"}
    assert record.expires_ms is not None and record.expires_ms - now_ms == 60_000
    assert await world.record(transaction_id) == record


async def test_a_transaction_lives_as_long_as_the_settings_say_unless_it_asks(world: World) -> None:
    world.clock.stop()
    record = await world.store.begin(world.id())
    assert record.expires_ms is not None
    assert record.expires_ms - record.created_ms == SETTINGS.open_ttl_s * 1000


async def test_beginning_twice_is_beginning_once(world: World) -> None:
    first = await world.store.begin(world.id(), request_hash="h", ttl_s=60, isolation=Isolation.SNAPSHOT)
    await world.store.stage(first.id, "1", {A: {"n": 1}})
    again = await (await world.open()).begin(first.id, request_hash="h", ttl_s=600)
    assert (again.created_ms, again.expires_ms, again.isolation) == (first.created_ms, first.expires_ms, "snapshot")
    assert _writes(await world.store.seal(first.id)) == {A: (0, {"n": 1})}
    with pytest.raises(KeyReused):
        await world.store.begin(first.id, request_hash="other")


async def test_an_open_transaction_holds_nothing(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [A])
    await world.store.stage(transaction_id, "1", {A: {"mine": 1}, B: {"mine": 1}})
    await world.put({A: {"theirs": 1}, B: {"theirs": 1}})
    assert await world.value(A) == {"theirs": 1}


# --- reading inside ---


async def test_staged_values_are_seen_inside_and_only_inside(world: World) -> None:
    first = await world.put({A: {"n": 1}, B: {"n": 1}, D: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 2}, C: {"n": 2}, D: None})
    assert await world.store.read_in(transaction_id, [A, B, C, D]) == {
        A: Cell(A, 2, {"n": 2}, transaction_id),
        B: Cell(B, 1, {"n": 1}, first),
        C: Cell(C, 1, {"n": 2}, transaction_id),
        D: Cell(D, 2, None, transaction_id),
    }
    assert await world.store.read([A, B, C, D]) == {
        A: Cell(A, 1, {"n": 1}, first),
        B: Cell(B, 1, {"n": 1}, first),
        C: Cell(C),
        D: Cell(D, 1, {"n": 1}, first),
    }


async def test_a_staged_cell_is_shown_one_above_its_base_however_often_it_is_staged(world: World) -> None:
    await world.put({A: {"n": 1}})
    transaction_id = await world.begin()
    for number in range(3):
        await world.store.stage(transaction_id, str(number), {A: {"n": number}})
        assert (await world.store.read_in(transaction_id, [A]))[A] == Cell(A, 2, {"n": number}, transaction_id)


async def test_p1_all_reads_inside_are_of_one_instant_or_refused(world: World) -> None:
    before = await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    assert (await world.store.read_in(transaction_id, [A]))[A] == Cell(A, 1, {"n": 1}, before)
    for number in range(2, 5):
        await world.put({A: {"n": number}, B: {"n": number}, C: {"n": number}})
    try:
        seen = await world.store.read_in(transaction_id, [A, B, C])
    except SnapshotTooOld:
        return
    assert seen == {A: Cell(A, 1, {"n": 1}, before), B: Cell(B, 1, {"n": 1}, before), C: Cell(C)}


async def test_p1_the_instant_is_the_same_from_every_handle(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    assert (await world.store.read_in(transaction_id, [A]))[A].value == {"n": 1}
    other = await world.open()
    await world.put({B: {"n": 2}, A: {"n": 2}}, other)
    try:
        seen = await other.read_in(transaction_id, [B])
    except SnapshotTooOld:
        return
    assert seen[B].value == {"n": 1}


async def test_p1_a_cell_dropped_and_made_again_is_seen_as_it_was(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    await world.put({A: None})
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [B])
    await world.put({A: {"n": 3}, B: None})
    await world.put({A: {"n": 4}, B: {"n": 3}})
    try:
        seen = await world.store.read_in(transaction_id, [A, B])
    except SnapshotTooOld:
        return
    assert (seen[A].revision, seen[A].value) == (2, None)
    assert (seen[B].revision, seen[B].value) == (1, {"n": 1})


async def test_p1_transactions_begun_at_different_times_see_different_instants(world: World) -> None:
    opened = []
    for number in range(4):
        await world.put({A: {"n": number}, B: {"n": number}})
        transaction_id = await world.begin()
        assert (await world.store.read_in(transaction_id, [A]))[A].value == {"n": number}
        opened.append(transaction_id)
    for number, transaction_id in enumerate(opened):
        try:
            seen = await world.store.read_in(transaction_id, [A, B])
        except SnapshotTooOld:
            assert number < 3
            continue
        assert {cell.value["n"] for cell in seen.values() if cell.value} == {number}
        assert {cell.revision for cell in seen.values()} == {number + 1}


async def test_p1_readers_inside_never_see_half_of_a_commit(world: World) -> None:
    """Transactions begin and read two cells in two calls, while others move both together."""
    await world.put({A: {"n": 0}, B: {"n": 0}})
    done = asyncio.Event()
    looked = 0

    async def move() -> None:
        for number in range(1, 1_000):
            await world.put({A: {"n": number}, B: {"n": number}})
            # Where no history is kept a reader gets through only between two moves: go on until some have, and give
            # readers on a slow machine longer and longer pauses.
            if number >= 40 and looked >= 3:
                break
            await asyncio.sleep(0.001 * number * (number % 8 == 0))
        done.set()

    async def look() -> None:
        nonlocal looked
        while not done.is_set():
            try:
                transaction_id = await world.begin()
            except Contended:
                # The commits before it did not end in time.
                continue
            try:
                first = (await world.store.read_in(transaction_id, [A]))[A]
                second = (await world.store.read_in(transaction_id, [B]))[B]
            except SnapshotTooOld:
                pass
            else:
                assert (first.value, first.revision) == (second.value, second.revision)
                looked += 1
            await world.store.abort(transaction_id)

    await asyncio.gather(move(), look(), look())
    assert looked > 0


# --- staging ---


async def test_the_last_value_staged_for_a_cell_wins(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 1}, B: {"n": 1}})
    await world.store.stage(transaction_id, "2", {A: None})
    await world.store.stage(transaction_id, "3", {A: {"n": 3}})
    assert _writes(await world.store.seal(transaction_id)) == {A: (0, {"n": 3}), B: (0, {"n": 1})}


async def test_p3_the_same_operation_is_staged_once(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "first", {A: {"n": 1}})
    await world.store.stage(transaction_id, "second", {A: {"n": 2}})
    await world.store.stage(transaction_id, "first", {A: {"n": 1}})
    await (await world.open()).stage(transaction_id, "first", {A: {"n": 1}})
    assert _writes(await world.store.seal(transaction_id)) == {A: (0, {"n": 2})}


async def test_p3_a_staged_operation_sent_again_after_the_seal_is_acknowledged(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "first", {A: {"n": 1}})
    await world.store.seal(transaction_id)
    await world.store.stage(transaction_id, "first", {A: {"n": 1}})
    assert _writes(await world.store.seal(transaction_id)) == {A: (0, {"n": 1})}


async def test_the_same_operation_id_in_two_transactions_is_two_operations(world: World) -> None:
    one, two = await world.begin(), await world.begin()
    await world.store.stage(one, "op", {A: {"n": 1}})
    await world.store.stage(two, "op", {A: {"n": 2}})
    assert _writes(await world.store.seal(one)) == {A: (0, {"n": 1})}
    assert _writes(await world.store.seal(two)) == {A: (0, {"n": 2})}


async def test_staging_nothing_is_fine(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {})
    assert (await world.store.seal(transaction_id)).writes == ()


async def test_a_write_is_based_on_what_was_read(world: World) -> None:
    await world.put({A: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [A])
    await world.put({A: {"n": 2}})
    await world.store.stage(transaction_id, "1", {A: {"n": 3}})
    plan = await world.store.seal(transaction_id)
    assert _writes(plan) == {A: (1, {"n": 3})}
    result = await world.store.commit(plan)
    assert result == Conflict(transaction_id, (Moved(A, 1, 2),))
    assert await world.value(A) == {"n": 2}


async def test_p2_a_write_never_read_cannot_be_applied_over_a_change_after_it_was_staged(world: World) -> None:
    await world.put({A: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 3}})
    await world.put({A: {"n": 2}})
    assert isinstance(await world.store.commit(await world.store.seal(transaction_id)), Conflict)
    assert await world.value(A) == {"n": 2}


async def test_staging_calls_side_by_side_are_all_in_the_plan(world: World) -> None:
    transaction_id = await world.begin()
    handles = [world.store, await world.open()]
    cells = keys(20)
    await asyncio.gather(
        *(handles[number % 2].stage(transaction_id, key, {key: {"n": number}}) for number, key in enumerate(cells))
    )
    assert _writes(await world.store.seal(transaction_id)) == {
        key: (0, {"n": number}) for number, key in enumerate(cells)
    }


async def test_a_transaction_cannot_outgrow_what_a_commit_may_hold(world: World) -> None:
    transaction_id = await world.begin()
    cells = keys(SETTINGS.max_cells + 1)
    await world.store.stage(transaction_id, "1", {key: {} for key in cells[:60]})
    await world.store.read_in(transaction_id, cells[60:-1])
    with pytest.raises(TooManyCells):
        await world.store.stage(transaction_id, "2", {cells[-1]: {}})
    with pytest.raises(TooManyCells):
        await world.store.read_in(transaction_id, [cells[-1]])
    await world.store.stage(transaction_id, "3", {cells[0]: {"again": True}})
    plan = await world.store.seal(transaction_id)
    assert (len(plan.writes), len(plan.reads)) == (60, SETTINGS.max_cells - 60)
    assert isinstance(await world.store.commit(plan), Committed)


async def test_a_transaction_with_too_many_bytes_is_refused_before_it_commits(world: World) -> None:
    transaction_id = await world.begin()
    value = {"text": "x" * (SETTINGS.max_value_bytes - 20)}
    with pytest.raises(ValueTooLarge):
        for number, key in enumerate(keys(SETTINGS.max_transaction_bytes // SETTINGS.max_value_bytes + 2)):
            await world.store.stage(transaction_id, str(number), {key: value})
        await world.store.commit(await world.store.seal(transaction_id))


# --- sealing ---


async def test_the_sealed_plan_has_what_was_staged_and_what_was_read(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [A, B, C])
    await world.store.stage(transaction_id, "1", {B: {"n": 2}, D: None})
    plan = await world.store.seal(transaction_id, {"status": 204})
    assert (plan.id, plan.request_hash, plan.answer, plan.sealed) == (transaction_id, "", {"status": 204}, True)
    assert _writes(plan) == {B: (1, {"n": 2}), D: (0, None)}
    assert _reads(plan) == {A: 1, C: 0}


async def test_under_snapshot_isolation_the_plan_has_no_reads(world: World) -> None:
    await world.put({A: {"n": 1}})
    transaction_id = await world.begin(isolation=Isolation.SNAPSHOT)
    await world.store.read_in(transaction_id, [A, B])
    await world.store.stage(transaction_id, "1", {A: {"n": 2}})
    plan = await world.store.seal(transaction_id)
    assert (_writes(plan), plan.reads) == ({A: (1, {"n": 2})}, ())


async def test_sealing_twice_gives_the_same_plan(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [B])
    await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    first = await world.store.seal(transaction_id, {"n": 1})
    again = await (await world.open()).seal(transaction_id, {"n": 1})
    assert first == again


async def test_nothing_is_staged_or_read_after_the_seal(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    plan = await world.store.seal(transaction_id)
    with pytest.raises(WrongState):
        await world.store.stage(transaction_id, "2", {A: {"n": 2}})
    with pytest.raises(WrongState):
        await world.store.read_in(transaction_id, [B])
    assert _writes(await world.store.seal(transaction_id)) == _writes(plan) == {A: (0, {"n": 1})}


async def test_the_seal_fences_every_staging_call_it_races(world: World) -> None:
    """Acknowledged is in the plan, in the plan is acknowledged: whichever came first."""
    handles = [world.store, await world.open()]

    async def stage(transaction_id: TransactionId, key: Key, store: CellStore) -> Key | None:
        try:
            await store.stage(transaction_id, key, {key: {"n": 1}})
        except WrongState:
            return None
        return key

    async def seal(transaction_id: TransactionId, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await world.store.seal(transaction_id)

    for turns in range(5):
        transaction_id = await world.begin()
        staging = [stage(transaction_id, key, handles[number % 2]) for number, key in enumerate(keys(10))]
        _, *staged = await asyncio.gather(seal(transaction_id, turns), *staging)
        plan = await world.store.seal(transaction_id)
        assert set(_writes(plan)) == {key for key in staged if key is not None}


async def test_an_open_transaction_is_not_committed_without_being_sealed(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    with pytest.raises(WrongState, match="seal"):
        await world.store.commit(world.transaction({A: (0, {"n": 1})}, id=transaction_id, hash=""))
    assert (await world.record(transaction_id)).state is State.OPEN


async def test_a_sealed_transaction_can_be_sealed_again_once_it_is_decided(world: World) -> None:
    """So that whoever lost the answer of a commit can go the same way again and hear it."""
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    assert await world.store.commit(await world.store.seal(transaction_id, {"ok": 1})) == Committed(
        transaction_id, {"ok": 1}
    )
    again = await world.store.commit(await world.store.seal(transaction_id))
    assert again == Committed(transaction_id, {"ok": 1}, replayed=True)
    assert (await world.cell(A)).revision == 1


# --- committing ---


async def test_a_sealed_plan_is_committed_as_one(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [A])
    await world.store.stage(transaction_id, "1", {B: {"n": 2}})
    await world.store.stage(transaction_id, "2", {C: {"n": 2}})
    plan = await world.store.seal(transaction_id, {"status": 204})
    assert await world.store.commit(plan) == Committed(transaction_id, {"status": 204})
    assert await world.store.read([B, C]) == {
        B: Cell(B, 2, {"n": 2}, transaction_id),
        C: Cell(C, 1, {"n": 2}, transaction_id),
    }
    record = await world.record(transaction_id)
    assert (record.state, record.answer, record.reads) == (State.COMMITTED, {"status": 204}, (Read(A, 1),))
    assert len(record.writes) == 2


async def test_p4_serializable_refuses_a_commit_if_something_read_has_moved(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.read_in(transaction_id, [A])
    await world.store.stage(transaction_id, "1", {B: {"n": 2}})
    await world.put({A: {"n": 2}})
    result = await world.store.commit(await world.store.seal(transaction_id))
    assert result == Conflict(transaction_id, (Moved(A, 1, 2),))
    assert await world.value(B) == {"n": 1}


async def test_p4_snapshot_allows_a_commit_if_only_what_was_read_has_moved(world: World) -> None:
    await world.put({A: {"n": 1}, B: {"n": 1}})
    transaction_id = await world.begin(isolation=Isolation.SNAPSHOT)
    await world.store.read_in(transaction_id, [A, B])
    await world.store.stage(transaction_id, "1", {B: {"n": 2}})
    await world.put({A: {"n": 2}})
    assert isinstance(await world.store.commit(await world.store.seal(transaction_id)), Committed)
    assert await world.value(B) == {"n": 2}


@pytest.mark.parametrize("isolation", Isolation)
async def test_p4_write_skew_is_refused_under_serializable_and_allowed_under_snapshot(
    world: World, isolation: Isolation
) -> None:
    await world.put({A: {"on": 1}, B: {"on": 1}})
    plans = []
    for mine in (A, B):
        transaction_id = await world.begin(isolation=isolation)
        await world.store.read_in(transaction_id, [A, B])
        await world.store.stage(transaction_id, "1", {mine: {"on": 0}})
        plans.append(await world.store.seal(transaction_id))
    results = [type(await world.store.commit(plan)) for plan in plans]
    assert results == ([Committed, Conflict] if isolation is Isolation.SERIALIZABLE else [Committed, Committed])


async def test_a_staged_transaction_can_be_rebased_after_an_unsettled_conflict(world: World) -> None:
    await world.put({A: {"n": 1}})
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 5}})
    plan = await world.store.seal(transaction_id)
    await world.put({A: {"n": 2}})
    assert await world.store.commit(plan, settle_conflict=False) == Conflict(
        transaction_id, (Moved(A, 1, 2),), final=False
    )
    rebased = world.transaction({A: (2, {"n": 5})}, id=transaction_id, hash="", sealed=True)
    assert isinstance(await world.store.commit(rebased), Committed)
    assert await world.cell(A) == Cell(A, 3, {"n": 5}, transaction_id)


# --- ending ---


async def test_an_aborted_transaction_leaves_nothing_and_takes_nothing_more(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    record = await world.store.abort(transaction_id)
    assert (record.state, record.decided_ms is not None) == (State.ABORTED, True)
    assert (await world.store.abort(transaction_id)).state is State.ABORTED
    assert await world.cell(A) == Cell(A)
    for call in (
        lambda: world.store.stage(transaction_id, "2", {A: {}}),
        lambda: world.store.read_in(transaction_id, [A]),
        lambda: world.store.seal(transaction_id),
        lambda: world.store.renew(transaction_id),
    ):
        with pytest.raises(TransactionClosed, match="aborted"):
            await call()


async def test_what_has_ended_cannot_be_aborted(world: World) -> None:
    committed = await world.put({A: {"n": 1}})
    with pytest.raises(TransactionClosed, match="committed"):
        await world.store.abort(committed)
    failed = world.id()
    await world.store.fail(failed, "hash", {})
    with pytest.raises(TransactionClosed):
        await world.store.abort(failed)
    assert await world.value(A) == {"n": 1}


async def test_a_committed_transaction_takes_no_more_changes(world: World) -> None:
    transaction_id = await world.begin()
    await world.store.commit(await world.store.seal(transaction_id))
    for call in (
        lambda: world.store.stage(transaction_id, "2", {A: {}}),
        lambda: world.store.read_in(transaction_id, [A]),
        lambda: world.store.renew(transaction_id),
    ):
        with pytest.raises(WrongState):
            await call()


async def test_a_transaction_past_its_time_is_aborted_by_whoever_meets_it(world: World) -> None:
    world.clock.stop()
    ids = [await world.begin(ttl_s=10) for _ in range(4)]
    for transaction_id in ids:
        await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    plan = await world.store.seal(ids[3])
    world.clock.advance(11)
    calls: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: world.store.stage(ids[0], "2", {A: {}}),
        lambda: world.store.read_in(ids[1], [A]),
        lambda: world.store.renew(ids[2]),
        lambda: world.store.commit(plan),
    )
    for transaction_id, call in zip(ids, calls, strict=True):
        with pytest.raises(TransactionClosed, match=r"new transaction id|Begin again"):
            await call()
        assert (await world.record(transaction_id)).state is State.ABORTED
    assert await world.cell(A) == Cell(A)


async def test_renewing_moves_the_expiry_but_never_back(world: World) -> None:
    world.clock.stop()
    transaction_id = await world.begin(ttl_s=100)
    first = (await world.record(transaction_id)).expires_ms
    assert first is not None
    assert (await world.store.renew(transaction_id, 10)).expires_ms == first
    renewed = await world.store.renew(transaction_id, 1_000)
    assert renewed.expires_ms is not None and renewed.expires_ms > first + 800_000
    assert (await world.record(transaction_id)).expires_ms == renewed.expires_ms
    world.clock.advance(500)
    await world.store.stage(transaction_id, "1", {A: {"n": 1}})
    assert isinstance(await world.store.commit(await world.store.seal(transaction_id)), Committed)

"""Single situations of the object-storage protocol, told step by step. The simulator finds them; these explain them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest

from lakepact.errors import InvalidRequest, OutcomeUnknown, SnapshotTooOld, WrongState
from lakepact.kernel.documents import name_of_record
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, key_of, name_of_cell
from lakepact.kernel.model import (
    Busy,
    Committed,
    Conflict,
    Failed,
    Isolation,
    Prepared,
    Read,
    State,
    Transaction,
    Write,
)
from lakepact.kernel.ports import Applied, Document, Unknown, WriteOutcome
from lakepact.kernel.settings import KernelSettings
from lakepact.stores.memory import MemoryDocuments
from tests.unit.kernel.worlds import World, run

A, B, C = key_of("a"), key_of("b"), key_of("c")


def change(world: World, *cells: Key, at: int = 0, reads: tuple[Read, ...] = ()) -> Transaction:
    return Transaction(world.fresh_id(), "hash", tuple(Write(key, at, {"n": at + 1}) for key in cells), reads)


class LosingAnswers(MemoryDocuments):
    """Applies every write; loses the answers to those whose name begins like this."""

    def __init__(self) -> None:
        super().__init__()
        self.losing: str | None = None
        self.before_apply = False

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        return await self._lose(name, super().create, name, data)

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        return await self._lose(name, super().swap, name, token, data)

    async def _lose(self, name: str, write: object, *arguments: object) -> WriteOutcome:
        if self.losing is None or not name.startswith(self.losing):
            return await write(*arguments)  # type: ignore[operator, no-any-return]
        if not self.before_apply:
            await write(*arguments)  # type: ignore[operator]
        return Unknown("the answer was lost")


@pytest.mark.parametrize("losing", ["transactions/", "cells/", ""])
def test_lost_answers_are_settled_by_reading_back(losing: str) -> None:
    documents = LosingAnswers()

    async def claim(world: World) -> None:
        documents.losing = losing
        assert isinstance(await world.cells.commit(change(world, A, B)), Committed)
        assert isinstance(await world.another_process().commit(change(world, A, B, at=1)), Committed)
        assert (await world.cells.read([A]))[A].revision == 2

    run(claim, World(documents))


def test_a_commit_swap_that_nobody_can_settle_is_unknown_and_a_lookup_tells_later() -> None:
    documents = LosingAnswers()

    async def claim(world: World) -> None:
        transaction = change(world, A, B)
        # Everything up to the commit swap is answered; then the store falls silent before applying anything.
        original_swap = documents.swap

        async def swap(name: str, token: str, data: bytes) -> WriteOutcome:
            if b'"state":"committed"' in data:
                documents.losing, documents.before_apply = "transactions/", True
            return await original_swap(name, token, data)

        documents.swap = swap  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown, match="Look the transaction up"):
            await world.cells.commit(transaction)
        documents.losing = None
        documents.swap = original_swap  # type: ignore[method-assign]
        record = await world.cells.lookup(transaction.id)
        assert record is not None and record.state is State.PREPARING
        # The same id again, once the lease is over, takes effect once.
        world.clock.pass_s(11)
        assert isinstance(await world.another_process().commit(transaction), Committed)
        assert (await world.cells.read([A]))[A].revision == 1

    run(claim, World(documents))


def test_an_id_is_the_same_transaction_however_it_is_spelled() -> None:
    async def claim(world: World) -> None:
        transaction = change(world, A)
        shouted = Transaction(TransactionId(transaction.id.upper()), "hash", transaction.writes)
        assert isinstance(await world.cells.commit(shouted), Committed)
        again = await world.cells.commit(transaction)
        assert isinstance(again, Committed) and again.replayed
        assert await world.documents.get(name_of_record(transaction.id)) is not None

    run(claim)


@pytest.mark.parametrize(
    "value", [{"n": math.nan}, {"n": math.inf}, {"n": (1, 2)}, {"n": datetime(2026, 1, 1, tzinfo=UTC)}]
)
def test_a_value_that_json_would_change_is_refused(value: dict[str, object]) -> None:
    async def claim(world: World) -> None:
        with pytest.raises(InvalidRequest):
            await world.cells.commit(Transaction(world.fresh_id(), "hash", (Write(A, 0, value),)))
        assert (await world.documents.list("", None, 10)) == []

    run(claim)


def test_a_caller_that_changes_its_value_afterwards_changes_nothing() -> None:
    async def claim(world: World) -> None:
        value = {"n": [1]}
        await world.cells.commit(Transaction(world.fresh_id(), "hash", (Write(A, 0, value),)))
        value["n"].append(2)
        assert (await world.cells.read([A]))[A].value == {"n": [1]}
        assert (await world.another_process().read([A]))[A].value == {"n": [1]}

    run(claim)


def test_a_staging_call_sent_twice_counts_once_with_its_first_value() -> None:
    async def claim(world: World) -> None:
        opened, other = world.fresh_id(), world.another_process()
        await world.cells.begin(opened)
        assert (await other.read_in(opened, [B]))[B].revision == 0
        await world.cells.stage(opened, "operation", {A: {"file": 1}})
        await other.stage(opened, "operation", {A: {"file": 2}})
        for process in (world.cells, other, world.another_process()):
            assert (await process.read_in(opened, [A]))[A].value == {"file": 1}
        for process in (world.cells, other, world.another_process()):
            assert [write.value for write in (await process.seal(opened)).writes] == [{"file": 1}]

    run(claim)


def test_nothing_is_staged_after_the_seal() -> None:
    async def claim(world: World) -> None:
        opened = world.fresh_id()
        await world.cells.begin(opened)
        await world.cells.stage(opened, "one", {A: {"n": 1}})
        plan = await world.another_process().seal(opened)
        with pytest.raises(WrongState, match="sealed"):
            await world.cells.stage(opened, "two", {B: {"n": 1}})
        assert [write.key for write in plan.writes] == [A]

    run(claim)


def test_a_read_of_an_open_transaction_is_refused_once_its_instant_is_gone() -> None:
    async def claim(world: World) -> None:
        await world.cells.commit(change(world, A, B))
        opened = world.fresh_id()
        await world.cells.begin(opened)
        assert (await world.cells.read_in(opened, [A]))[A].revision == 1
        await world.cells.commit(change(world, A, B, at=1))
        with pytest.raises(SnapshotTooOld, match="run it again"):
            await world.cells.read_in(opened, [B])

    run(claim)


def test_under_snapshot_isolation_a_blind_write_is_based_on_the_instant_of_the_reads() -> None:
    async def claim(world: World) -> None:
        await world.cells.commit(change(world, A, B))
        opened = world.fresh_id()
        await world.cells.begin(opened, isolation=Isolation.SNAPSHOT)
        await world.cells.read_in(opened, [A])
        await world.cells.commit(change(world, A, B, at=1))
        with pytest.raises(SnapshotTooOld):
            await world.cells.stage(opened, "blind", {B: {"n": 9}})

    run(claim)


def test_two_readers_of_one_cell_do_not_hold_each_other_up() -> None:
    async def claim(world: World) -> None:
        await world.cells.commit(change(world, C))
        first = change(world, A, reads=(Read(C, 1),))
        assert isinstance(await world.cells.prepare(first), Prepared)
        second = change(world, B, reads=(Read(C, 1),))
        assert isinstance(await world.another_process().commit(second), Committed)
        writer = await world.another_process().commit(change(world, C, at=1))
        assert isinstance(writer, Busy) and writer.owner == first.id
        assert isinstance(await world.another_process().commit(first), Committed)

    run(claim)


def test_the_locks_of_a_prepared_transaction_end_with_it() -> None:
    async def claim(world: World) -> None:
        opened = world.fresh_id()
        await world.cells.begin(opened, ttl_s=100)
        await world.cells.stage(opened, "one", {A: {"n": 1}})
        sealed = await world.cells.seal(opened)
        assert isinstance(await world.cells.prepare(sealed), Prepared)
        assert isinstance(await world.cells.commit(change(world, A)), Busy)
        world.clock.pass_s(101)
        assert isinstance(await world.cells.commit(change(world, A)), Committed)
        record = await world.cells.lookup(opened)
        assert record is not None and record.state is State.ABORTED

    run(claim)


def test_a_conflict_that_is_not_settled_may_be_tried_again_with_a_new_plan_or_failed() -> None:
    async def claim(world: World) -> None:
        await world.cells.commit(change(world, A))
        stale = change(world, A, B)
        conflict = await world.cells.commit(stale, settle_conflict=False)
        assert isinstance(conflict, Conflict) and not conflict.final
        replanned = Transaction(stale.id, "hash", (Write(A, 1, {"n": 2}),))
        assert isinstance(await world.another_process().commit(replanned), Committed)
        other = change(world, A)
        assert isinstance(await world.cells.commit(other, settle_conflict=False), Conflict)
        assert await world.cells.fail(other.id, "hash", {"code": 409}) == Failed(other.id, {"code": 409})
        assert await world.another_process().commit(other) == Failed(other.id, {"code": 409}, replayed=True)

    run(claim)


def test_a_late_lock_does_not_outlive_its_record() -> None:
    """A lock request that lands after its transaction has ended must be cleared before the record goes."""
    settings = KernelSettings(trim_after_s=10, horizon_days=1, slack_s=60)

    async def claim(world: World) -> None:
        await world.cells.commit(change(world, A))
        await world.tasks.drain()
        doomed = change(world, A, at=1)
        before: Document = await world.documents.get(name_of_cell(A))
        await world.cells.commit(Transaction(doomed.id, "hash", (Write(A, 0, {"n": 5}),)))
        await world.tasks.drain()
        document: Document = await world.documents.get(name_of_cell(A))
        late = document.data.replace(b'"writes":', b'"lock":{"tx":"%s","epoch":1},"writes":9' % doomed.id.encode())
        assert isinstance(await world.documents.swap(name_of_cell(A), document.token, late), Applied)
        assert before.data != late
        world.clock.pass_s(3 * 86_400)
        cold = world.another_process()
        await cold.recover()
        assert (await cold.collect()).trimmed == 2
        assert (await cold.collect()).deleted == 2
        assert (await world.another_process().read([A]))[A].revision == 1

    run(claim, World(settings=settings))


def test_strays_among_the_records_stop_nothing() -> None:
    async def claim(world: World) -> None:
        await world.documents.create("transactions/2026/", b"")
        await world.documents.create("transactions/2026/01/01/.hidden", b"x")
        transaction = change(world, A)
        await world.cells.commit(transaction)
        await world.tasks.drain()
        assert (await world.cells.recover()).left == 0
        assert (await world.cells.collect()).deleted == 0
        assert [found.id for found in (await world.cells.transactions()).transactions] == [transaction.id]

    run(claim)


def test_one_damaged_record_does_not_keep_the_others_from_being_finished() -> None:
    async def claim(world: World) -> None:
        await world.documents.create(name_of_record(world.fresh_id()), b"damaged")
        world.clock.pass_s(1)
        opened = world.fresh_id()
        await world.cells.begin(opened, ttl_s=5)
        world.clock.pass_s(6)
        recovery = await world.cells.recover()
        assert (recovery.expired, recovery.left) == (1, 1)

    run(claim)


def test_a_large_transaction_recovers_from_a_collision() -> None:
    """Only the contended cells are locked one by one; the others stay side by side."""
    keys = [key_of("many", str(number)) for number in range(300)]

    async def claim(world: World) -> None:
        blocked_on = keys[150]
        holder = world.fresh_id()
        await world.cells.begin(holder, ttl_s=2)
        await world.cells.stage(holder, "hold", {blocked_on: {"n": 1}})
        assert isinstance(await world.cells.prepare(await world.cells.seal(holder)), Prepared)
        before = world.clock.at_ms
        assert isinstance(await world.another_process().commit(change(world, *keys)), Committed)
        assert world.clock.at_ms - before < 10_000

    run(claim)

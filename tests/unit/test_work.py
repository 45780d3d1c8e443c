"""A request under a key that another request uses waits for that one, within its time; and nothing is begun for a
client that does not wait any more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakepact.catalog.watch import Watch
from lakepact.catalog.work import Call, Done, Draft, Worker, give_up_before, unless_held
from lakepact.errors import Contended
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Busy, State, Transaction, TransactionRecord
from lakepact.kernel.ports import WriteOutcome
from lakepact.kernel.settings import KernelSettings
from lakepact.stores.memory import MemoryDocuments
from tests.unit.kernel.worlds import HandClock, World, run

KEY = key_of("w", "key")


class Killed(BaseException):
    """What no code of ours catches."""


class KilledBeforeItsCommit(MemoryDocuments):
    """The process that was at it is gone before anything is decided."""

    alive = False

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        if b'"state":"committed"' in data and not self.alive:
            raise Killed
        return await super().swap(name, token, data)


class Requests:
    """A keyed request, sent to one process after another."""

    def __init__(self, world: World, deadline_s: float) -> None:
        self.world = world
        self.call = Call(world.fresh_id(), "test", keyed=True, request_hash="h")
        self._deadline_s = deadline_s

    async def send(self) -> Done:
        parts: Any = (None, None, self.world.clock, self.world.rng, self.world.tasks)
        worker = Worker(
            self.world.another_process(),
            *parts,
            warehouse="w",
            deadline_s=self._deadline_s,
            held_wait_s=0.0,
            on_committed=self._said,
            watch=Watch(),
        )
        return await worker.perform(self.call, self._plan)

    async def killed(self) -> TransactionRecord:
        """What the first one has left behind."""
        with pytest.raises(Killed):
            await self.send()
        record = await self.world.cells.lookup(self.call.transaction_id)
        assert record is not None and record.state is State.PREPARING
        self.world.documents.alive = True
        return record

    async def _plan(self, draft: Draft) -> dict[str, Any]:
        await draft.read(KEY)
        draft.write(KEY, {"done": True})
        return {"done": True}

    async def _said(self, _transaction: Transaction, _draft: Draft) -> None:
        pass


@pytest.mark.parametrize("lease_s", [0.1, 3.0, 25.0])
def test_a_keyed_request_sent_again_goes_on_when_the_lease_of_the_first_is_over(lease_s: float) -> None:
    async def claim(world: World) -> None:
        requests = Requests(world, deadline_s=60)
        record = await requests.killed()
        assert record.lease_ms is not None
        assert (await requests.send()).result == {"done": True}
        assert 0 <= world.clock.now_ms() - record.lease_ms <= 500, "neither before the lease is over nor long after it"

    run(claim, World(KilledBeforeItsCommit(), KernelSettings(lease_s=lease_s)))


def test_a_keyed_request_that_has_no_time_to_wait_says_that_another_is_at_it() -> None:
    async def claim(world: World) -> None:
        requests = Requests(world, deadline_s=5)
        await requests.killed()
        with pytest.raises(Contended, match="still at work"):
            await requests.send()
        world.clock.pass_s(10)
        assert (await requests.send()).result == {"done": True}

    run(claim, World(KilledBeforeItsCommit(), KernelSettings(lease_s=10)))


@pytest.mark.parametrize(("timeout_s", "limit_s"), [(60.0, 59.0), (10.0, 9.0), (1.0, 0.9), (0.01, 0.009)])
def test_the_server_gives_up_a_tenth_and_at_most_a_second_before_its_client(timeout_s: float, limit_s: float) -> None:
    assert give_up_before(100.0 + timeout_s, 100.0) == pytest.approx(100.0 + limit_s)


def test_a_request_whose_client_does_not_wait_any_more_is_not_begun_and_its_replay_is_answered() -> None:
    async def claim(world: World) -> None:
        requests = Requests(world, deadline_s=60)
        requests.call = replace(requests.call, give_up_s=world.clock.monotonic_s())
        world.clock.pass_s(1)
        with pytest.raises(Contended, match="Nothing was applied"):
            await requests.send()
        assert await world.cells.lookup(requests.call.transaction_id) is None
        assert (await world.cells.read([KEY]))[KEY].value is None
        late, requests.call = requests.call, replace(requests.call, give_up_s=None)
        assert (await requests.send()).result == {"done": True}
        requests.call = late
        assert (await requests.send()).replayed

    run(claim)


def test_a_held_table_is_not_tried_again_after_a_sleep_that_took_too_long() -> None:
    class SlowClock(HandClock):
        async def sleep(self, seconds: float) -> None:
            self.pass_s(10)

    async def claim(world: World) -> None:
        attempts: list[Busy] = []

        async def attempt() -> Busy:
            attempts.append(Busy(world.fresh_id(), None, 1.0))
            return attempts[-1]

        assert await unless_held(attempt, SlowClock(), world.rng, 1.0) is attempts[0]
        assert len(attempts) == 1

    run(claim)

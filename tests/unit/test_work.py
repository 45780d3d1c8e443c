"""A request that comes again under its key waits for whoever is at it, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.catalog.watch import Watch
from lakepact.catalog.work import Call, Done, Draft, Worker
from lakepact.errors import Contended
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import State, Transaction, TransactionRecord
from lakepact.kernel.ports import WriteOutcome
from lakepact.kernel.settings import KernelSettings
from lakepact.stores.memory import MemoryDocuments
from tests.unit.kernel.worlds import World, run

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

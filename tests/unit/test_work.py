"""A request that comes again under its key waits for whoever is at it, and no longer."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.catalog.watch import Watch
from lakepact.catalog.work import Call, Draft, Worker
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import State, Transaction
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


@pytest.mark.parametrize("lease_s", [0.1, 3.0])
def test_a_keyed_request_sent_again_goes_on_when_the_lease_of_the_first_is_over(lease_s: float) -> None:
    documents = KilledBeforeItsCommit()

    async def claim(world: World) -> None:
        call = Call(world.fresh_id(), "test", keyed=True, request_hash="h")

        async def plan(draft: Draft) -> dict[str, Any]:
            await draft.read(KEY)
            draft.write(KEY, {"done": True})
            return {"done": True}

        async def said(_transaction: Transaction, _draft: Draft) -> None:
            pass

        def worker() -> Worker:
            parts: Any = (None, None, world.clock, world.rng, world.tasks)
            return Worker(
                world.another_process(), *parts, warehouse="w", deadline_s=60, on_committed=said, watch=Watch()
            )

        with pytest.raises(Killed):
            await worker().perform(call, plan)
        record = await world.cells.lookup(call.transaction_id)
        assert record is not None and record.state is State.PREPARING
        documents.alive = True
        done = await worker().perform(call, plan)
        assert done.result == {"done": True}
        assert record.lease_ms is not None
        assert 0 <= world.clock.now_ms() - record.lease_ms <= 500, "neither before the lease is over nor long after it"

    run(claim, World(documents, KernelSettings(lease_s=lease_s)))

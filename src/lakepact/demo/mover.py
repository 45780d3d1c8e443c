"""A process that moves amounts. It may be killed at any instruction, and it will be."""

from __future__ import annotations

import random

from lakepact.demo.bank import fresh_id, plan_transfer, send, settle
from lakepact.demo.journal import Journal, in_doubt
from lakepact.demo.worker import Assignment, Stop, run_worker
from lakepact.kernel.model import Committed
from lakepact.kernel.ports import CellStore
from lakepact.runtime import SystemClock, SystemRng

DAWDLE_S = 0.02


async def move(store: CellStore, assignment: Assignment, stop: Stop) -> None:
    clock, rng, chance = SystemClock(), SystemRng(), random.Random()
    journal = Journal(assignment.journal)
    for transfer in in_doubt(assignment.journal):
        settled = await settle(store, clock, transfer)
        journal.note("settled", id=transfer.id, was=settled.was_committed, committed=settled.is_committed)
    while not stop:
        keys = chance.sample(assignment.bank.keys, chance.choice((2, 2, 3)))
        cells = await store.read(keys)
        planned = plan_transfer(fresh_id(clock, rng), [cells[key] for key in keys], chance)
        if planned is None:
            continue
        # The intention first: whoever reads this journal after our death knows what to ask the store about.
        journal.note("intent", transfer=planned.to_json())
        result = await send(store, clock, planned)
        # A client does something with an answer before it writes it down. Here it dawdles, and many kills land in
        # this gap: the transfer is committed, and the one who asked for it never said so.
        await clock.sleep(chance.uniform(0, DAWDLE_S))
        journal.note("outcome", id=planned.id, committed=isinstance(result, Committed))
    journal.close()


if __name__ == "__main__":
    run_worker(move)

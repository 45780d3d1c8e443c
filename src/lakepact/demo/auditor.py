"""A process that reads consistent cuts of all accounts and adds them up."""

from __future__ import annotations

from lakepact.demo.bank import balance_of
from lakepact.demo.journal import Journal
from lakepact.demo.worker import Assignment, Stop, run_worker
from lakepact.errors import Contended, StoreUnavailable
from lakepact.kernel.ports import CellStore
from lakepact.runtime import SystemClock

PAUSE_S = 0.005


async def audit(store: CellStore, assignment: Assignment, stop: Stop) -> None:
    clock = SystemClock()
    journal = Journal(assignment.journal)
    seen = dict.fromkeys(assignment.bank.keys, 0)
    while not stop:
        try:
            cells = await store.read(assignment.bank.keys)
        except (Contended, StoreUnavailable) as error:
            journal.note("no-cut", reason=error.type)
            continue
        total = sum(balance_of(cell) for cell in cells.values())
        backwards = [key for key, cell in cells.items() if cell.revision < seen[key]]
        seen = {key: cell.revision for key, cell in cells.items()}
        journal.note("cut", total=total, backwards=backwards)
        await clock.sleep(PAUSE_S)
    journal.close()


if __name__ == "__main__":
    run_worker(audit)

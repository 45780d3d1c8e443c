"""What the demo's processes have in common: where they find the store, and when they stop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lakepact.demo.bank import Bank
from lakepact.kernel.ports import CellStore
from lakepact.settings import Settings
from lakepact.stores import open_store


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[CellStore]:
    store = await open_store(settings.store, settings.kernel(), options=settings.store_options)
    try:
        yield store
    finally:
        await store.close()


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a process is told on its command line. The store comes with the settings, through the environment."""

    bank: Bank
    journal: Path

    def arguments(self) -> list[str]:
        return [self.bank.run, str(self.bank.accounts), str(self.journal)]


class Stop:
    """True once the process should end: it was asked to (SIGTERM), or whoever started it is gone."""

    def __init__(self) -> None:
        self._asked = False
        self._parent = os.getppid()
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked or os.getppid() != self._parent


def run_worker(work: Callable[[CellStore, Assignment, Stop], Awaitable[None]]) -> None:
    run, accounts, journal = sys.argv[1:]
    assignment = Assignment(Bank(run, int(accounts)), Path(journal))

    async def main() -> None:
        stop = Stop()
        async with opened(Settings.load()) as store:
            await work(store, assignment, stop)

    asyncio.run(main())

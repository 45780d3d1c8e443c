"""Memory of a process that commits 100,000 transactions: it must stay flat.

On a document store the records themselves are collected as time goes by, so the clock here runs ahead: what is left is
what the process itself remembers, which is bounded.
"""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.identity import uuid7
from lakepact.kernel.model import Committed, Transaction, Write
from lakepact.kernel.ports import CellStore
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores import open_store
from lakepact.stores.memory import MemoryDocuments
from tests.bench.report import table
from tests.bench.world import VALUE, keys

TRANSACTIONS = 100_000
AT_ONCE = 50
MARKS = (20_000, 60_000, 100_000)


class HurryingClock(SystemClock):
    """A minute passes with every transaction."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


async def run() -> None:
    rows = []
    for kind in ("sqlite", "documents"):
        out = subprocess.run(
            [sys.executable, "-m", "tests.bench.memory", kind], capture_output=True, text=True, check=True
        ).stdout
        marks = [int(number) for number in out.split()]
        rows.append((kind, *(f"{mark / 1024:.0f} MiB" for mark in marks), f"{marks[-1] / marks[0]:.2f}"))
    table(
        f"Resident memory of a process that commits {TRANSACTIONS:,} transactions (aim: flat)",
        ("store", *(f"after {mark:,}" for mark in MARKS), "last to first"),
        rows,
    )


async def _measure(kind: str) -> None:
    clock = HurryingClock()
    settings = KernelSettings(trim_after_s=60.0, horizon_days=1, slack_s=60.0, cached_bytes=1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        store: CellStore
        if kind == "sqlite":
            store = await open_store(f"sqlite:///{Path(folder) / 'cells.db'}", settings, clock=clock)
        else:
            store = DocumentCells(MemoryDocuments(), clock, SystemRng(), AsyncioTasks(), settings)
        await _commit_all(store, clock)
        await store.close()


async def _commit_all(store: CellStore, clock: HurryingClock) -> None:
    rng = SystemRng()
    cells = keys(AT_ONCE)
    for number in range(TRANSACTIONS // AT_ONCE):

        async def commit(place: int, revision: int = number) -> None:
            write = Write(cells[place], revision, VALUE)
            result = await store.commit(Transaction(uuid7(clock.now_ms(), rng.bits(74)), "hash", (write,)))
            assert isinstance(result, Committed)

        await asyncio.gather(*(commit(place) for place in range(AT_ONCE)))
        clock.ahead_ms += AT_ONCE * 60_000
        if number % 20 == 19:
            await store.recover()
            while (await store.collect()).more:
                pass
        if (number + 1) * AT_ONCE in MARKS:
            gc.collect()
            print(_resident_kib(), flush=True)


def _resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


if __name__ == "__main__":
    asyncio.run(_measure(sys.argv[1]))

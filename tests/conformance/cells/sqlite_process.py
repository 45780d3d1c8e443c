"""A process of its own on a SQLite file: `python -m tests.conformance.cells.sqlite_process FILE INCREMENTS SEED`.

It increments a counter and moves amounts between two accounts, each time in one commit, until it has succeeded as
often as it was asked to. The parent audits the file meanwhile and afterwards.
"""

from __future__ import annotations

import asyncio
import random
import sys

from lakepact.errors import Contended
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Committed, Transaction, Write
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import SystemClock, SystemRng
from lakepact.stores.sqlite import SqliteCells

COUNTER = key_of("main", "counter")
ACCOUNTS = [key_of("main", "accounts", str(number)) for number in range(4)]


async def main(path: str, increments: int, seed: int) -> None:
    clock, rng, chance = SystemClock(), SystemRng(), random.Random(seed)
    store = await SqliteCells.open(path, KernelSettings(), clock, rng)
    while increments:
        source, target = chance.sample(ACCOUNTS, 2)
        cells = await store.read([COUNTER, source, target])

        def changed(key: Key, amount: int, cells: object = cells) -> Write:
            cell = cells[key]  # type: ignore[index]
            return Write(key, cell.revision, {"n": (cell.value or {"n": 0})["n"] + amount})

        writes = (changed(COUNTER, 1), changed(source, -1), changed(target, 1))
        try:
            result = await store.commit(Transaction(uuid7(clock.now_ms(), rng.bits(74)), "hash", writes))
        except Contended:
            continue
        increments -= isinstance(result, Committed)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

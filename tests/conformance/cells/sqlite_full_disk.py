"""A process whose files may not grow: `python -m tests.conformance.cells.sqlite_full_disk FILE`.

The limit is the operating system's own, so SQLite meets a real write error, in the middle of a COMMIT. Prints what was
claimed while the disk was full and what was true afterwards; the parent compares.
"""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import sys
from pathlib import Path
from typing import Any

from lakepact.errors import LakepactError
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import key_of
from lakepact.kernel.model import Transaction, Write
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import SystemClock, SystemRng
from lakepact.stores.sqlite import SqliteCells


async def main(path: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    clock, rng = SystemClock(), SystemRng()
    store = await SqliteCells.open(path, KernelSettings(), clock, rng)

    def plan(name: str, size: int) -> Transaction:
        write = Write(key_of("main", name), 0, {"text": "x" * size})
        return Transaction(uuid7(clock.now_ms(), rng.bits(74)), "hash", (write,))

    async def outcome(transaction: Transaction) -> str:
        try:
            return type(await store.commit(transaction)).__name__
        except LakepactError as error:
            return type(error).__name__

    report: dict[str, Any] = {"before": await outcome(plan("before", 10))}
    plans = [plan("large", 100_000), plan("small", 10), plan("large too", 100_000)]
    limit = path.with_name(path.name + "-wal").stat().st_size + 50_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    report["full"] = await asyncio.gather(*(outcome(one) for one in plans))
    report["read while full"] = [type(await store.lookup(one.id)).__name__ for one in plans]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    report["again"] = [await outcome(one) for one in plans]
    cells = await store.read([write.key for one in plans for write in one.writes])
    report["revisions"] = [cell.revision for cell in cells.values()]
    await store.close()
    print(json.dumps(report))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

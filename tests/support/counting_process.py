"""A process that counts in a shared document: `python -m tests.support.counting_process FOLDER WORKER TARGET`.

The document maps each worker to its count. The process swaps its own entry up by one until it is at TARGET, and prints
the count after each applied swap: what it has printed must never be lost, whatever happens to the process next.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Final

from lakepact.kernel.ports import Applied, Unknown
from lakepact.stores import files_disk
from lakepact.stores.files import FileDocuments
from tests.support.waiting import PATIENCE_S

NAME: Final = "cells/counters.json"


async def count(folder: Path, worker: str, target: int) -> None:
    documents = await FileDocuments.open(folder)
    await documents.create(NAME, b"{}")
    done = 0
    while done < target:
        document = await documents.get(NAME)
        assert document is not None
        counters = json.loads(document.data)
        done = counters.get(worker, 0)
        if done >= target:
            break
        counters[worker] = done + 1
        outcome = await documents.swap(NAME, document.token, json.dumps(counters).encode())
        assert not isinstance(outcome, Unknown), outcome
        if isinstance(outcome, Applied):
            done += 1
            print(done, flush=True)
    await documents.close()


if __name__ == "__main__":
    # A slow holder of the lock is not a stuck one.
    vars(files_disk)["_LOCK_WAIT_S"] = PATIENCE_S
    asyncio.run(count(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))

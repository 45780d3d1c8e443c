"""Rounds of store requests a commit takes on a document store: counted, so the same on every machine."""

from __future__ import annotations

from lakepact.kernel.cells import DocumentCells
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores.memory import MemoryDocuments
from tests.bench.report import table
from tests.bench.world import Mover, keys
from tests.support.rounds import RoundCounting


async def run() -> None:
    rows = []
    for count in (1, 10, 100):
        documents = RoundCounting(MemoryDocuments())

        def process(documents: RoundCounting = documents) -> DocumentCells:
            return DocumentCells(documents, SystemClock(), SystemRng(), AsyncioTasks())

        mover = Mover(process(), keys(count))
        await documents.count(mover.commit)
        await documents.settle()
        _, warm = await documents.count(mover.commit)
        _, unfinalized = await documents.count(mover.commit)
        await documents.settle()
        cold_process = process()
        _, reading = await documents.count(lambda cold=cold_process, count=count: cold.read(keys(count)))  # type: ignore[misc]
        mover._store = process()
        _, cold = await documents.count(mover.commit)
        await documents.settle()
        rows.append((count, warm, cold, reading, unfinalized))
    table(
        "Rounds of a commit on object storage (aim: the same for any number of cells, at most 4 cold and 3 warm)",
        ("cells", "warm", "cold", "a cold cut before it", "straight after an unfinalized commit"),
        rows,
    )

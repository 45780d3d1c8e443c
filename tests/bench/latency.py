"""Latency of a commit as it grows, when every request to the store takes 20 ms."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.ports import CellStore, Document, DocumentEntry, WriteOutcome
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores import open_store
from lakepact.stores.memory import MemoryDocuments
from tests.bench.report import against, median_s, table
from tests.bench.world import Mover, keys
from tests.support.stores import s3_place

DELAY_S = 0.020
COUNTS = (1, 10, 100)


class Delayed(MemoryDocuments):
    """Every request takes 20 ms, as one to an object store may."""

    async def get(self, name: str) -> Document | None:
        await asyncio.sleep(DELAY_S)
        return await super().get(name)

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        await asyncio.sleep(DELAY_S)
        return await super().create(name, data)

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        await asyncio.sleep(DELAY_S)
        return await super().swap(name, token, data)

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        await asyncio.sleep(DELAY_S)
        return await super().list(prefix, after, limit)


async def run() -> None:
    rows: list[Sequence[object]] = []
    tasks = AsyncioTasks()
    in_process = DocumentCells(Delayed(), SystemClock(), SystemRng(), tasks)
    await _measure("in process, 20 ms injected", in_process, tasks, rows, aim=1.3)
    for latency_s, what in ((DELAY_S, "HTTP to an S3 server, 20 ms injected"), (0.0, "the same, nothing injected")):
        with s3_server(latency_s) as url:
            place, tasks = s3_place("s3", url), AsyncioTasks()
            store = await open_store(place.url, options=place.options, tasks=tasks)
            await _measure(what, store, tasks, rows, aim=3.0 if latency_s else None)
            await store.close()
    table(
        "Latency of a commit (median), earlier commits finalized; in brackets: straight after one another",
        ("store", *(f"{count} cells" for count in COUNTS), "100 to 1"),
        rows,
    )


@contextmanager
def s3_server(latency_s: float) -> Iterator[str]:
    """The strict S3 server in a process of its own, so that it does not share our core."""
    command = [sys.executable, "-m", "tests.support.s3_strict", str(latency_s)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        assert server.stdin is not None
        server.stdin.close()


async def _measure(
    what: str, store: CellStore, tasks: AsyncioTasks, rows: list[Sequence[object]], aim: float | None
) -> None:
    quiet: dict[int, float] = {}
    hurried: dict[int, float] = {}
    for count in COUNTS:
        mover = Mover(store, keys(count, f"latency-{count}"))
        await mover.commit()
        taken = []
        for _ in range(11):
            await tasks.drain()
            taken.append(await median_s(mover.commit, 1))
        quiet[count] = statistics.median(taken)
        hurried[count] = await median_s(mover.commit, 11)
        await tasks.drain()
    ratio = quiet[100] / quiet[1]
    verdict = against(ratio, f"<= {aim}", met=ratio <= aim) if aim is not None else f"{ratio:.2f} (all of it is CPU)"
    rows.append((what, *(f"{quiet[c] * 1000:.0f} ms ({hurried[c] * 1000:.0f})" for c in COUNTS), verdict))

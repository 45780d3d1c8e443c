"""Latency of a commit as it grows, when every request to the store takes 20 ms."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.ports import CellStore, Document, DocumentEntry, WriteOutcome
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores import open_store
from lakepact.stores.memory import MemoryDocuments
from tests.bench.report import against, median_s, table
from tests.bench.world import Mover, keys
from tests.support.stores import place_for

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
    in_process = DocumentCells(Delayed(), SystemClock(), SystemRng(), AsyncioTasks())
    await _compare("20 ms injected, in process", in_process, aim=1.3)
    with tempfile.TemporaryDirectory() as folder, place_for("s3-strict", Path(folder)) as place:
        over_http = await open_store(place.url, options=place.options)
        await _compare("over HTTP to a local S3 server, nothing injected", over_http, aim=3.0)
        await over_http.close()


async def _compare(what: str, store: CellStore, aim: float) -> None:
    medians: dict[int, float] = {}
    for count in COUNTS:
        mover = Mover(store, keys(count, f"latency-{count}"))
        await mover.commit()

        async def commit(mover: Mover = mover) -> None:
            await mover.commit()

        medians[count] = await median_s(commit, 11)
    rows = [(count, f"{medians[count] * 1000:.1f} ms", f"{medians[count] / medians[1]:.2f}") for count in COUNTS]
    ratio = medians[100] / medians[1]
    table(f"Commit latency, {what}", ("cells", "median", "to one cell"), rows)
    table("", ("100 cells to 1", "ratio"), [("", against(ratio, f"<= {aim}", met=ratio <= aim))])

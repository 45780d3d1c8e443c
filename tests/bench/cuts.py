"""Time to read one consistent cut."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from lakepact.kernel.ports import CellStore
from lakepact.stores import open_store
from tests.bench.report import median_s, table
from tests.bench.world import Mover, keys
from tests.support.postgres import running_postgres
from tests.support.stores import place_for

COUNTS = (1, 10, 100)


async def run() -> None:
    rows = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, opened in (
            ("memory", _plain("memory://")),
            ("sqlite", _plain(f"sqlite:///{folder / 'cells.db'}")),
            ("postgres", _postgres()),
            ("file", _plain((folder / "files").as_uri())),
            ("s3 (local HTTP)", _s3(folder)),
        ):
            async with opened as store:
                await Mover(store, keys(100)).commit()
                taken = []
                for count in COUNTS:

                    async def cut(store: CellStore = store, count: int = count) -> None:
                        await store.read(keys(count))

                    taken.append(await median_s(cut, 51))
                rows.append((name, *(f"{s * 1000:.2f} ms" for s in taken), f"{taken[2] / taken[0]:.1f}"))
    table("A consistent cut, read by a warm process", ("store", "1 cell", "10", "100", "100 to 1"), rows)


@asynccontextmanager
async def _plain(url: str) -> AsyncIterator[CellStore]:
    store = await open_store(url)
    yield store
    await store.close()


@asynccontextmanager
async def _postgres() -> AsyncIterator[CellStore]:
    with running_postgres(fsync="on") as url:
        async with _plain(url) as store:
            yield store


@asynccontextmanager
async def _s3(folder: Path) -> AsyncIterator[CellStore]:
    with place_for("s3-strict", folder) as place:
        store = await open_store(place.url, options=place.options)
        yield store
        await store.close()

"""What tests of receipts' upkeep share: a clock that is ahead, blobs that count and fail, catalogs over what a server
has left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from lakepact.catalog import Catalog, CatalogSettings
from lakepact.catalog.warehouse import Warehouse
from lakepact.kernel.ports import BlobEntry, BlobStore, CellStore, Clock
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores import delta_rows, open_blobs, open_store
from lakepact.upkeep.reconcile import Depth, Reconciler
from lakepact.upkeep.scribe import Report

HOUR_S = 3_600.0
DAY_S = 24 * HOUR_S


class Ahead(SystemClock):
    """The system's clock, set forward."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.ahead_s = seconds

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead_s * 1000)

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Killed(BaseException):
    """The process ends here."""


class Watched:
    """Blobs that count what is asked of them, and end the process at a chosen write."""

    def __init__(self, blobs: BlobStore, *, dies_at: int = 0) -> None:
        self._blobs = blobs
        self._dies_at = dies_at
        self.writes = 0
        self.read: Counter[str] = Counter()
        self.written: list[str] = []

    async def put(self, name: str, data: bytes) -> bool:
        self._count(name)
        return await self._blobs.put(name, data)

    async def put_all(self, blobs: Mapping[str, bytes]) -> None:
        for name, data in blobs.items():
            await self.put(name, data)

    async def replace(self, name: str, data: bytes, was: bytes | None) -> bool:
        self._count(name)
        return await self._blobs.replace(name, data, was)

    async def delete(self, name: str) -> None:
        self._count(name)
        await self._blobs.delete(name)

    async def get(self, name: str) -> bytes | None:
        self.read[name] += 1
        return await self._blobs.get(name)

    async def exists(self, name: str) -> bool:
        return await self._blobs.exists(name)

    async def make_folder(self, name: str) -> None:
        await self._blobs.make_folder(name)

    async def list(self, prefix: str, after: str | None = None, limit: int = 1_000) -> Sequence[BlobEntry]:
        return await self._blobs.list(prefix, after, limit)

    async def close(self) -> None:
        await self._blobs.close()

    def _count(self, name: str) -> None:
        self.writes += 1
        if self.writes == self._dies_at:
            raise Killed
        self.written.append(name)


@dataclass(slots=True)
class Left:
    """What a server has left behind, opened by another process."""

    catalog: Catalog
    store: CellStore
    blobs: Watched
    clock: Clock

    def reconciler(self, **depth: Any) -> Reconciler:
        return Reconciler({"main": self.catalog}, self.store, self.clock, SystemRng(), Depth(**depth))

    async def reconcile(self, **depth: Any) -> Report:
        return await self.reconciler(**depth).run()


@asynccontextmanager
async def left_behind(
    store_url: str,
    root: str,
    *,
    ahead_s: float = 0.0,
    settings: KernelSettings | None = None,
    options: Mapping[str, str] | None = None,
    dies_at: int = 0,
) -> AsyncIterator[Left]:
    clock, tasks = Ahead(ahead_s), AsyncioTasks()
    store = await open_store(store_url, settings or KernelSettings(), clock=clock, options=options)
    blobs = Watched(await open_blobs(root, options), dies_at=dies_at)
    try:
        catalog = Catalog(
            Warehouse("main", root), store, blobs, clock, SystemRng(), tasks, CatalogSettings(), rows=delta_rows(store)
        )
        yield Left(catalog, store, blobs, clock)
    finally:
        await tasks.drain()
        await blobs.close()
        await store.close()

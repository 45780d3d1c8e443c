"""Immutable files: metadata, receipts, logs. Written once under a fresh name, never changed, but for the few names that
stand for whatever is newest: these are compared and replaced.

A put may be repeated: whoever finds equal bytes under the name has succeeded, whether these bytes came from its own
earlier attempt or not. So, unlike documents, blobs may use a client that retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self, TypeVar

from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import BlobEntry
from lakepact.stores.files import THREADS
from lakepact.stores.files_disk import Disk, LockTimeout

T = TypeVar("T")


class FileBlobs:
    """The `BlobStore` port over a local folder, with the durability of `files_disk`."""

    def __init__(self, disk: Disk, threads: ThreadPoolExecutor) -> None:
        self._disk = disk
        self._threads = threads

    @classmethod
    async def open(cls, root: Path) -> Self:
        disk = Disk(root)
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lakepact-blobs")
        store = cls(disk, threads)
        try:
            await store._run(disk.prepare)
        except BaseException:
            threads.shutdown(wait=False)
            raise
        return store

    async def put(self, name: str, data: bytes) -> bool:
        return await self._run(lambda: self._disk.create(name, data) or self._disk.read(name) == data)

    async def replace(self, name: str, data: bytes, was: bytes | None) -> bool:
        if was is None:
            return await self.put(name, data)
        return await self._run(
            lambda: self._disk.replace(name, lambda there: there == was, data) or self._disk.read(name) == data
        )

    async def get(self, name: str) -> bytes | None:
        return await self._run(lambda: self._disk.read(name))

    async def exists(self, name: str) -> bool:
        # One look at a local disk takes less time than asking a thread for it.
        return self._disk.exists(name)

    async def make_folder(self, name: str) -> None:
        await self._run(lambda: self._disk.make_folder(name))

    async def list(self, prefix: str, after: str | None = None, limit: int = 1_000) -> Sequence[BlobEntry]:
        def page() -> list[BlobEntry]:
            entries: list[BlobEntry] = []
            for name, entry in self._disk.walk(prefix, after):
                if len(entries) >= limit:
                    break
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # deleted since the folder was read
                entries.append(BlobEntry(name, status.st_size, status.st_mtime_ns // 1_000_000))
            return entries

        return await self._run(page)

    async def delete(self, name: str) -> None:
        await self._run(lambda: self._disk.remove(name))

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def _run(self, step: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, step)
        except (OSError, LockTimeout) as error:
            raise StoreUnavailable(f"the folder {self._disk.root} did not answer: {error}") from error

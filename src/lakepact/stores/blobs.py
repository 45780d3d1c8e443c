"""Immutable files: metadata, receipts, logs. Written once under a fresh name, never changed, but for the few names that
stand for whatever is newest: these are compared and replaced.

Engines and people share the folder, and anybody of them may put a link there. One that leads out of the folder is
refused, whoever asks: what lies behind it is not part of the warehouse. (Whether a file exists is told without a look
at links: it is asked for with every load, and says nothing of what is in the file.)

A put may be repeated: whoever finds equal bytes under the name has succeeded, whether these bytes came from its own
earlier attempt or not. So, unlike documents, blobs may use a client that retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, NoReturn, Self, TypeVar

from lakepact.errors import InvalidRequest, StoreUnavailable
from lakepact.kernel.ports import BlobEntry
from lakepact.stores.files import THREADS
from lakepact.stores.files_disk import Disk, LockTimeout
from lakepact.stores.pools import register_threads

T = TypeVar("T")


class LeadsOutside(InvalidRequest):
    """A name that goes by a symbolic link to somewhere else."""

    type: ClassVar[str] = "leads-outside"


class FileBlobs:
    """The `BlobStore` port over a local folder, with the durability of `files_disk`."""

    def __init__(self, disk: Disk, threads: ThreadPoolExecutor) -> None:
        self._disk = disk
        self._threads = threads

    @classmethod
    async def open(cls, root: Path) -> Self:
        disk = Disk(root)
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lakepact-blobs")
        register_threads("file_warehouse", threads)
        store = cls(disk, threads)
        try:
            await store._run(disk.prepare)
        except BaseException:
            threads.shutdown(wait=False)
            raise
        return store

    async def put(self, name: str, data: bytes) -> bool:
        return await self._run(lambda: self._put(name, data))

    def _put(self, name: str, data: bytes) -> bool:
        self._check_folder_of(name)
        return self._disk.create(name, data) or self._get(name) == data

    async def put_all(self, blobs: Mapping[str, bytes]) -> None:
        await self._run(lambda: self._put_all(blobs))

    def _put_all(self, blobs: Mapping[str, bytes]) -> None:
        for one_of_folder in {name.rpartition("/")[0]: name for name in blobs}.values():
            self._check_folder_of(one_of_folder)
        self._disk.create_all(blobs)

    async def replace(self, name: str, data: bytes, was: bytes | None) -> bool:
        if was is None:
            return await self.put(name, data)
        return await self._run(lambda: self._replace(name, data, was))

    def _replace(self, name: str, data: bytes, was: bytes) -> bool:
        self._check(name)
        return self._disk.replace(name, lambda there: there == was, data) or self._disk.read(name) == data

    async def get(self, name: str) -> bytes | None:
        return await self._run(lambda: self._get(name))

    def _get(self, name: str) -> bytes | None:
        self._check(name)
        return self._disk.read(name)

    def _check(self, name: str) -> None:
        if not self._disk.holds(name):
            _refuse(name)

    def _check_folder_of(self, name: str) -> None:
        if not self._disk.holds_folder_of(name):
            _refuse(name)

    async def exists(self, name: str) -> bool:
        # One look at a local disk takes less time than asking a thread for it.
        return self._disk.exists(name)

    async def make_folder(self, name: str) -> None:
        await self._run(lambda: self._make_folder(name))

    def _make_folder(self, name: str) -> None:
        self._check(name)
        self._disk.make_folder(name)

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
        await self._run(lambda: self._remove(name))

    def _remove(self, name: str) -> None:
        # A link itself may go. What it leads to may not.
        self._check_folder_of(name)
        self._disk.remove(name)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def _run(self, step: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, step)
        except (OSError, LockTimeout) as error:
            raise StoreUnavailable(f"the folder {self._disk.root} did not answer: {error}") from error


def _refuse(name: str) -> NoReturn:
    raise LeadsOutside(f"{name} leads out of the folder by a symbolic link; remove the link")

"""Documents as files in a local folder: no server, several processes, safe against SIGKILL and power loss.

A document is a plain file at the path its name spells, so `ls` and `cat` show the store as it is. Its token is a hash
of its bytes. How writes stay atomic and durable is in `files_disk`; here they become outcomes.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self, TypeVar

from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import Applied, Document, DocumentEntry, Refused, StoreTime, Unknown, WriteOutcome
from lakepact.stores.files_disk import Disk, LockTimeout
from lakepact.stores.pools import register_threads

T = TypeVar("T")

THREADS: Final = 16
"""Flushes of several threads share one journal commit, so a few threads are worth having even on one disk."""

_DOCUMENT_NAME: Final = re.compile(r"[a-z0-9_%~./-]+")


class FileDocuments:
    """The `DocumentStore` port over a folder. Open it with `open`; close it to end its threads."""

    def __init__(self, disk: Disk, threads: ThreadPoolExecutor) -> None:
        self._disk = disk
        self._threads = threads

    @classmethod
    async def open(cls, root: Path) -> Self:
        # Nobody else's to read: keys that tokens are signed with are in it.
        disk = Disk(root, 0o700)
        threads = ThreadPoolExecutor(THREADS, thread_name_prefix="lakepact-files")
        register_threads("file_store", threads)
        store = cls(disk, threads)
        try:
            await store._read(disk.prepare)
        except BaseException:
            threads.shutdown(wait=False)
            raise
        return store

    async def get(self, name: str) -> Document | None:
        data = await self._read(lambda: self._disk.read(name))
        return None if data is None else Document(data, token_of(data))

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        return await self._write(lambda: self._disk.create(name, data), data)

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        return await self._write(
            lambda: self._disk.replace(name, lambda current: token_of(current) == token, data), data
        )

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        def page() -> list[DocumentEntry]:
            # Files that others put here (a `.DS_Store`, say) are not documents.
            names = (name for name, _ in self._disk.walk(prefix, after) if _DOCUMENT_NAME.fullmatch(name))
            return [DocumentEntry(name, None) for name in itertools.islice(names, max(limit, 0))]

        return await self._read(page)

    async def delete(self, name: str) -> None:
        await self._read(lambda: self._disk.remove(name))

    async def time(self) -> StoreTime:
        """The time of the file system: of another machine if the folder is mounted, else of this one."""
        return StoreTime(await self._read(self._disk.time_ms), independent=False)

    async def close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def _read(self, step: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, step)
        except (OSError, LockTimeout) as error:
            raise StoreUnavailable(f"the folder {self._disk.root} did not answer: {error}") from error

    async def _write(self, step: Callable[[], bool], data: bytes) -> WriteOutcome:
        try:
            applied = await asyncio.get_running_loop().run_in_executor(self._threads, step)
        except (OSError, LockTimeout, StoreUnavailable) as error:
            return Unknown(str(error))
        return Applied(token_of(data)) if applied else Refused()


def token_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

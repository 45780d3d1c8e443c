"""A log that lies in the warehouse, read through the port of blobs: for imports, and to compare it with the rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

from lakepact.delta import codec
from lakepact.delta.errors import BadLog
from lakepact.delta.log_reader import Base, Listing, LogFile, Version, listing, read_log
from lakepact.kernel.ports import BlobStore, Tasks

_PAGE: Final = 1_000
_READ_AHEAD: Final = 16
"""Commits that are got together: one after the other, a long log on an object store would take minutes."""

_FETCH_S: Final = 300.0


class Log:
    """The files of one log as they were listed. What is added later is not seen."""

    def __init__(self, folder: str, files: Sequence[LogFile], blobs: BlobStore, tasks: Tasks) -> None:
        self.folder = folder
        self.files = files
        self.listing: Listing = listing(files)
        self._blobs = blobs
        self._tasks = tasks
        self._commits = [self.listing.commits[version].name for version in sorted(self.listing.commits)]
        self._place = {name: number for number, name in enumerate(self._commits)}
        self._ahead: dict[str, bytes | None] = {}

    @property
    def newest(self) -> int:
        return self.listing.newest

    async def steps(self, since: int | None = None) -> AsyncIterator[Base | Version]:
        """As `delta.log_reader.read_log`. Files are parsed in a thread: others are served meanwhile."""
        loop = asyncio.get_running_loop()

        def fetch(name: str) -> bytes:
            return asyncio.run_coroutine_threadsafe(self._get(name), loop).result(_FETCH_S)

        steps = read_log(self.files, fetch, since)
        while (step := await asyncio.to_thread(next, steps, None)) is not None:
            yield step

    async def digest(self, name: str) -> str:
        """Of one file."""
        return codec.digest(await self._get(name))

    async def _get(self, name: str) -> bytes:
        if name not in self._ahead:
            place = self._place.get(name)
            names = [name] if place is None else self._commits[place : place + _READ_AHEAD]
            found = await self._tasks.all([self._blobs.get(f"{self.folder}/{one}") for one in names])
            self._ahead = dict(zip(names, found, strict=True))
        data = self._ahead.pop(name)
        if data is None:
            raise BadLog(f"{self.folder}/{name} was listed and is gone; somebody cleans up this log, try again")
        return data


async def open_log(blobs: BlobStore, tasks: Tasks, table: str) -> Log:
    """The log of the table in this folder of the warehouse. Empty if there is none."""
    folder = f"{table}/_delta_log"
    files: list[LogFile] = []
    after: str | None = None
    while page := await blobs.list(f"{folder}/", after, _PAGE):
        files += [LogFile(one.name.removeprefix(f"{folder}/"), one.modified_ms) for one in page]
        after = page[-1].name
    return Log(folder, files, blobs, tasks)

"""The check of `lakepact doctor` that reads the metadata file of every table and view.

A table whose file is missing, damaged or altered cannot be loaded, and garbage collection leaves files that it may
refer to. Delta tables have no metadata file in the warehouse that the catalog depends on; they are left out.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Final

from lakepact.catalog.errors import MissingFile, Refusal
from lakepact.catalog.files import MetadataFiles
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer
from lakepact.catalog.warehouse import Warehouse
from lakepact.cli.finding import Finding, bad, good, odd
from lakepact.errors import LakepactError, Unreadable
from lakepact.kernel.keys import key_of
from lakepact.kernel.ports import BlobStore, CellStore
from lakepact.settings import Settings
from lakepact.stores import absent, open_blobs, open_store

MOST_LISTED: Final = 20
"""Tables that are listed one by one. The others are counted."""

_CONCURRENCY: Final = 16
_PAGE: Final = 500
_DEADLINE_S: Final = 300.0
"""Time for one warehouse. A check that takes longer ends with what it has read, and says so."""

_OPEN_WITHIN_S: Final = 30.0
_PROGRESS_EVERY_S: Final = 5.0


async def table_metadata(settings: Settings, progress: Callable[[str], None]) -> AsyncIterator[Finding]:
    """Read the metadata of all tables and views.

    Yields nothing if the store or a warehouse does not exist or cannot be opened: other checks report that.
    `progress` is called with a line every few seconds.
    """
    for name, root in settings.places().items():
        if any(url.startswith(("sqlite:", "file:")) and absent(url) for url in (settings.store, root.url)):
            continue
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_OPEN_WITHIN_S):
                    store = await open_store(settings.store, settings.kernel(), options=settings.store_options)
                    stack.push_async_callback(store.close)
                    blobs = await open_blobs(root.url, root.options)
                    stack.push_async_callback(blobs.close)
            except (LakepactError, TimeoutError):
                continue
            check = MetadataCheck(store, blobs, Warehouse(name, root.url), progress)
            for finding in await check.run():
                yield finding


class MetadataCheck:
    """Reads the metadata files of one warehouse."""

    def __init__(
        self,
        store: CellStore,
        blobs: BlobStore,
        warehouse: Warehouse,
        progress: Callable[[str], None],
        *,
        deadline_s: float = _DEADLINE_S,
    ) -> None:
        self._store = store
        self._blobs = blobs
        self._warehouse = warehouse
        self._progress = progress
        self._deadline_s = deadline_s
        self._files = MetadataFiles(warehouse, blobs, 0, look_every_time=False)
        self._read = 0
        self._unreadable = 0
        self._findings: list[Finding] = []
        self._reported_s = time.monotonic()

    async def run(self) -> list[Finding]:
        """Return one finding for the warehouse, and one for each of the first tables that cannot be read."""
        subject = f"metadata of {self._warehouse.name}"
        complete = True
        try:
            async with asyncio.timeout(self._deadline_s):
                for kind in (Kind.TABLE, Kind.VIEW):
                    await self._check_all(kind)
        except TimeoutError:
            complete = False
        except LakepactError as error:
            return [
                *self._findings,
                bad(subject, str(error), "Check that the warehouse can be read, and run it again."),
            ]
        shown = f"{self._read:,} tables and views were read"
        if self._unreadable:
            shown += f", {self._unreadable:,} of them cannot be loaded"
        if not complete:
            shown += f"; it was stopped after {self._deadline_s:g} s"
            return [*self._findings, odd(subject, shown, "Run it again when the storage is less busy, to check all.")]
        if self._unreadable:
            more = f" The first {MOST_LISTED} are listed." if self._unreadable > MOST_LISTED else ""
            return [*self._findings, odd(subject, shown, f"Repair them one by one, as their own lines say.{more}")]
        return [good(subject, shown)]

    async def _check_all(self, kind: Kind) -> None:
        cursor: str | None = None
        while True:
            page = await self._store.scan(key_of(self._warehouse.name, FAMILIES[kind]), cursor, _PAGE)
            pointers = [pointer for cell in page.cells if (pointer := Pointer.of(cell)) is not None]
            for start in range(0, len(pointers), _CONCURRENCY):
                batch = pointers[start : start + _CONCURRENCY]
                async with asyncio.TaskGroup() as group:
                    errors = [group.create_task(self._error(pointer)) for pointer in batch]
                for pointer, error in zip(batch, errors, strict=True):
                    await self._add(pointer, error.result())
            cursor = page.after
            if cursor is None:
                return

    async def _error(self, pointer: Pointer) -> LakepactError | None:
        """Why the metadata of a table or view cannot be loaded; None if it can. Another error is returned too."""
        try:
            await self._files.of(pointer)
        except LakepactError as error:
            return error
        return None

    async def _add(self, pointer: Pointer, error: LakepactError | None) -> None:
        if error is not None and not isinstance(error, MissingFile | Unreadable):
            # The storage does not answer: this says nothing about the table.
            raise error
        self._read += 1
        if error is not None:
            self._unreadable += 1
            if len(self._findings) < MOST_LISTED:
                subject = f"{pointer.kind} {self._warehouse.name}: {_written(pointer)}"
                self._findings.append(odd(subject, str(error), await self._advice(pointer)))
        if time.monotonic() - self._reported_s > _PROGRESS_EVERY_S:
            self._reported_s = time.monotonic()
            self._progress(f"{self._read:,} metadata files of warehouse {self._warehouse.name} were read")

    async def _advice(self, pointer: Pointer) -> str:
        """What to type next. An older version can take the place of this one if its file exists."""
        restore = f"Restore {pointer.metadata_location} from a backup"
        if pointer.kind is Kind.VIEW:
            return f"{restore}, or drop the view and create it again."
        name = f"{shlex.quote(_written(pointer))} --warehouse {shlex.quote(self._warehouse.name)}"
        previous = pointer.previous_metadata_location
        if previous is not None and await self._exists(previous):
            return (
                f"{restore}. Or go back to the version before, without the last commit: "
                f"lakepact tables register {name} {shlex.quote(previous)} --overwrite"
            )
        return f"{restore}. Or give the table up: lakepact tables drop {name}"

    async def _exists(self, location: str) -> bool:
        try:
            return await self._blobs.exists(self._warehouse.blob_name(location))
        except Refusal:
            return False


def _written(pointer: Pointer) -> str:
    return ".".join((*pointer.identifier.namespace, pointer.identifier.name))

"""The audit trail: who asked for what, and what came of it, as files of JSON lines in the warehouse.

Entries are kept in memory for a few seconds and then written as one file that nobody changes any more, with the
durability of the warehouse. When the server stops, the rest is written. What a crash takes with it are the entries of
the last seconds: of what was applied the records and receipts tell who it was; of what was denied nothing is left.

If the warehouse does not answer, entries wait, up to a bound; beyond it the oldest are given up, and counted.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Final

import orjson
import structlog

from lakepact.catalog.trail import LONGEST_MS, Entry, Trail, file_name
from lakepact.kernel.ports import BlobStore, Clock

_MOST_WAITING: Final = 100_000
"""Of one warehouse."""

_FULL: Final = 5_000
"""As many as are not kept waiting for the time to come."""

_FILE_BYTES: Final = 1 << 20
"""Of one file, and the line that goes beyond it: whoever reads the trail reads whole files."""

_DAY_MS: Final = 86_400_000

_log = structlog.get_logger(__name__)


class AuditTrail(Trail):
    def __init__(
        self,
        warehouses: Mapping[str, BlobStore],
        clock: Clock,
        *,
        process: str,
        interval_s: float,
        keep: str = "changes",
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """`keep`: `off`, `changes` or `all`. `process`: a name that no other process has."""
        self._warehouses = warehouses
        self._clock = clock
        self._process = process
        self._interval_s = interval_s
        self._on = keep != "off"
        self.reads = keep == "all"
        self._on_lost = on_lost
        self._waiting: dict[str, deque[Entry]] = {name: deque() for name in warehouses}
        self._numbers = count(1)
        self._full = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    def note(self, warehouse: str, entry: Entry) -> None:
        if not self._on:
            return
        waiting = self._waiting[warehouse]
        if len(waiting) >= _MOST_WAITING:
            waiting.popleft()
            self._on_lost()
        waiting.append(entry)
        if len(waiting) >= _FULL:
            self._full.set()

    def start(self) -> None:
        if self._on:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Write what there is. May be called twice."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self.flush()

    async def flush(self, *warehouses: str) -> None:
        """Write what there is now, for these warehouses or for all."""
        async with self._writing:
            for warehouse in warehouses or self._warehouses:
                await self._write(warehouse)

    async def _write(self, warehouse: str) -> None:
        waiting = self._waiting[warehouse]
        while waiting:
            batch, lines = _next_file(waiting, warehouse)
            last_ms = max(one.at_ms for one in batch)
            name = file_name(batch[0].at_ms, last_ms, self._process, next(self._numbers))
            try:
                await self._warehouses[warehouse].put(name, lines)
            except BaseException as error:
                # A file that was written after all, and its answer lost, is written once more under another name:
                # better twice than not at all.
                waiting.extendleft(reversed(batch))
                if not isinstance(error, Exception):
                    raise
                _log.warning("the audit trail could not be written yet", warehouse=warehouse, error=repr(error))
                return

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._full.wait()
            self._full.clear()
            await self.flush()


def _next_file(waiting: deque[Entry], warehouse: str) -> tuple[list[Entry], bytes]:
    """Takes from those that wait what goes into one file: of one day, of a minute at most, and none of them older than
    the first."""
    first_ms = waiting[0].at_ms
    batch: list[Entry] = []
    lines = bytearray()
    while waiting and len(batch) < _FULL and len(lines) < _FILE_BYTES:
        at_ms = waiting[0].at_ms
        if not 0 <= at_ms - first_ms <= LONGEST_MS or at_ms // _DAY_MS != first_ms // _DAY_MS:
            break
        batch.append(waiting.popleft())
        lines += orjson.dumps(batch[-1].to_json(warehouse), option=orjson.OPT_APPEND_NEWLINE)
    return batch, bytes(lines)

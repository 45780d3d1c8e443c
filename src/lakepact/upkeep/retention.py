"""Removes receipts that are not needed any more.

Only what the projections have taken in is removed: their position is a document in the warehouse, and where there is
none, nothing goes. Loose files of a packed day may go first, once its segments have been read and are what the manifest
says; everything of a day goes when it is older than receipts are kept.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from lakepact.catalog import Catalog
from lakepact.catalog.pointers import DELTA, ICEBERG
from lakepact.catalog.receipts import EVENTS, date_of
from lakepact.errors import Unreadable
from lakepact.kernel.ports import BlobStore, Clock
from lakepact.upkeep.arrivals import arrivals_of
from lakepact.upkeep.days import age_ms, days_in, entries_of, in_ms, side_by_side
from lakepact.upkeep.segments import (
    LATE,
    SEGMENTS,
    Manifest,
    committed_of,
    folder_of,
    key_of_name,
    manifest_name,
    unpack,
)
from lakepact.upkeep.shelf import read_manifest
from lakepact.upkeep.steps import Steps

POSITION: Final = "lakepact.projections"
"""The state in which the projections keep how far they have come. `through`: the last day that is wholly in them."""

_ORPHAN_MS: Final = in_ms(1)

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Removed:
    loose: int = 0
    notes: int = 0
    segments: int = 0
    days: int = 0
    """Of which nothing is left."""


class Retention:
    def __init__(
        self,
        catalogs: Mapping[str, Catalog],
        clock: Clock,
        *,
        receipt_days: int,
        loose_days: int,
        on_removed: Callable[[int], None] = lambda files: None,
    ) -> None:
        """`receipt_days`: how long receipts are kept, 0 for ever. `loose_days`: loose ones whose day is packed."""
        self._catalogs = catalogs
        self._clock = clock
        self._receipt_ms = in_ms(receipt_days)
        self._loose_ms = in_ms(loose_days)
        self._on_removed = on_removed
        self._steps = Steps(self._all)
        self.done = Removed()

    async def remove_some(self) -> bool:
        """Look at one more day: whether there may be more."""
        return await self._steps.next()

    async def _all(self) -> AsyncIterator[None]:
        for catalog in self._catalogs.values():
            blobs, through = catalog.parts.blobs, await position_of(catalog)
            if through is None:
                continue
            for folder in (SEGMENTS, EVENTS):
                # Both: a day that was removed but for the last step has only segments.
                async for date in days_in(blobs, folder):
                    age = age_ms(date, self._clock.now_ms())
                    if date > through or age < min(self._loose_ms, self._receipt_ms or self._loose_ms):
                        break
                    if self._receipt_ms and age >= self._receipt_ms:
                        await self._remove_day(blobs, date, through)
                    elif age >= self._loose_ms and folder == EVENTS:
                        await self._remove_loose(blobs, date)
                    yield

    async def _remove_loose(self, blobs: BlobStore, date: str) -> None:
        manifest = await read_manifest(blobs, date)
        if manifest is None:
            return
        kinds = {f"{kind}-": committed_of(date, kind) for kind in (ICEBERG, DELTA)} | {f"{LATE}-": arrivals_of(date)}
        for kind, prefix in kinds.items():
            if not await blobs.list(prefix, None, 1):
                continue
            try:
                keys = await _keys(blobs, manifest, kind)
            except Unreadable as error:
                _log.error("loose receipts are kept, since a segment cannot be read", date=date, error=str(error))
                return
            async for page in entries_of(blobs, prefix):
                names = [entry.name for entry in page if key_of_name(entry.name) in keys]
                await self._delete(blobs, date, names, "packed")
                if kind == f"{LATE}-":
                    self.done.notes += len(names)
                else:
                    self.done.loose += len(names)
        await self._remove_orphans(blobs, manifest)

    async def _remove_orphans(self, blobs: BlobStore, manifest: Manifest) -> None:
        """Segments of a packer that was not the first."""
        named = {folder_of(manifest.date) + segment.name for segment in manifest.segments}
        now_ms = self._clock.now_ms()
        async for page in entries_of(blobs, folder_of(manifest.date)):
            names = [
                entry.name
                for entry in page
                if entry.name not in named
                and entry.name != manifest_name(manifest.date)
                and now_ms - entry.modified_ms > _ORPHAN_MS
            ]
            await self._delete(blobs, manifest.date, names, "named by no manifest")
            self.done.segments += len(names)

    async def _remove_day(self, blobs: BlobStore, date: str, through: str) -> None:
        """Loose files first, then the manifest, then what it names: so no manifest ever names what is not there."""
        left = False
        async for page in entries_of(blobs, f"{EVENTS}/{date}/"):
            # One that came later than what has been projected waits until it is.
            names = [entry.name for entry in page if date_of(entry.modified_ms) <= through]
            left |= len(names) < len(page)
            await self._delete(blobs, date, names, "projected and past its retention")
            notes = sum(name.startswith(arrivals_of(date)) for name in names)
            self.done.notes += notes
            self.done.loose += len(names) - notes
        if left:
            return
        await self._delete(blobs, date, [manifest_name(date)], "projected and past its retention")
        async for page in entries_of(blobs, folder_of(date)):
            await self._delete(blobs, date, [entry.name for entry in page], "projected and past its retention")
            self.done.segments += len(page)
        self.done.days += 1

    async def _delete(self, blobs: BlobStore, date: str, names: Sequence[str], why: str) -> None:
        if not names:
            return
        await side_by_side(blobs.delete, names)
        self._on_removed(len(names))
        _log.info("receipts removed", date=date, files=len(names), first=names[0], last=names[-1], why=why)


async def position_of(catalog: Catalog) -> str | None:
    """The last day that is wholly in the projections; None if there are none."""
    key = catalog.parts.keys.state(POSITION)
    value = (await catalog.parts.store.read([key]))[key].value
    position = value.get("value") if value is not None else None
    through = position.get("through") if isinstance(position, Mapping) else None
    return through if isinstance(through, str) else None


async def _keys(blobs: BlobStore, manifest: Manifest, kind: str) -> frozenset[str]:
    """The commit keys in the segments of one kind, each read and compared with what the manifest says."""
    keys: set[str] = set()
    for segment in manifest.segments:
        if segment.name.startswith(kind):
            receipts = unpack(segment, await blobs.get(folder_of(manifest.date) + segment.name))
            keys.update(receipt["commit-key"] for receipt in receipts)
    return frozenset(keys)

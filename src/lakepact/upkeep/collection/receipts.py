"""Receipts that are not needed any more: single files first, and where the operator says so packed days.

Only what the projections have taken in is removed. Their position is a document of the warehouse, which is written in
one transaction with their tables; where there is none, or the tables are gone, nothing goes. A single file goes once
its day is packed, the segment that holds it has been read and is what its manifest says, and what is in it is what is
in the file. Packed days stay for ever, so that the projections can be made anew from nothing, unless the operator has
said for how long.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from lakepact.catalog import Catalog
from lakepact.catalog.receipts import EVENTS, date_of
from lakepact.errors import Unreadable
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.ports import BlobEntry, BlobStore, Clock
from lakepact.upkeep.arrivals import arrivals_of
from lakepact.upkeep.collection.removal import Class, Removal, Report, told
from lakepact.upkeep.days import age_ms, days_in, entries_of, in_ms, side_by_side
from lakepact.upkeep.mending import rebuild, unnamed
from lakepact.upkeep.segments import (
    ABANDONED_MS,
    LATE,
    SEGMENTS,
    Manifest,
    Segment,
    committed_of,
    folder_of,
    key_of_name,
    line_of,
    lines_of,
    manifest_name,
    place_of,
    receipt_in,
)
from lakepact.upkeep.shelf import read_manifest
from lakepact.upkeep.steps import Steps

POSITION: Final = "lakepact.projections"
"""The state in which the projections keep how far they have come. `through`: the last day that is wholly in them."""

COMMITS: Final = Identifier(("lakepact",), "commits")
"""The projection that has a row for every receipt."""

_PACKED: Final = "projected, and in a segment of its day that was read and compared"
_PAST: Final = "projected, and past receipt_days"


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
        report: Report | None = None,
        dry_run: bool = False,
        on_removed: Callable[[int], None] = lambda files: None,
    ) -> None:
        """`receipt_days`: how long packed days are kept, 0 for ever. `loose_days`: single files whose day is packed.
        `report`: where it is told what goes and what stays, for whoever asks once; a server's log has it anyway."""
        self._catalogs = catalogs
        self._clock = clock
        self._receipt_ms = in_ms(receipt_days)
        self._loose_ms = in_ms(loose_days)
        self._asked = report
        self._report = report or Report()
        self._dry_run = dry_run
        self._on_removed = on_removed
        self._through: dict[str, str] = {}
        """By warehouse: of days up to this one no single file is left that could go."""

        self._told: set[str] = set()
        """What has been said in this pass: in a dry run the same file is met more than once."""

        self._steps = Steps(self._all)
        self.done = Removed()

    async def remove_some(self) -> bool:
        """Look at one more day: whether there may be more."""
        return await self._steps.next()

    async def run(self) -> None:
        """Look at all of them, now."""
        while await self.remove_some():
            pass

    async def _all(self) -> AsyncIterator[None]:
        self._report, self._told = self._asked or Report(), set()
        for name, catalog in self._catalogs.items():
            blobs, through = catalog.parts.blobs, await position_of(catalog)
            if through is None:
                if self._asked is not None:
                    self._asked.leave(
                        f"receipts of {name}", "no projections have taken them in, so none goes: lakepact project"
                    )
                continue
            if self._receipt_ms:
                for folder in (SEGMENTS, EVENTS):
                    # Both: a day that was removed but for the last step has only segments.
                    async for date in days_in(blobs, folder):
                        if date > through or age_ms(date, self._clock.confirmed_ms()) < self._receipt_ms:
                            break
                        await self._remove_day(blobs, date, through)
                        yield
            done = True
            async for date in days_in(blobs, EVENTS, self._through.get(name)):
                if date > through or age_ms(date, self._clock.confirmed_ms()) < self._loose_ms:
                    break
                done = await self._remove_loose(blobs, date, through) and done
                if done and not self._dry_run:
                    self._through[name] = date
                yield

    # --- single files ---

    async def _remove_loose(self, blobs: BlobStore, date: str, through: str) -> bool:
        """Single files that are in the segments of their own day, and notes of late ones. Whether all went that can."""
        try:
            manifest = await read_manifest(blobs, date)
            if manifest is None:
                self._leave(date, "the day is not packed yet: lakepact pack")
                return False
            done = True
            for segment in manifest.segments:
                done = await self._remove_packed(blobs, manifest, segment, through) and done
        except Unreadable as error:
            self._leave(date, f"single files are kept, since what was packed cannot be read: {error}")
            return False
        await self._remove_orphans(blobs, manifest)
        return done

    async def _remove_packed(self, blobs: BlobStore, manifest: Manifest, segment: Segment, through: str) -> bool:
        """The single files that one segment holds, which lie in the order of its lines. Whether all of them went."""
        kind, _ = place_of(segment.name)
        prefix = arrivals_of(manifest.date) if kind == LATE else committed_of(manifest.date, kind)
        lines: dict[str, bytes] | None = None
        all_gone = True
        async for page in entries_of(blobs, prefix, prefix + segment.first):
            entries = [one for one in page if key_of_name(one.name) <= segment.last]
            if entries and lines is None:
                lines = {orjson.loads(line)["commit-key"]: line for line in await self._read(blobs, manifest, segment)}
            held = [one for one in entries if key_of_name(one.name) in (lines or {})]
            old = [one for one in held if _is_projected(one, through)]
            all_gone &= len(old) == len(held)
            if kind == LATE:
                self.done.notes += await self._delete(blobs, manifest.date, [one.name for one in old], _PACKED)
            else:
                same = await self._same(blobs, manifest.date, old, lines or {})
                self.done.loose += await self._delete(blobs, manifest.date, same, _PACKED)
            if len(entries) < len(page):
                break
        return all_gone

    async def _read(self, blobs: BlobStore, manifest: Manifest, segment: Segment) -> list[bytes]:
        """The lines of a segment, which is made again if it is damaged: this is the last moment at which it can be."""
        name = folder_of(manifest.date) + segment.name
        try:
            return lines_of(segment, await blobs.get(name))
        except Unreadable:
            if self._dry_run or not await rebuild(blobs, manifest, segment):
                raise
            return lines_of(segment, await blobs.get(name))

    async def _same(
        self, blobs: BlobStore, date: str, entries: Sequence[BlobEntry], lines: Mapping[str, bytes]
    ) -> list[str]:
        """Those files that say what the segment says."""
        same: list[str] = []
        names = [one.name for one in entries]
        for name, data in zip(names, await side_by_side(blobs.get, names), strict=True):
            document = None if data is None else receipt_in(data, key_of_name(name))
            if data is not None and document is not None and line_of(data, document) == lines[key_of_name(name)]:
                same.append(name)
            elif data is not None:
                self._leave(date, f"{name} is not what was packed: look at both before you remove it")
        return same

    async def _remove_orphans(self, blobs: BlobStore, manifest: Manifest) -> None:
        """Segments of a packer that was not the first."""
        named = (*manifest.segments, *manifest.lost)
        known = {manifest_name(manifest.date), *(folder_of(manifest.date) + one.name for one in named)}
        now_ms = self._clock.confirmed_ms()
        names = [
            entry.name
            async for page in entries_of(blobs, folder_of(manifest.date))
            for entry in page
            if entry.name not in known and now_ms - entry.modified_ms > ABANDONED_MS
        ]
        if not names:
            return
        forgotten, unreadable = await unnamed(blobs, manifest.date, named)
        kept = {folder_of(manifest.date) + name for name in (*(one.name for one in forgotten), *unreadable)}
        for name in kept & set(names):
            self._leave(manifest.date, f"{name} is in no manifest, and perhaps all there is: lakepact reconcile --mend")
        gone = [name for name in names if name not in kept]
        self.done.segments += await self._delete(blobs, manifest.date, gone, "named by no manifest")

    # --- whole days ---

    async def _remove_day(self, blobs: BlobStore, date: str, through: str) -> None:
        """Single files first, then the manifest, then what it names: so no manifest ever names what is not there."""
        try:
            manifest = await read_manifest(blobs, date)
            if manifest is not None:
                for segment in manifest.segments:
                    await self._read(blobs, manifest, segment)
        except Unreadable as error:
            self._leave(date, f"it is past receipt_days and kept, since nobody knows what was packed: {error}")
            return
        if manifest is None and await blobs.list(f"{EVENTS}/{date}/", None, 1):
            self._leave(date, "it is past receipt_days, and not packed yet: lakepact pack")
            return
        if manifest is not None and manifest.lost:
            self._leave(date, f"it is past receipt_days, and has lost segments: remove {folder_of(date)} by hand")
            return
        if manifest is not None and not await self._remove_loose(blobs, date, through):
            return
        if not await self._remove_rest(blobs, date, through):
            return
        names = [manifest_name(date)] if manifest is not None else []
        await self._delete(blobs, date, names, _PAST)
        async for page in entries_of(blobs, folder_of(date)):
            segments = [entry.name for entry in page if entry.name not in names]
            self.done.segments += await self._delete(blobs, date, segments, _PAST)
        self.done.days += 1

    async def _remove_rest(self, blobs: BlobStore, date: str, through: str) -> bool:
        """What is in no segment of its own day: late receipts, which are in another day's, and notes that told of none.
        Whether all of it went."""
        all_gone = True
        async for page in entries_of(blobs, f"{EVENTS}/{date}/"):
            old = [entry.name for entry in page if _is_projected(entry, through)]
            notes = [name for name in old if name.startswith(arrivals_of(date))]
            single = [name for name in old if name not in set(notes)]
            readable = [
                name
                for name, data in zip(single, await side_by_side(blobs.get, single), strict=True)
                if data is None or receipt_in(data, key_of_name(name)) is not None
            ]
            for name in set(single) - set(readable):
                self._leave(date, f"{name} is damaged and was never projected: lakepact reconcile --mend")
            all_gone &= len(notes) + len(readable) == len(page)
            self.done.notes += await self._delete(blobs, date, notes, _PAST)
            self.done.loose += await self._delete(blobs, date, readable, _PAST)
        return all_gone

    # --- telling ---

    def _leave(self, date: str, why: str) -> None:
        if date not in self._told:
            self._told.add(date)
            self._report.leave(f"receipts of {date}", why)

    async def _delete(self, blobs: BlobStore, date: str, names: Sequence[str], why: str) -> int:
        if self._dry_run:
            names = [name for name in names if name not in self._told]
            self._told.update(names)
        for name in names:
            removal = Removal(Class.RECEIPTS, name, f"receipts of {date}", why)
            self._report.add(removal)
            if not self._dry_run:
                told(removal)
        if names and not self._dry_run:
            await side_by_side(blobs.delete, names)
            self._on_removed(len(names))
        return len(names)


def _is_projected(entry: BlobEntry, through: str) -> bool:
    """Whether it was there when the projections looked: what came later waits until they have looked again."""
    return date_of(entry.modified_ms) <= through


async def position_of(catalog: Catalog) -> str | None:
    """The last day that is wholly in the projections; None if there are none."""
    keys = catalog.parts.keys
    state, commits = keys.state(POSITION), keys.name(COMMITS)
    cells = await catalog.parts.store.read([state, commits])
    value = cells[state].value
    if value is None or cells[commits].value is None:
        return None
    position = value.get("value")
    through = position.get("through") if isinstance(position, Mapping) else None
    return through if isinstance(through, str) else None

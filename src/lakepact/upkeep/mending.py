"""Packed days that are damaged: made again from what is left of them, or set aside so that nobody stumbles twice.

A manifest that is gone, or that does not name a segment which nothing else can replace, is damage, too.

A segment is its lines, and its manifest has their hash. So whether loose files make the same segment again can be tried
out, and a wrong guess does no harm. Its name has the beginning of that hash: so a manifest can be made again from the
segments that lie beside its place.

What cannot be made again is lost: the manifest says so from then on, and the bytes stay where they are, for whoever has
a use for them. If somebody puts the right ones there, the next look takes it back. Receipts that lie loose and that no
segment of their day holds any more get a note of today, as if they had come late: so readers who are beyond that day
find them. Whatever else was in a lost segment is for the reconciler, which writes what records and metadata still tell.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import orjson
import structlog

from lakepact.catalog.pointers import DELTA, ICEBERG
from lakepact.catalog.receipts import Receipt
from lakepact.errors import Unreadable
from lakepact.kernel.ports import BlobEntry, BlobStore, Clock
from lakepact.upkeep.arrivals import arrivals_of, noted_name, put_note
from lakepact.upkeep.days import days_in, entries_of, side_by_side
from lakepact.upkeep.segments import (
    ABANDONED_MS,
    LATE,
    SEGMENTS,
    WHAT_TO_DO,
    Manifest,
    Segment,
    committed_of,
    folder_of,
    key_of_name,
    line_of,
    lines_of,
    manifest_name,
    pack,
    place_of,
    receipt_in,
    recognized,
    unpack,
)

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Mended:
    """What became of damaged days, in words."""

    rebuilt: list[str] = field(default_factory=list)
    """Segments and manifests that are whole again."""

    lost: list[str] = field(default_factory=list)
    """Segments that were set aside."""

    noted: int = 0
    """Loose receipts that got a note."""


async def damages(blobs: BlobStore, clock: Clock) -> AsyncIterator[tuple[str, list[str]]]:
    """Every packed day, and what is wrong with it. All segments are read."""
    async for date in days_in(blobs, SEGMENTS):
        data = await blobs.get(manifest_name(date))
        if data is None:
            lost = await _has_lost_its_manifest(blobs, clock, date)
            yield date, [f"{manifest_name(date)} is not there, and segments are. {WHAT_TO_DO}"] if lost else []
            continue
        try:
            manifest = Manifest.read(manifest_name(date), data)
        except Unreadable as error:
            yield date, [str(error)]
            continue
        found: list[str] = []
        for segment in manifest.segments:
            try:
                lines_of(segment, await blobs.get(folder_of(date) + segment.name))
            except Unreadable as error:
                found.append(str(error))
        forgotten, _ = await unnamed(blobs, date, (*manifest.segments, *manifest.lost))
        found += [f"{folder_of(date)}{one.name} is in no manifest, and holds what no other does" for one in forgotten]
        yield date, found


async def mend_all(blobs: BlobStore, clock: Clock, done: Mended) -> AsyncIterator[None]:
    """Mend every packed day, one a step."""
    async for date in days_in(blobs, SEGMENTS):
        await mend_day(blobs, clock, date, done)
        yield


async def mend_day(blobs: BlobStore, clock: Clock, date: str, done: Mended) -> None:
    name = manifest_name(date)
    was = await blobs.get(name)
    if was is None and not await _has_lost_its_manifest(blobs, clock, date):
        return
    try:
        manifest, damaged = Manifest.read(name, was or b""), False
    except Unreadable:
        manifest, damaged = await _recognized(blobs, clock, date), True
    whole: list[Segment] = []
    lost: list[Segment] = []
    for segment in (*manifest.segments, *manifest.lost):
        again = await _whole(blobs, manifest, segment, done)
        (lost if again is None else whole).append(again or segment)
        if again is None and (damaged or segment in manifest.segments):
            done.lost.append(
                f"{folder_of(date)}{segment.name}, with {segment.receipts or 'unknown'} receipts of {date}, can "
                f"neither be read nor made again, and was set aside. Whatever records and metadata tell of them is "
                f"written anew. If it is in a backup, put it back and run this once more, then lakepact project --full"
            )
    forgotten, _ = await unnamed(blobs, date, (*whole, *lost))
    done.rebuilt += [folder_of(date) + one.name for one in forgotten]
    now = replace(manifest, segments=(*whole, *forgotten), lost=tuple(lost))
    if not damaged and now == manifest:
        return
    # The notes first: a crash before the manifest leaves everything as it was found.
    done.noted += await _note_uncovered(blobs, clock, now, everything=damaged)
    if await blobs.replace(name, now.to_bytes(), was):
        done.rebuilt += [name] * damaged
        _log.warning("a damaged day was mended", date=date, segments=len(whole), lost=[one.name for one in lost])


async def unnamed(blobs: BlobStore, date: str, named: Sequence[Segment]) -> tuple[list[Segment], list[str]]:
    """Segments of a day that hold receipts which none of these holds: a manifest that names these has forgotten them.
    And the names of those that cannot be read."""
    known = {segment.name for segment in named}
    others = [
        name
        async for page in entries_of(blobs, folder_of(date))
        for entry in page
        if entry.name != manifest_name(date) and (name := entry.name.removeprefix(folder_of(date))) not in known
    ]
    held: set[str] = set()
    for segment in named if others else ():
        with suppress(Unreadable):
            lines = lines_of(segment, await blobs.get(folder_of(date) + segment.name))
            held.update(orjson.loads(line)["commit-key"] for line in lines)
    forgotten: list[Segment] = []
    unreadable: list[str] = []
    for name in others:
        try:
            found = recognized(name, await blobs.get(folder_of(date) + name) or b"")
        except Unreadable:
            unreadable.append(name)
            continue
        keys = {one["commit-key"] for one in unpack(found, await blobs.get(folder_of(date) + name))}
        if not keys <= held:
            forgotten.append(found)
            held |= keys
    return forgotten, unreadable


async def _has_lost_its_manifest(blobs: BlobStore, clock: Clock, date: str) -> bool:
    """Whether segments lie there without one for so long that nobody is about to write it."""
    entries = await blobs.list(folder_of(date), None, 1)
    return any(clock.now_ms() - entry.modified_ms > ABANDONED_MS for entry in entries)


async def _whole(blobs: BlobStore, manifest: Manifest, segment: Segment, done: Mended) -> Segment | None:
    """The segment, if it is there as it was packed, or can be made again."""
    name = folder_of(manifest.date) + segment.name
    data = await blobs.get(name)
    try:
        if not segment.sha256:
            # The manifest that knew more of it is gone, too.
            return recognized(segment.name, data or b"")
        lines_of(segment, data)
        return segment
    except Unreadable:
        if not await rebuild(blobs, manifest, segment):
            return None
        done.rebuilt.append(name)
        return segment


async def rebuild(blobs: BlobStore, manifest: Manifest, segment: Segment) -> bool:
    """Write a segment again, byte for byte what was packed, if the loose files of its day still make it."""
    if not segment.sha256:
        return False
    kind, number = place_of(segment.name)
    found = [one async for one in _loose(blobs, manifest.date, kind, segment.first, segment.last)]
    # What came after the day was packed lies among them. Which ones these are their times tell, or nothing does.
    for some in (found, [one for one in found if one[0].modified_ms <= manifest.packed_ms]):
        if len(some) != segment.receipts:
            continue
        lines = [(receipt.document["commit-key"], line) for _, receipt, line in some]
        again, data = pack(kind, number, lines)
        if again.sha256 == segment.sha256:
            name = folder_of(manifest.date) + segment.name
            written = await blobs.replace(name, data, await blobs.get(name))
            if written:
                _log.warning("a damaged segment was made again from loose receipts", segment=name)
            return written
    return False


async def _recognized(blobs: BlobStore, clock: Clock, date: str) -> Manifest:
    """The manifest of a day, from the segments that are there."""
    whole: list[Segment] = []
    lost: list[Segment] = []
    async for page in entries_of(blobs, folder_of(date)):
        for entry in page:
            name = entry.name.removeprefix(folder_of(date))
            if entry.name == manifest_name(date):
                continue
            try:
                whole.append(recognized(name, await blobs.get(entry.name) or b""))
            except Unreadable:
                lost.append(Segment(name, 0, 0, 0, "", "", ""))
    return Manifest(date, clock.now_ms(), tuple(whole), (), tuple(lost))


async def _note_uncovered(blobs: BlobStore, clock: Clock, manifest: Manifest, *, everything: bool) -> int:
    """Leave a note of each loose receipt that a lost segment held, or may have held."""
    noted = 0
    for kind in (ICEBERG, DELTA, LATE):
        of_kind = [one for one in manifest.lost if one.name.startswith(f"{kind}-")]
        if not everything and not of_kind:
            continue
        held: set[str] = set()
        for segment in manifest.segments:
            if segment.name.startswith(f"{kind}-"):
                lines = lines_of(segment, await blobs.get(folder_of(manifest.date) + segment.name))
                held.update(orjson.loads(line)["commit-key"] for line in lines)
        async for _, receipt, _ in _loose(blobs, manifest.date, kind):
            if receipt.document["commit-key"] not in held:
                await put_note(blobs, clock, receipt)
                noted += 1
    return noted


async def _loose(
    blobs: BlobStore, date: str, kind: str, first: str | None = None, last: str | None = None
) -> AsyncIterator[tuple[BlobEntry, Receipt, bytes]]:
    """The loose receipts of a kind under this day, in the order of their keys: what their time is taken from, what they
    say, and how they are packed. Of a range of keys, or all."""
    prefix = arrivals_of(date) if kind == LATE else committed_of(date, kind)
    async for page in entries_of(blobs, prefix, None if first is None else prefix + first):
        entries = [one for one in page if last is None or key_of_name(one.name) <= last]
        names: Sequence[str | None] = [one.name for one in entries]
        if kind == LATE:
            names = [noted_name(note) for note in await side_by_side(blobs.get, [one.name for one in entries])]
        pairs = [(entry, name) for entry, name in zip(entries, names, strict=True) if name is not None]
        contents = await side_by_side(blobs.get, [name for _, name in pairs])
        for (entry, name), data in zip(pairs, contents, strict=True):
            document = None if data is None else receipt_in(data, key_of_name(name))
            if data is not None and document is not None:
                yield entry, Receipt(name, document), line_of(data, document)
        if len(entries) < len(page):
            return

"""Packs the receipts of days that have ended into segments, so that whoever reads all of them reads few large files.

A day is packed once: some hours after its end, when everything that still comes leaves a note. Its segments hold what
lay loose under its date, and the late receipts of other days whose notes lie under it. So nothing has ever to be added
to a packed day: what comes later is in the segments of the day on which it came.

Segments first, the manifest last. A crash in between leaves segments that no manifest names; whoever packs the day
again makes the same ones. Of two packers at once the first manifest counts. Loose files stay: removing them is for
`collection.receipts`, which looks first whether the segments are what they should be.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog

from lakepact.catalog.pointers import DELTA, ICEBERG
from lakepact.catalog.receipts import EVENTS
from lakepact.kernel.ports import BlobStore, Clock
from lakepact.upkeep.arrivals import arrivals_of, noted_name
from lakepact.upkeep.days import age_ms, days_in, entries_of, side_by_side
from lakepact.upkeep.mending import unnamed
from lakepact.upkeep.segments import (
    LATE,
    Manifest,
    Segment,
    committed_of,
    folder_of,
    key_of_name,
    line_of,
    manifest_name,
    pack,
    receipt_in,
    unpack,
)
from lakepact.upkeep.steps import Steps

MOST_RECEIPTS: Final = 20_000
MOST_BYTES: Final = 32 * 1024 * 1024
"""Of one segment, before it is packed. It is held in memory, and read by one task."""

Line: TypeAlias = tuple[str, bytes]
"""A receipt with its commit key before it."""

_MOST_DAMAGED: Final = 1_000

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Day:
    """What has been packed of a day so far."""

    date: str
    segments: list[Segment] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Packed:
    """What a packer has done."""

    days: int = 0
    receipts: int = 0
    segments: int = 0
    damaged: list[str] = field(default_factory=list)


class Packer:
    def __init__(
        self,
        warehouses: Mapping[str, BlobStore],
        clock: Clock,
        *,
        after_s: float,
        most_receipts: int = MOST_RECEIPTS,
        most_bytes: int = MOST_BYTES,
        on_packed: Callable[[int], None] = lambda receipts: None,
    ) -> None:
        """`after_s`: how long a day has ended before it is packed."""
        self._warehouses = warehouses
        self._clock = clock
        self._after_ms = int(after_s * 1000)
        self._most_receipts = most_receipts
        self._most_bytes = most_bytes
        self._on_packed = on_packed
        self._through: dict[str, str] = {}
        """By warehouse: days up to this one need not be looked at again by this process."""

        self._steps = Steps(self._all)
        self.done = Packed()

    async def pack_some(self) -> bool:
        """Make one more segment, or see that there is none to make: whether there may be more."""
        return await self._steps.next()

    async def _all(self) -> AsyncIterator[None]:
        for warehouse, blobs in self._warehouses.items():
            async for date in days_in(blobs, EVENTS, self._through.get(warehouse)):
                if age_ms(date, self._clock.confirmed_ms()) < self._after_ms:
                    break
                if not await blobs.exists(manifest_name(date)):
                    async for _ in self._pack(blobs, date):
                        yield
                self._through[warehouse] = date

    async def _pack(self, blobs: BlobStore, date: str) -> AsyncIterator[None]:
        day = _Day(date)
        for kind in (ICEBERG, DELTA):
            async for _ in self._pack_kind(blobs, day, kind, self._loose(blobs, day, committed_of(date, kind))):
                yield
        async for _ in self._pack_kind(blobs, day, LATE, self._late(blobs, day)):
            yield
        # A day may have been packed before, and only its manifest be gone: then the rest lies there, and nowhere else.
        day.segments += (await unnamed(blobs, date, day.segments))[0]
        manifest = Manifest(date, self._clock.now_ms(), tuple(day.segments), tuple(day.damaged[:_MOST_DAMAGED]))
        receipts = sum(segment.receipts for segment in day.segments)
        if not await blobs.put(manifest_name(date), manifest.to_bytes()):
            _log.info("another process has packed this day", date=date)
        else:
            _log.info("receipts packed", date=date, receipts=receipts, segments=len(day.segments))
        self.done.days += 1
        self.done.receipts += receipts
        self.done.segments += len(day.segments)
        self.done.damaged += day.damaged
        self._on_packed(receipts)
        yield

    async def _pack_kind(
        self, blobs: BlobStore, day: _Day, kind: str, found: AsyncIterator[Sequence[Line]]
    ) -> AsyncIterator[None]:
        held: list[Line] = []
        size = number = 0
        async for page in found:
            for key, line in page:
                length = len(line) + 1
                if held and (len(held) >= self._most_receipts or size + length > self._most_bytes):
                    day.segments.append(await _write(blobs, day.date, kind, number, held))
                    held, size, number = [], 0, number + 1
                    yield
                held.append((key, line))
                size += length
        if held:
            day.segments.append(await _write(blobs, day.date, kind, number, held))
            yield

    async def _loose(self, blobs: BlobStore, day: _Day, prefix: str) -> AsyncIterator[list[Line]]:
        async for page in entries_of(blobs, prefix):
            yield await _read(blobs, day, [entry.name for entry in page])

    async def _late(self, blobs: BlobStore, day: _Day) -> AsyncIterator[list[Line]]:
        async for page in entries_of(blobs, arrivals_of(day.date)):
            notes = await side_by_side(blobs.get, [entry.name for entry in page])
            yield await _read(blobs, day, [name for note in notes if (name := noted_name(note)) is not None])


async def _read(blobs: BlobStore, day: _Day, names: Sequence[str]) -> list[Line]:
    """The receipts of these names. A note's may be missing; what is damaged is left out."""
    found: list[Line] = []
    for name, data in zip(names, await side_by_side(blobs.get, names), strict=True):
        if data is None:
            continue
        key = key_of_name(name)
        document = receipt_in(data, key)
        if document is None:
            day.damaged.append(name)
            _log.error("a receipt is damaged and was not packed; mend it: lakepact reconcile --mend", receipt=name)
        else:
            found.append((key, line_of(data, document)))
    return found


async def _write(blobs: BlobStore, date: str, kind: str, number: int, lines: Sequence[Line]) -> Segment:
    segment, data = pack(kind, number, lines)
    name = folder_of(date) + segment.name
    if not await blobs.put(name, data):
        # Another release of zlib may have packed the same into other bytes.
        unpack(segment, await blobs.get(name))
    return segment

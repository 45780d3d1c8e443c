"""Receipts that come late, and the notes they leave.

Whoever reads receipts day by day does not look at old days again. So a receipt that is written more than an hour after
its commit also leaves a note under the day on which it is written:
`_catalog/events/<that day>/arrivals/<commit key>.json`, which says where the receipt lies.

The note comes first. A crash between the two leaves a note without a receipt, which says nothing; the other way round
there would be a receipt that nobody finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

import orjson

from lakepact.catalog.receipts import EVENTS, Receipt, date_of
from lakepact.kernel.ports import BlobStore, Clock

LATE_MS: Final = 60 * 60 * 1000
NOTE_FORMAT: Final = 1


class Put(Enum):
    WRITTEN = "written"
    LATE = "late"
    """Written, and noted."""

    THERE = "there"
    """There was one already."""


async def put_receipt(blobs: BlobStore, clock: Clock, receipt: Receipt) -> Put:
    """Put the receipt if there is none, with a note if it is late. The first one stays, perhaps with fewer details."""
    if _is_late(receipt, clock):
        if await blobs.exists(receipt.name):
            return Put.THERE
        return await put_late(blobs, clock, receipt)
    written = await blobs.put(receipt.name, receipt.to_bytes())
    if _is_late(receipt, clock):
        # The store took so long that it has become late: better one note too many.
        await put_note(blobs, clock, receipt)
        return Put.LATE if written else Put.THERE
    return Put.WRITTEN if written else Put.THERE


async def put_receipts(blobs: BlobStore, clock: Clock, receipts: Sequence[Receipt]) -> None:
    """Put many at once, each if there is none. An error says nothing of any of them."""
    late = [receipt for receipt in receipts if _is_late(receipt, clock)]
    for receipt in late:
        await put_receipt(blobs, clock, receipt)
    prompt = [receipt for receipt in receipts if receipt not in late] if late else receipts
    await blobs.put_all({receipt.name: receipt.to_bytes() for receipt in prompt})
    for receipt in prompt:
        if _is_late(receipt, clock):
            # The store took so long that it has become late: better one note too many.
            await put_note(blobs, clock, receipt)


async def put_late(blobs: BlobStore, clock: Clock, receipt: Receipt) -> Put:
    noted_on = await put_note(blobs, clock, receipt)
    written = await blobs.put(receipt.name, receipt.to_bytes())
    if date_of(clock.now_ms()) != noted_on:
        # Midnight has passed in between, and readers may be done with that day.
        await put_note(blobs, clock, receipt)
    return Put.LATE if written else Put.THERE


async def put_note(blobs: BlobStore, clock: Clock, receipt: Receipt) -> str:
    """Leave a note of this receipt under today's date. The date."""
    now_ms = clock.now_ms()
    today, key = date_of(now_ms), receipt.document["commit-key"]
    note = {
        "format": NOTE_FORMAT,
        "receipt": receipt.name,
        "commit-key": key,
        "committed-ms": receipt.document["committed-ms"],
        "arrived-ms": now_ms,
    }
    # Another one of today says the same.
    await blobs.put(f"{arrivals_of(today)}{key}.json", orjson.dumps(note))
    return today


def arrivals_of(date: str) -> str:
    """What the names of a day's notes begin with."""
    return f"{EVENTS}/{date}/arrivals/"


def noted_name(note: bytes | None) -> str | None:
    """The name of the receipt that a note is about. A note that cannot be read is as good as none: there will be
    another when somebody looks for the receipt."""
    try:
        document = orjson.loads(note or b"")
    except orjson.JSONDecodeError:
        return None
    name = document.get("receipt") if isinstance(document, dict) else None
    return name if isinstance(name, str) and name.startswith(f"{EVENTS}/") else None


def _is_late(receipt: Receipt, clock: Clock) -> bool:
    return clock.now_ms() - int(receipt.document["committed-ms"]) > LATE_MS

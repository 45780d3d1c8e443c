"""A warehouse whose receipts are of no commits at all, a clock to set forward, and a packer."""

from __future__ import annotations

import hashlib
from typing import Any

from lakepact.catalog.receipts import Receipt, date_of, receipt_name
from lakepact.kernel.ports import BlobStore
from lakepact.stores.memory import MemoryBlobs
from lakepact.upkeep.packing import Packer
from lakepact.upkeep.segments import folder_of, unpack
from lakepact.upkeep.shelf import read_manifest
from tests.support.upkeep import DAY_S, HOUR_S, Ahead

DAY_MS = int(DAY_S * 1000)


def receipt(number: int, committed_ms: int, kind: str = "table") -> Receipt:
    key = hashlib.sha256(str(number).encode()).hexdigest()
    document = {"format": 1, "commit-key": key, "committed-ms": committed_ms, "kind": kind, "number": number}
    return Receipt(receipt_name(kind, committed_ms, key), document)


class World:
    """A warehouse with receipts of two days ago, and a clock."""

    def __init__(self) -> None:
        self.blobs: BlobStore = MemoryBlobs()
        self.clock = Ahead()
        self.noon_ms = (self.clock.now_ms() // DAY_MS - 2) * DAY_MS + DAY_MS // 2
        self.day = date_of(self.noon_ms)

    async def put(self, *numbers: int, kind: str = "table", days_later: int = 0) -> list[Receipt]:
        made = [receipt(number, self.noon_ms + number + days_later * DAY_MS, kind) for number in numbers]
        for one in made:
            await self.blobs.put(one.name, one.to_bytes())
        return made

    def packer(self, blobs: BlobStore | None = None, **more: Any) -> Packer:
        return Packer({"main": blobs or self.blobs}, self.clock, after_s=6 * HOUR_S, **more)

    async def pack(self, blobs: BlobStore | None = None, **more: Any) -> Packer:
        packer = self.packer(blobs, **more)
        while await packer.pack_some():
            pass
        return packer

    async def packed(self, date: str) -> dict[str, list[int]]:
        """By the kind of segment: the numbers of the receipts in it."""
        manifest = await read_manifest(self.blobs, date)
        assert manifest is not None
        found: dict[str, list[int]] = {}
        for segment in manifest.segments:
            receipts = unpack(segment, await self.blobs.get(folder_of(date) + segment.name))
            keys = [one["commit-key"] for one in receipts]
            assert (keys, keys[0], keys[-1], len(keys)) == (sorted(keys), segment.first, segment.last, segment.receipts)
            found.setdefault(segment.name.partition("-")[0], []).extend(one["number"] for one in receipts)
        return {kind: sorted(numbers) for kind, numbers in found.items()}

    async def names(self, prefix: str = "") -> list[str]:
        return [entry.name for entry in await self.blobs.list(prefix, None, 100_000)]

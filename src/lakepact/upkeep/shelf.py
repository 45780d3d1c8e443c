"""The receipts of one warehouse: whether one is there, loose or in a segment."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from lakepact.errors import Unreadable
from lakepact.kernel.ports import BlobStore
from lakepact.upkeep.recent_set import RecentSet
from lakepact.upkeep.segments import Manifest, date_of_name, folder_of, key_of_name, manifest_name, receipt_in, unpack

_KEYS_REMEMBERED: Final = 500_000
"""Of packed days, held in memory; the last day's are, however many they are."""

_RECENT: Final = 50_000
"""Digests of the names of receipts that exist. At most twice as many are in memory, about 6 MiB for each 50,000."""


@dataclass(frozen=True, slots=True)
class NotAReceipt:
    """Something lies in the place of a receipt and is none."""

    data: bytes


class Shelf:
    """Made anew for every pass, so that nothing it remembers is old."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs
        self._packed: OrderedDict[str, frozenset[bytes]] = OrderedDict()
        self._damaged: dict[str, Unreadable] = {}
        self._existing: RecentSet[bytes] = RecentSet(_RECENT)

    async def has(self, name: str) -> bool | NotAReceipt:
        """Whether the receipt of this name has been written, though it may be packed by now. Raises `Unreadable` if it
        may be packed, and that cannot be read."""
        if self.knows(name):
            return True
        key = key_of_name(name)
        data = await self._blobs.get(name)
        if data is not None and receipt_in(data, key) is None:
            return NotAReceipt(data)
        if data is not None:
            self.put(name)
            return True
        if bytes.fromhex(key) not in await self._keys(date_of_name(name)):
            return False
        self.put(name)
        return True

    def knows(self, name: str) -> bool:
        """Return whether it is known to exist."""
        return _digest(name) in self._existing

    def put(self, name: str) -> None:
        """Remember that it exists."""
        self._existing.add(_digest(name))

    async def _keys(self, date: str) -> frozenset[bytes]:
        known = self._packed.get(date)
        if known is not None:
            self._packed.move_to_end(date)
            return known
        if date in self._damaged:
            raise self._damaged[date]
        try:
            keys = await self._read_keys(date)
        except Unreadable as error:
            self._damaged[date] = error
            raise
        self._packed[date] = keys
        while len(self._packed) > 1 and sum(map(len, self._packed.values())) > _KEYS_REMEMBERED:
            self._packed.popitem(last=False)
        return keys

    async def _read_keys(self, date: str) -> frozenset[bytes]:
        keys: set[bytes] = set()
        manifest = await read_manifest(self._blobs, date)
        for segment in manifest.segments if manifest is not None else ():
            receipts = unpack(segment, await self._blobs.get(folder_of(date) + segment.name))
            keys.update(bytes.fromhex(receipt["commit-key"]) for receipt in receipts)
        return frozenset(keys)


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=16).digest()


async def read_manifest(blobs: BlobStore, date: str) -> Manifest | None:
    """What the day was packed into; None if it was not."""
    name = manifest_name(date)
    data = await blobs.get(name)
    return None if data is None else Manifest.read(name, data)

"""What the sections share: keys, ids, and a bank of cells that commits move on, one revision at a time."""

from __future__ import annotations

from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Committed, Transaction, Write
from lakepact.kernel.ports import CellStore
from lakepact.runtime import SystemClock, SystemRng

_clock, _rng = SystemClock(), SystemRng()

VALUE = {
    "format": "iceberg",
    "identifier": ["sales", "orders"],
    "metadata-location": "s3://warehouse/sales/orders/metadata/00042-0f3c2a9e-6f0e-4d1c-9a51-2f1f6f5f0b4e.metadata.json",
    "current-snapshot-id": 4_683_127_519_003_377_281,
    "sequence-number": 42,
}
"""About the size of a table pointer."""


def fresh_id() -> TransactionId:
    return uuid7(_clock.now_ms(), _rng.bits(74))


def keys(count: int, family: str = "tables") -> list[Key]:
    return [key_of("main", family, f"{number:05d}") for number in range(count)]


class Mover:
    """Commits one change to each of its cells, again and again."""

    def __init__(self, store: CellStore, cells: list[Key]) -> None:
        self._store = store
        self._cells = cells
        self._revision = 0

    async def commit(self) -> None:
        writes = tuple(Write(key, self._revision, VALUE) for key in self._cells)
        result = await self._store.commit(Transaction(fresh_id(), "hash", writes, answer={"status": 204}))
        assert isinstance(result, Committed), result
        self._revision += 1

"""The cells a catalog is read from: the store's own, or the same as seen from inside an open transaction."""

from __future__ import annotations

from typing import Protocol

from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, CellPage
from lakepact.kernel.ports import CellStore


class Cells(Protocol):
    async def read(self, *keys: Key) -> list[Cell]:
        """These cells at one instant."""
        ...

    async def read_again(self, *keys: Key) -> list[Cell]:
        """These cells as they are now, whatever was remembered of them."""
        ...

    async def scan(self, prefix: str, after: str | None, limit: int) -> CellPage:
        """A page of live cells below a prefix."""
        ...


class MainCells:
    """Cells as everybody sees them."""

    def __init__(self, store: CellStore) -> None:
        self._store = store

    async def read(self, *keys: Key) -> list[Cell]:
        found = await self._store.read(keys)
        return [found[key] for key in keys]

    read_again = read

    async def scan(self, prefix: str, after: str | None, limit: int) -> CellPage:
        return await self._store.scan(prefix, after, limit)

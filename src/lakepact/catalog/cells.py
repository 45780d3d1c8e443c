"""The cells a catalog is read from: the store's own, or the same as seen from inside an open transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol, TypeVar

from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, CellPage
from lakepact.kernel.ports import CellStore

T = TypeVar("T")

_AT_ONCE: Final = 500
"""Cells in one look: well within what a store lets one transaction name."""


def a_look_each(wanted: Sequence[T], cells: int = 1) -> Iterator[Sequence[T]]:
    """Any number of things, in as many parts as it takes looks to read so many cells of each."""
    size = _AT_ONCE // cells
    for first in range(0, len(wanted), size):
        yield wanted[first : first + size]


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

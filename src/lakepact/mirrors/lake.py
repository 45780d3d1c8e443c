"""The tables of a warehouse at one instant, of both formats: their pointers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lakepact.catalog.pointers import Pointer
from lakepact.errors import Contended
from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Cell, Isolation
from lakepact.kernel.ports import CellStore, Clock, Rng

_FAMILIES: Final = ("tables", "delta")
_PAGE: Final = 500
_MOST_AT_ONCE: Final = 900
"""Cells of one read. A larger lake is read through a transaction."""

_ATTEMPTS: Final = 20


async def tables_now(store: CellStore, warehouse: str, clock: Clock, rng: Rng) -> list[Pointer]:
    """All tables of the warehouse, as of one instant after the call began."""
    known: set[Key] = set()
    for _ in range(_ATTEMPTS):
        known |= await _keys(store, warehouse)
        if len(known) > _MOST_AT_ONCE:
            return await _through_transaction(store, warehouse, clock, rng)
        cut = await store.read(sorted(known)) if known else {}
        # A table that was made since is not in the cut, and others may have changed together with it.
        if await _keys(store, warehouse) <= known:
            return _pointers(cut.values())
    raise Contended(f"tables keep being created in warehouse {warehouse}; try again")


async def _keys(store: CellStore, warehouse: str) -> set[Key]:
    found: set[Key] = set()
    for family in _FAMILIES:
        after: str | None = None
        while True:
            page = await store.scan(key_of(warehouse, family), after, _PAGE)
            found.update(cell.key for cell in page.cells)
            after = page.after
            if after is None:
                break
    return found


async def _through_transaction(store: CellStore, warehouse: str, clock: Clock, rng: Rng) -> list[Pointer]:
    """One instant over any number of cells, where the store keeps history. It leaves a record, so only if need be."""
    id = uuid7(clock.now_ms(), rng.bits(74))
    await store.begin(id, ttl_s=60.0, isolation=Isolation.SNAPSHOT)
    try:
        found: list[Pointer] = []
        for family in _FAMILIES:
            after: str | None = None
            while True:
                page = await store.scan_in(id, key_of(warehouse, family), after, _PAGE)
                found += _pointers(page.cells)
                after = page.after
                if after is None:
                    break
        return found
    finally:
        await store.abort(id)


def _pointers(cells: Iterable[Cell]) -> list[Pointer]:
    return [pointer for cell in cells if (pointer := Pointer.of(cell)) is not None]

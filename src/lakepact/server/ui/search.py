"""Names that hold a text, for as long as a page may take; then it says where the search goes on.

Over a whole warehouse it goes through all names in the store's order. For those who see a part of it, it walks through
the namespaces they may read, one after the other, and what else is granted to them comes first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

from lakepact.catalog.keys import levels_of
from lakepact.catalog.pointers import shown
from lakepact.kernel.keys import key_of, segments_of
from lakepact.kernel.model import Cell
from lakepact.server.ui.lists import Named, identifier_of, namespaces, scan, with_pointers
from lakepact.server.ui.window import Window

_SCAN: Final = 500
_WITHIN_S: Final = 1.5
"""On a store of documents every name is a document."""

_MOST_FOUND: Final = 100


@dataclass(frozen=True, slots=True)
class Place:
    """Where a search goes on."""

    after: str | None
    """The store's cursor, in the namespace if there is one; None: from its beginning."""

    namespace: tuple[str, ...] | None = None
    """For those who do not see all of the warehouse: which one comes next."""


@dataclass(frozen=True, slots=True)
class Found:
    namespaces: Sequence[tuple[str, ...]]
    names: Sequence[Named]
    looked_at: int
    following: Place | None
    """None: everything was looked at."""


async def search(window: Window, text: str, start: Place | None = None) -> Found:
    """Names that hold this text, in any case."""
    wanted = text.strip().casefold()
    return await (_everywhere if window.whole else _in_sight)(window, wanted, start)


async def _everywhere(window: Window, wanted: str, start: Place | None) -> Found:
    catalog = window.inside
    clock, store = catalog.parts.clock, catalog.parts.store
    until_s = clock.monotonic_s() + _WITHIN_S
    after = start.after if start is not None else None
    spaces: list[tuple[str, ...]] = []
    if after is None:
        cells, _ = await scan(catalog, key_of(window.warehouse, "namespaces"), None, _SCAN)
        spaces = [path for path in map(_namespace_of, cells) if wanted in ".".join(path).casefold()]
    found: list[Cell] = []
    looked_at = 0
    while True:
        page = await store.scan(key_of(window.warehouse, "names"), after, _SCAN)
        looked_at += len(page.cells)
        found += [cell for cell in page.cells if _holds(cell, wanted)]
        after = page.after
        if after is None or len(found) >= _MOST_FOUND or clock.monotonic_s() > until_s:
            break
    names = await with_pointers(catalog, found)
    return Found(sorted(spaces)[:_MOST_FOUND], names, looked_at, None if after is None else Place(after))


async def _in_sight(window: Window, wanted: str, start: Place | None) -> Found:
    catalog = window.inside
    clock, store, keys = catalog.parts.clock, catalog.parts.store, catalog.parts.keys
    until_s = clock.monotonic_s() + _WITHIN_S
    begin = start.namespace if start is not None else None
    spaces: set[tuple[str, ...]] = set()
    single: list[Named] = []
    looked_at = 0
    if begin is None:
        granted = [
            one for one in (await window.sight.granted()).values() if not window.sight.all_in(one.identifier.namespace)
        ]
        looked_at = len(granted)
        single = [Named(one.identifier, one.kind, one) for one in granted if wanted in shown(one.identifier).casefold()]
        spaces = {one for one in await window.sight.ways() if wanted in ".".join(one).casefold()}
    found: list[Cell] = []
    following: Place | None = None
    enough = False
    async for levels in _walk(window, begin):
        if enough:
            following = Place(None, levels)
            break
        after = start.after if start is not None and levels == begin else None
        if after is None and wanted in ".".join(levels).casefold():
            spaces.add(levels)
        while True:
            page = await store.scan(keys.names_in(levels), after, _SCAN)
            looked_at += len(page.cells)
            found += [cell for cell in page.cells if _holds(cell, wanted)]
            after = page.after
            enough = len(found) + len(single) >= _MOST_FOUND or clock.monotonic_s() > until_s
            if after is None or enough:
                break
        if after is not None:
            following = Place(after, levels)
            break
    names = sorted(
        (*single, *await with_pointers(catalog, found)),
        key=lambda one: (one.identifier.namespace, one.identifier.name.casefold()),
    )
    return Found(sorted(spaces)[:_MOST_FOUND], names, looked_at, following)


async def _walk(window: Window, begin: tuple[str, ...] | None) -> AsyncIterator[tuple[str, ...]]:
    """The namespaces that may be read, each before those below it, from this one on."""
    granted = window.sight.rights.namespaces
    tops = [one for one in granted if not any(one[:depth] in granted for depth in range(1, len(one)))]
    ahead = sorted(tops, reverse=True)
    while ahead:
        levels = ahead.pop()
        if begin is not None and levels < begin and begin[: len(levels)] != levels:
            # Before the beginning, with all that is below it.
            continue
        if begin is None or levels >= begin:
            yield levels
        below: list[str] = []
        after: str | None = None
        while True:
            some, after = await namespaces(window, levels, after, _SCAN)
            below += some
            if after is None:
                break
        ahead += [(*levels, one) for one in sorted(below, reverse=True)]


def _holds(cell: Cell, wanted: str) -> bool:
    return cell.value is not None and wanted in shown(identifier_of(cell)).casefold()


def _namespace_of(cell: Cell) -> tuple[str, ...]:
    path, level = segments_of(cell.key)[2:]
    return (*(levels_of(path) if path != "." else ()), level)

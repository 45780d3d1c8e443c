"""Lists of namespaces, tables and views, whole or in pages.

A page is made of what the store's own pages show. It is not a cut. A page has a successor only if something follows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakepact.catalog.cells import Cells
from lakepact.catalog.errors import BadRequest, NoSuchNamespace
from lakepact.catalog.keys import Keys, last_segment
from lakepact.catalog.pointers import Kind
from lakepact.kernel.keys import Key, is_below, name_prefix_of_cells
from lakepact.kernel.model import Cell, CellPage, Value

Scan: TypeAlias = Callable[[str, str | None, int], Awaitable[CellPage]]

_FEW: Final = 100

Visible: TypeAlias = Callable[[Value], bool]
"""Whether whoever asks may know of it: of the cell of a name, or of a namespace."""


@dataclass(frozen=True, slots=True)
class Page:
    names: tuple[str, ...]
    next_token: str | None = None


class Listing:
    def __init__(self, keys: Keys, cells: Cells, max_page: int) -> None:
        self._keys = keys
        self._cells = cells
        self._max_page = max_page

    async def namespaces(
        self, parent: Sequence[str], token: str | None, size: int | None, visible: Visible | None = None
    ) -> Page:
        """The last levels of the namespaces right below this one; the root's, if it is empty."""
        if parent:
            await self._check_there(parent)
        return await self._page(self._keys.namespaces_in(parent), None, token, size, visible)

    async def names(
        self, namespace: Sequence[str], kind: Kind, token: str | None, size: int | None, visible: Visible | None = None
    ) -> Page:
        await self._check_there(namespace)
        return await self._page(self._keys.names_in(namespace), kind, token, size, visible)

    async def _check_there(self, namespace: Sequence[str]) -> None:
        [cell] = await self._cells.read(self._keys.namespace(namespace))
        if not cell.exists:
            raise NoSuchNamespace.named(namespace)

    async def _page(
        self, prefix: str, kind: Kind | None, token: str | None, size: int | None, visible: Visible | None
    ) -> Page:
        """Return everything if `size` is None, however many pages of the store that takes; else one page."""
        check_token(token, prefix)
        if size is not None:
            cells, following = await page_of(
                self._cells.scan, prefix, token, size, self._max_page, lambda cell: _is_listed(cell, kind, visible)
            )
            return Page(tuple(last_segment(cell.key) for cell in cells), following)
        after, names = token or None, list[str]()
        while True:
            page = await self._cells.scan(prefix, after, self._max_page)
            names += [last_segment(cell.key) for cell in page.cells if _is_listed(cell, kind, visible)]
            after = page.after
            if after is None:
                return Page(tuple(names))


async def page_of(
    scan: Scan, prefix: str, token: str | None, size: int, max_page: int, listed: Callable[[Cell], bool]
) -> tuple[Sequence[Cell], Key | None]:
    """Return at most `size` cells that are `listed`, and the token of the next page if it has at least one more.

    A requester can read the token: it is the key of the last cell of this page, never of one that is not listed.
    """
    if size < 1:
        raise BadRequest(f"pageSize is {size}; ask for at least 1")
    size = min(size, max_page)
    after, found = token or None, list[Cell]()
    # One more than is shown, to know whether something follows.
    wanted = min(size + 1, max_page)
    while True:
        page = await scan(prefix, after, wanted)
        found += filter(listed, page.cells)
        after = page.after
        if len(found) > size:
            return found[:size], found[size - 1].key
        if after is None:
            return found, None
        # Most cells of a store's page may not be listed, so a few more are read than are missing.
        wanted = min(max(size + 1 - len(found), _FEW), max_page)


def check_token(token: str | None, prefix: str) -> None:
    """A token is where the next page begins: a key, or the name of its document. After anything else a store might
    find nothing, which looks like the end of the list."""
    if token and not (is_below(Key(token), prefix) or token.startswith(name_prefix_of_cells(prefix))):
        raise BadRequest("this pageToken is of no page of this list; begin with an empty one, and send what it answers")


def _is_listed(cell: Cell, kind: Kind | None, visible: Visible | None) -> bool:
    value = cell.value
    return value is not None and (kind is None or value["kind"] == kind) and (visible is None or visible(value))

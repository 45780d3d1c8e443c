"""Lists of namespaces, tables and views, whole or in pages.

A page is made of what the store's own pages show. It is not a cut, and a page may be short and still have a successor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lakepact.catalog.cells import Cells
from lakepact.catalog.errors import BadRequest, NoSuchNamespace
from lakepact.catalog.keys import Keys, last_segment
from lakepact.catalog.pointers import Kind
from lakepact.kernel.keys import Key, is_below, name_prefix_of_cells
from lakepact.kernel.model import Cell, Value

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
        """Without a size: everything, however many pages of the store that takes."""
        if size is not None and size < 1:
            raise BadRequest(f"pageSize is {size}; ask for at least 1")
        check_token(token, prefix)
        if visible is not None and size is not None:
            return await self._page_of_visible(prefix, kind, token, min(size, self._max_page), visible)
        after, found = token or None, list[str]()
        while True:
            page = await self._cells.scan(prefix, after, min(size or self._max_page, self._max_page))
            found += [last_segment(cell.key) for cell in page.cells if _is_listed(cell, kind, visible)]
            after = page.after
            if after is None or (size is not None and found):
                return Page(tuple(found), after)

    async def _page_of_visible(
        self, prefix: str, kind: Kind | None, token: str | None, size: int, visible: Visible
    ) -> Page:
        """The token says where to go on, and whoever gets it can read it: it is the key of the last one they see. And
        there is one only if they will see another."""
        after, found = token or None, list[Key]()
        while True:
            page = await self._cells.scan(prefix, after, self._max_page)
            found += [cell.key for cell in page.cells if _is_listed(cell, kind, visible)]
            after = page.after
            if len(found) > size or after is None:
                shown = found[:size]
                return Page(tuple(map(last_segment, shown)), shown[-1] if len(found) > size else None)


def check_token(token: str | None, prefix: str) -> None:
    """A token is where the next page begins: a key, or the name of its document. After anything else a store might
    find nothing, which looks like the end of the list."""
    if token and not (is_below(Key(token), prefix) or token.startswith(name_prefix_of_cells(prefix))):
        raise BadRequest("this pageToken is of no page of this list; begin with an empty one, and send what it answers")


def _is_listed(cell: Cell, kind: Kind | None, visible: Visible | None) -> bool:
    value = cell.value
    return value is not None and (kind is None or value["kind"] == kind) and (visible is None or visible(value))

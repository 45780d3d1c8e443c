"""Namespaces and names: in lists, as a tree, and found by a text. Each as far as a window shows it.

Whoever may read a whole warehouse, or a whole namespace, gets the store's own pages. For others a list is made of what
they may see, never of what is there with some left out: then neither the time it takes, nor a count, nor the cursor to
the next page, which is a name, tells of what they may not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from lakepact.access import Rights
from lakepact.catalog import Catalog
from lakepact.catalog.errors import NoSuchNamespace
from lakepact.catalog.keys import last_segment, levels_of
from lakepact.catalog.pointers import Kind, Pointer
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Cell
from lakepact.server.ui.window import Window

PAGE: Final = 100
_TREE_FOR_S: Final = 2.0
_MOST_TREES: Final = 1_000


@dataclass(frozen=True, slots=True)
class Named:
    """A table or view in a list."""

    identifier: Identifier
    kind: Kind
    pointer: Pointer | None
    """None: it was renamed or dropped while the list was read."""


@dataclass(frozen=True, slots=True)
class NamespacePage:
    properties: Mapping[str, str]
    children: Sequence[str]
    children_after: str | None
    names: Sequence[Named]
    names_after: str | None


@dataclass(frozen=True, slots=True)
class Leaves:
    """What is in a namespace, for a tree."""

    names: Sequence[tuple[Identifier, Kind]]
    more: bool


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """One that was read; another one is another, whatever is in it."""

    levels: Sequence[Sequence[str]]
    """The namespaces of the root, then those below each level of the way down."""

    leaves: Leaves


async def namespaces(
    window: Window, parent: Sequence[str], after: str | None = None, limit: int = PAGE
) -> tuple[list[str], str | None]:
    """The names right below a namespace (or the root), sorted as far as the page goes."""
    if window.sight.all_in(parent):
        cells, following = await scan(window.inside, window.inside.parts.keys.namespaces_in(parent), after, limit)
        return sorted(last_segment(cell.key) for cell in cells), following
    wanted = [one for one in await window.sight.below(parent) if after is None or one > after]
    some = wanted[:limit]
    # A grant may be on a namespace that is just being dropped.
    keys = {one: window.inside.parts.keys.namespace((*parent, one)) for one in some}
    cells_there = await window.inside.parts.store.read(list(keys.values())) if keys else {}
    there = [one for one in some if cells_there[keys[one]].exists]
    return there, some[-1] if len(wanted) > limit else None


async def namespace(
    window: Window, levels: Sequence[str], after: str | None = None, children_after: str | None = None
) -> NamespacePage:
    if not levels or not all(levels) or not await window.sight.sees_namespace(levels):
        raise NoSuchNamespace.named(levels)
    properties = await window.inside.load_namespace(levels)
    children, more_children = await namespaces(window, levels, children_after)
    if window.sight.all_in(levels):
        cells, following = await scan(window.inside, window.inside.parts.keys.names_in(levels), after, PAGE)
        return NamespacePage(properties, children, more_children, await with_pointers(window.inside, cells), following)
    names = [one for one in await _granted_in(window, levels) if after is None or _order(one) > _order_of(after)]
    following = names[PAGE - 1].identifier.name if len(names) > PAGE else None
    return NamespacePage(properties, children, more_children, names[:PAGE], following)


async def _granted_in(window: Window, levels: Sequence[str]) -> list[Named]:
    """What may be seen in a namespace that may not be read itself, sorted."""
    found = (await window.sight.granted()).values()
    here = (one for one in found if one.identifier.namespace == tuple(levels))
    return sorted((Named(one.identifier, one.kind, one) for one in here), key=_order)


def _order(one: Named) -> tuple[str, str]:
    return _order_of(one.identifier.name)


def _order_of(name: str) -> tuple[str, str]:
    return name.casefold(), name


# --- trees ---

_Key: TypeAlias = "tuple[str, tuple[str, ...], str | None]"


class Trees:
    """Trees of names, as they were a moment ago at most: there is one on every page of a table, and what a page is
    about is never taken from it. A right that comes or goes counts at once."""

    def __init__(self) -> None:
        self._known: OrderedDict[_Key, tuple[float, Rights, Tree]] = OrderedDict()

    async def tree(self, window: Window, levels: Sequence[str], most: int) -> Tree:
        """The way down to a namespace with what is beside it."""
        # Those who see all of it see the same.
        key = (window.warehouse, tuple(levels), None if window.whole else window.principal.name)
        rights, now_s = window.sight.rights, window.inside.parts.clock.monotonic_s()
        known = self._known.get(key)
        if known is not None and now_s - known[0] < _TREE_FOR_S and (window.whole or known[1] is rights):
            return known[2]
        paths = [tuple(levels[:depth]) for depth in range(len(levels) + 1)]
        found = await window.inside.parts.tasks.all([namespaces(window, path, None, most) for path in paths])
        tree = Tree([names for names, _ in found], await _leaves(window, levels, most) if levels else Leaves((), False))
        self._known[key] = now_s, rights, tree
        self._known.move_to_end(key)
        while len(self._known) > _MOST_TREES:
            self._known.popitem(last=False)
        return tree


async def _leaves(window: Window, levels: Sequence[str], most: int) -> Leaves:
    if not window.sight.all_in(levels):
        granted = await _granted_in(window, levels)
        return Leaves([(one.identifier, one.kind) for one in granted[:most]], len(granted) > most)
    cells, following = await scan(window.inside, window.inside.parts.keys.names_in(levels), None, most)
    names = sorted(((identifier_of(cell), _kind(cell)) for cell in cells), key=lambda one: one[0].name.casefold())
    return Leaves(names[:most], following is not None)


# --- cells ---


async def scan(catalog: Catalog, prefix: Key, after: str | None, limit: int) -> tuple[list[Cell], str | None]:
    """About so many live cells: short pages of the store are joined, so that no page of ours is empty."""
    found: list[Cell] = []
    while True:
        page = await catalog.parts.store.scan(prefix, after, limit - len(found))
        found += [cell for cell in page.cells if cell.value is not None]
        after = page.after
        if after is not None and len(found) >= limit:
            # A store may not know that it is at the end. Nobody shall be sent to a page with nothing on it.
            rest = await catalog.parts.store.scan(prefix, after, 1)
            return found, after if rest.cells or rest.after is not None else None
        if after is None:
            return found, None


async def with_pointers(catalog: Catalog, names: Sequence[Cell]) -> list[Named]:
    """The names with what they stand for, all looked up at once."""
    stands_for = [
        (identifier_of(cell), Kind(cell.value["kind"]), str(cell.value["id"])) for cell in names if cell.value
    ]
    keys = [_pointer_key(catalog, kind, id) for _, kind, id in stands_for]
    cells = await catalog.parts.store.read(keys) if keys else {}
    return sorted(
        (
            Named(identifier, kind, Pointer.of(cells[key]))
            for (identifier, kind, _), key in zip(stands_for, keys, strict=True)
        ),
        key=lambda one: (one.identifier.namespace, one.identifier.name.casefold()),
    )


def identifier_of(cell: Cell) -> Identifier:
    """Of the cell of a name."""
    path, name = segments_of(cell.key)[2:]
    return Identifier(tuple(levels_of(path)), name)


def _pointer_key(catalog: Catalog, kind: Kind, id: str) -> Key:
    keys = catalog.parts.keys
    return {Kind.TABLE: keys.table, Kind.VIEW: keys.view, Kind.DELTA: keys.delta}[kind](id)


def _kind(cell: Cell) -> Kind:
    return Kind((cell.value or {}).get("kind", Kind.TABLE))

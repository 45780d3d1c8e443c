"""The catalog as a tree: warehouses, namespaces, and what is in them; and search."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from lakepact.catalog.errors import Forbidden
from lakepact.catalog.history import version_number
from lakepact.catalog.pointers import Kind
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import TransactionId
from lakepact.server.http import Request
from lakepact.server.rest.errors import NoSuchTransaction
from lakepact.server.ui import activity, lists, text
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.links import Links, levels_of
from lakepact.server.ui.lists import Leaves, Named, NamespacePage, Tree
from lakepact.server.ui.parts import KINDS, badge, card, empty, grid, heading, icon, pager, properties
from lakepact.server.ui.runs import RunReports
from lakepact.server.ui.search import Found, Place, search
from lakepact.server.ui.window import Window
from lakepact.server.ui.windows import Windows

_IN_TREE: Final = 60
_DRAWN: Final = 200
"""Trees that are kept as they are shown: some kilobytes each, and there is one on every page of a table."""

_LONGEST_SEARCH: Final = 200
_MOST_RUNS: Final = 200
_ID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
"""Of a transaction, or of a run that was given none."""


class CatalogPages:
    def __init__(self, windows: Windows, links: Links, runs: RunReports) -> None:
        self._windows = windows
        self._links = links
        self._runs = runs
        self._drawn = lru_cache(_DRAWN)(self._draw)

    async def warehouse(self, request: Request) -> Page:
        warehouse = request.params["warehouse"]
        window = await self._windows.window(warehouse, request.principal)
        after = request.query.get("after") or None
        names, following = await lists.namespaces(window, (), after)
        body = (
            card(
                "Namespaces",
                tag("ul", (self._namespace_item(warehouse, (one,)) for one in names), class_="list"),
                pager(
                    first=self._links.warehouse(warehouse) if after else None,
                    following=self._links.warehouse(warehouse, after=following) if following else None,
                ),
                flush=True,
            )
            if names
            else empty(
                "No namespaces yet",
                "Create one from any engine, for instance ",
                tag("code", "CREATE NAMESPACE sales"),
                ". It appears here at once.",
            )
        )
        return Page(
            warehouse,
            (heading(name(warehouse), badge("warehouse")), body),
            section="catalog",
            warehouse=warehouse,
            trail=(("Catalog", self._links.warehouse(warehouse)),),
            aside=await self.tree(window, ()),
        )

    async def namespace(self, request: Request) -> Page:
        warehouse, namespace = request.params["warehouse"], levels_of(request.params["namespace"])
        window = await self._windows.window(warehouse, request.principal)
        after, children_after = request.query.get("after") or None, request.query.get("children") or None
        found = await lists.namespace(window, namespace, after, children_after)
        here = self._links.namespace(warehouse, namespace)
        body = [
            heading(name(".".join(namespace)), badge("namespace")),
            self._children(warehouse, namespace, found, here if children_after else None),
            self._names(window, namespace, found, here if after else None),
            card("Properties", properties(found.properties, label="Properties"), flush=True)
            if found.properties
            else NOTHING,
        ]
        return Page(
            ".".join(namespace),
            body,
            section="catalog",
            warehouse=warehouse,
            trail=self.trail(warehouse, namespace[:-1]),
            aside=await self.tree(window, namespace),
        )

    async def search(self, request: Request) -> Page:
        asked = request.query.get("q", "")[:_LONGEST_SEARCH]
        warehouse = request.query.get("warehouse") or self._windows.default_of(request.principal)
        window = await self._windows.window(warehouse, request.principal)
        if not asked.strip():
            body: Child = empty(
                "What are you looking for?",
                "Type a part of a name: a table, a view or a namespace. Or the id of a transaction or run.",
            )
            return Page("Search", (heading("Search"), body), section="catalog", warehouse=warehouse, search=asked)
        straight = await self._by_id(window, asked.strip())
        if straight is not None:
            return Page("Search", NOTHING, status=303, headers=((b"Location", straight.encode()),))
        found = await search(window, asked, _place(request))
        place, following = found.following, None
        if place is not None:
            inside = None if place.namespace is None else "\x1f".join(place.namespace)
            at = {"in": inside, "after": place.after}
            following = self._links.search(q=asked, warehouse=warehouse, **at)
        return Page(
            f"Search: {asked}",
            (
                heading("Search", lead=join("Names in ", name(warehouse), " that contain “", name(asked), "”")),
                self._found(window, found),
                pager(first=None, following=following, note=f"{found.looked_at:,} names looked at so far"),
            ),
            section="catalog",
            warehouse=warehouse,
            search=asked,
        )

    async def _by_id(self, window: Window, asked: str) -> str | None:
        """Where the transaction or run is shown that has this id: nobody names a table like that."""
        if _ID.fullmatch(asked) is None:
            return None
        transaction_id = TransactionId(asked.lower())
        if await self._runs.one(window, transaction_id) is not None:
            return self._links.run(window.warehouse, transaction_id)
        try:
            record = await activity.transaction(window, transaction_id)
            return self._links.transaction(window.warehouse, record.id)
        except (NoSuchTransaction, Forbidden):
            pass
        # The id of a run is not that of its transaction, and the newest runs are who people look for.
        newest = await self._runs.newest(window, limit=_MOST_RUNS)
        run = next((one for one in newest.found if one.run_id.lower() == asked.lower()), None)
        return None if run is None else self._links.run(window.warehouse, run.transaction_id)

    # --- parts that other pages use too ---

    def trail(self, warehouse: str, namespace: Sequence[str]) -> tuple[tuple[str, str], ...]:
        steps = [(warehouse, self._links.warehouse(warehouse))]
        steps += [
            (namespace[depth], self._links.namespace(warehouse, namespace[: depth + 1]))
            for depth in range(len(namespace))
        ]
        return tuple(steps)

    async def tree(self, window: Window, namespace: Sequence[str], current: Identifier | None = None) -> Markup:
        """The way down to a namespace, with its neighbours on every level; `current` is the table that is shown."""
        tree = await self._windows.trees.tree(window, namespace, _IN_TREE)
        return self._drawn(window.warehouse, tree, tuple(namespace), current)

    def _draw(self, warehouse: str, tree: Tree, namespace: tuple[str, ...], current: Identifier | None) -> Markup:
        return tag(
            "aside",
            tag(
                "nav",
                tag("a", name(warehouse), href=self._links.warehouse(warehouse), class_="root"),
                self._branch(warehouse, tree, namespace, 0, current),
            ),
            class_="tree",
            aria_label="Catalog tree",
        )

    def _branch(
        self, warehouse: str, tree: Tree, namespace: tuple[str, ...], depth: int, current: Identifier | None
    ) -> Markup:
        levels, open_level = list(tree.levels[depth]), namespace[depth] if depth < len(namespace) else None
        if open_level is not None and open_level not in levels:
            levels.append(open_level)
        items: list[Markup] = []
        for level in levels:
            path, below = (*namespace[:depth], level), NOTHING
            if level == open_level:
                below = join(
                    self._branch(warehouse, tree, namespace, depth + 1, current),
                    self._leaves(warehouse, tree.leaves, current) if depth + 1 == len(namespace) else None,
                )
            link = tag(
                "a",
                icon("namespace"),
                name(level),
                href=self._links.namespace(warehouse, path),
                aria_current="page" if path == namespace and current is None else None,
            )
            items.append(tag("li", link, below))
        return tag("ul", items) if items else NOTHING

    def _leaves(self, warehouse: str, leaves: Leaves, current: Identifier | None) -> Markup:
        if not leaves.names:
            return NOTHING
        items = [
            tag(
                "li",
                tag(
                    "a",
                    icon(kind),
                    name(identifier.name),
                    href=self._links.table(warehouse, identifier),
                    aria_current="page" if identifier == current else None,
                ),
            )
            for identifier, kind in leaves.names
        ]
        if leaves.more:
            href = self._links.namespace(warehouse, leaves.names[0][0].namespace)
            items.append(tag("li", tag("a", "all of them…", href=href, class_="muted")))
        return tag("ul", items)

    # --- lists ---

    def _namespace_item(self, warehouse: str, path: Sequence[str]) -> Markup:
        link = tag("a", icon("namespace"), name(path[-1]), href=self._links.namespace(warehouse, path))
        return tag("li", link)

    def _children(self, warehouse: str, namespace: Sequence[str], found: NamespacePage, first: str | None) -> Markup:
        if not found.children:
            return NOTHING
        following = (
            self._links.namespace(warehouse, namespace, children=found.children_after) if found.children_after else None
        )
        return card(
            "Namespaces",
            tag("ul", (self._namespace_item(warehouse, (*namespace, one)) for one in found.children), class_="list"),
            pager(first=first, following=following, what="Pages of namespaces"),
            flush=True,
        )

    def _names(self, window: Window, namespace: Sequence[str], found: NamespacePage, first: str | None) -> Markup:
        if not found.names and first is None:
            if found.children:
                return NOTHING
            return empty("Nothing in here yet", "Tables and views of any engine appear here with their first commit.")
        following = (
            self._links.namespace(window.warehouse, namespace, after=found.names_after) if found.names_after else None
        )
        return card(
            "Tables and views",
            self._grid(window, found.names, full=False),
            pager(first=first, following=following, what="Pages of tables"),
            flush=True,
        )

    def _found(self, window: Window, found: Found) -> Markup:
        warehouse = window.warehouse
        if not found.namespaces and not found.names:
            if found.following is not None:
                return empty("Nothing found so far", "The search goes on on the next page.")
            return empty("Nothing found", "Try a shorter part of the name.")
        spaces = (
            tag("li", tag("a", icon("namespace"), name(".".join(one)), href=self._links.namespace(warehouse, one)))
            for one in found.namespaces
        )
        return join(
            card("Namespaces", tag("ul", spaces, class_="list"), flush=True) if found.namespaces else NOTHING,
            card("Tables and views", self._grid(window, found.names, full=True), flush=True)
            if found.names
            else NOTHING,
        )

    def _grid(self, window: Window, names: Sequence[Named], *, full: bool) -> Markup:
        warehouse, now_ms = window.warehouse, window.now_ms()
        rows = [
            (
                tag(
                    "a",
                    icon(one.kind),
                    name(".".join((*one.identifier.namespace, one.identifier.name)) if full else one.identifier.name),
                    href=self._links.table(warehouse, one.identifier),
                    class_="named",
                ),
                KINDS[one.kind],
                _version(one),
                _changed(one, now_ms),
            )
            for one in names
        ]
        return grid(("Name", "Kind", "Version", "Last change"), rows, label="Tables and views", numbers=(2, 3))


def _place(request: Request) -> Place | None:
    """Where the page before this one says that the search goes on."""
    inside, after = request.query.get("in") or None, request.query.get("after") or None
    if inside is None and after is None:
        return None
    return Place(after, None if inside is None else levels_of(inside))


def _version(one: Named) -> str:
    """The one that it is at, as its own page counts them."""
    if one.pointer is None:
        return "–"
    if one.kind is Kind.TABLE:
        return text.count(version_number(one.pointer.metadata_location))
    field = {Kind.DELTA: "version", Kind.VIEW: "current-version-id"}[one.kind]
    return text.count(text.number_of(one.pointer.summary.get(field)))


def _changed(one: Named, now_ms: int) -> Child:
    if one.pointer is None:
        return "just gone"
    summary = one.pointer.summary
    at_ms = summary.get("ict-ms") if one.kind is Kind.DELTA else summary.get("last-updated-ms")
    return text.instant(at_ms, now_ms=now_ms) if at_ms is not None else "–"

"""Namespaces: made, changed, dropped.

Dropping must not race a creation into an orphan. The dropper first marks the namespace, which moves its cell, so that a
creation that began before cannot commit any more; then it looks for children; then it drops. A creation that meets the
mark takes it away in its own transaction, and so sends the dropper back to looking. A mark left by a crash is
harmless.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeAlias

from lakepact.catalog.cells import Cells
from lakepact.catalog.errors import AlreadyExists, BadRequest, NamespaceNotEmpty, NoSuchNamespace, Unprocessable
from lakepact.catalog.keys import Keys
from lakepact.catalog.warehouse import Warehouse, check_properties
from lakepact.catalog.work import Draft
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, CellPage

MARK: Final = "dropping"
LOCATION: Final = "location"
"""The property that says where the files of new tables in a namespace are."""

_PAGE: Final = 100


Scan: TypeAlias = Callable[[str, str | None, int], Awaitable[CellPage]]


class NotMarked(Exception):
    """A namespace is dropped in two steps, and the first is missing. Never leaves the catalog."""


class Namespaces:
    """Plans for namespaces of one warehouse."""

    def __init__(self, keys: Keys, warehouse: Warehouse, cells: Cells) -> None:
        self._keys = keys
        self._warehouse = warehouse
        self._cells = cells

    async def create(self, draft: Draft, namespace: Sequence[str], properties: Mapping[str, str]) -> JsonObject:
        check_namespace(namespace)
        self._check_properties(properties)
        key = self._keys.namespace(namespace)
        [cell] = await draft.read(key)
        if cell.exists:
            raise AlreadyExists(f"Namespace already exists: {'.'.join(namespace)}")
        missing = await self.missing_parents(draft, namespace)
        above = (missing[0] if missing else tuple(namespace))[:-1]
        if above:
            await self.enter(draft, above)
        for parent in missing:
            self._write(draft, parent, {})
        self._write(draft, namespace, properties)
        return {"namespace": list(namespace), "properties": self.effective(namespace, properties)}

    async def missing_parents(self, draft: Draft, namespace: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the namespaces above this one that do not exist, the outermost first. Creating it creates them."""
        parents = prefixes(namespace[:-1])
        cells = await draft.read(*map(self._keys.namespace, parents))
        return [parent for parent, cell in zip(parents, cells, strict=True) if not cell.exists]

    def effective(self, namespace: Sequence[str], properties: Mapping[str, str]) -> dict[str, str]:
        """Return the properties that clients see: Trino and others create tables only where there is a `location`."""
        return {**properties, LOCATION: self._warehouse.namespace_location(namespace, properties)}

    def _write(self, draft: Draft, namespace: Sequence[str], properties: Mapping[str, str]) -> None:
        key = self._keys.namespace(namespace)
        value = {
            "namespace": list(namespace),
            "properties": dict(properties),
            "created": draft.seen[key].revision + 1,
            "id": draft.transaction_id,
        }
        draft.write(key, value)

    async def update_properties(
        self, draft: Draft, namespace: Sequence[str], removals: Sequence[str], updates: Mapping[str, str]
    ) -> JsonObject:
        both = sorted(set(removals) & set(updates))
        if both:
            raise Unprocessable(f"these properties are both removed and updated: {', '.join(both)}; say one of the two")
        check_properties([*removals, *updates])
        self._check_properties(updates)
        key = self._keys.namespace(namespace)
        [cell] = await draft.read(key)
        if cell.value is None:
            raise NoSuchNamespace.named(namespace)
        before: dict[str, str] = dict(cell.value["properties"])
        after = {name: value for name, value in before.items() if name not in removals} | dict(updates)
        if after != before:
            draft.write(key, {**cell.value, "properties": after, "changed": cell.revision + 1})
        return {
            "updated": sorted(updates),
            "removed": sorted(name for name in set(removals) if name in before),
            "missing": sorted(name for name in set(removals) if name not in before),
        }

    async def mark(self, draft: Draft, namespace: Sequence[str], mark: str) -> JsonObject:
        """The first step of a drop."""
        key = self._keys.namespace(namespace)
        [cell] = await draft.read(key)
        if cell.value is None:
            raise NoSuchNamespace.named(namespace)
        draft.write(key, {**cell.value, MARK: mark})
        return {}

    async def unmark(self, draft: Draft, namespace: Sequence[str], mark: str) -> JsonObject:
        key = self._keys.namespace(namespace)
        [cell] = await draft.read(key)
        if cell.value is not None and cell.value.get(MARK) == mark:
            draft.write(key, without_mark(cell))
        return {}

    async def drop(self, draft: Draft, namespace: Sequence[str], mark: str | None) -> JsonObject:
        """The last step. Raises `NotMarked` if the mark is not there yet, or was taken away: mark it, and again.

        Inside an open transaction nothing is marked (None): that is done when it is published.
        """
        key = self._keys.namespace(namespace)
        [cell] = await draft.read(key)
        if cell.value is None:
            raise NoSuchNamespace.named(namespace)
        if await self._has_children(namespace):
            raise NamespaceNotEmpty(
                f"Namespace {'.'.join(namespace)} is not empty: drop its tables, views and namespaces first"
            )
        if mark is not None and cell.value.get(MARK) != mark:
            raise NotMarked
        draft.write(key, None)
        return {}

    async def enter(self, draft: Draft, namespace: Sequence[str]) -> JsonObject:
        """Something is created in this namespace: it must exist, and go on existing. Its properties."""
        check_namespace(namespace)
        key = self._keys.namespace(namespace)
        [cell] = await draft.read(key)
        if cell.value is None:
            raise NoSuchNamespace.named(namespace)
        if MARK in cell.value:
            draft.write(key, without_mark(cell))
        else:
            draft.depend_on(key)
        properties: JsonObject = cell.value["properties"]
        return properties

    async def _has_children(self, namespace: Sequence[str]) -> bool:
        async for _ in children_of(self._keys, self._cells.scan, namespace):
            return True
        return False

    def _check_properties(self, properties: Mapping[str, str]) -> None:
        check_properties(properties)
        if LOCATION in properties:
            self._warehouse.check_location(properties[LOCATION], "the namespace's location")


async def children_of(keys: Keys, scan: Scan, namespace: Sequence[str]) -> AsyncIterator[Key]:
    """The cells of everything in a namespace: tables, views, namespaces."""
    for prefix in (keys.names_in(namespace), keys.namespaces_in(namespace)):
        after: str | None = None
        while True:
            page = await scan(prefix, after, _PAGE)
            for cell in page.cells:
                yield cell.key
            if page.after is None:
                break
            after = page.after


def id_of(namespace: Cell) -> str | int | None:
    """What tells a namespace from those that have had its name before. None: there is none."""
    value = namespace.value or {}
    # Of those that were created without an id the revision is all there is. None is created in that way any more.
    found: str | int | None = value.get("id") or value.get("created")
    return found


def prefixes(namespace: Sequence[str]) -> list[tuple[str, ...]]:
    """A namespace and all that it lies in, the outermost first."""
    return [tuple(namespace[:depth]) for depth in range(1, len(namespace) + 1)]


def check_namespace(namespace: Sequence[str]) -> None:
    if not namespace:
        raise BadRequest("the namespace is empty; name at least one level")
    if not all(namespace):
        raise BadRequest(f"a level of namespace {'.'.join(namespace)} is empty; leave no level out")


def without_mark(cell: Cell) -> JsonObject:
    """The namespace as it is when nobody means to drop it."""
    return {name: value for name, value in (cell.value or {}).items() if name != MARK}

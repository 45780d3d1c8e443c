"""What the windows look at: the one way from a page to the catalogs.

Every page asks `Windows`, and only this class asks the catalogs. So who may see what is decided in one place: `catalog`
is given the principal that asks, `shows` says which transactions it may look at, and what changes something goes
through `acting`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lakepact.access import Principal
from lakepact.access.rules import Role
from lakepact.catalog import Catalog
from lakepact.catalog.delta_tables import DeltaTable
from lakepact.catalog.errors import Forbidden, NoSuchNamespace, NoSuchTable
from lakepact.catalog.files import MetadataFile
from lakepact.catalog.guarded_transactions import owner_of
from lakepact.catalog.keys import last_segment, levels_of
from lakepact.catalog.pointers import Kind, Pointer, shown
from lakepact.catalog.sight import in_sight, seen_by
from lakepact.catalog.trail import Trail
from lakepact.delta.actions import Add, Remove
from lakepact.delta.ports import DeltaRows, MirrorRow, VersionRow
from lakepact.errors import InvalidRequest, LakepactError
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.keys import Key, key_of, segments_of
from lakepact.kernel.model import Cell, State
from lakepact.server.rest.door import catalog_named, default_warehouse
from lakepact.server.ui.activity import Shows
from lakepact.server.ui.receipts import Documents
from lakepact.server.ui.timeline import Timeline

PAGE: Final = 100
_SCAN: Final = 500
_SEARCH_WITHIN_S: Final = 1.5
"""Then a search shows what it has, and where it goes on. On a store of documents every name is a document."""

_TREE_FOR_S: Final = 2.0
_MOST_TREES: Final = 1_000
_MOST_FOUND: Final = 100
_MOST_ACTIONS: Final = 20_000
_MOST_VERSIONS: Final = 200


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


@dataclass(frozen=True, slots=True)
class Tree:
    levels: Sequence[Sequence[str]]
    """The namespaces of the root, then those below each level of the way down."""

    leaves: Leaves


@dataclass(frozen=True, slots=True)
class Found:
    namespaces: Sequence[tuple[str, ...]]
    names: Sequence[Named]
    looked_at: int
    after: str | None
    """Where the search goes on; None: everything was looked at."""


@dataclass(frozen=True, slots=True)
class Sized:
    """How large a Delta table was at a version."""

    version: int
    at_ms: int
    bytes: int
    files: int


class Windows:
    def __init__(
        self, catalogs: Mapping[str, Catalog], default: str, rows: DeltaRows | None = None, trail: Trail | None = None
    ) -> None:
        self._catalogs = catalogs
        self._trail = trail or Trail()
        self.default = default
        self.rows = rows
        self.documents = Documents()
        self.timeline = Timeline(self.documents)
        self._trees: OrderedDict[tuple[str, tuple[str, ...]], tuple[float, Tree]] = OrderedDict()

    # --- who may ---

    def warehouses_of(self, principal: Principal) -> list[str]:
        """Those of the account."""
        return [name for name, catalog in self._catalogs.items() if in_sight(catalog, principal)]

    def default_of(self, principal: Principal) -> str:
        return default_warehouse(self._catalogs, self.default, principal)

    async def catalog(self, warehouse: str, principal: Principal) -> Catalog:
        """The catalog of this warehouse, for whoever may read all of it: pages count, search and draw all there is."""
        catalog = catalog_named(self._catalogs, warehouse, principal)
        if (await catalog.grants.rights(principal)).everywhere is None:
            raise Forbidden(
                f"pages show a warehouse as a whole, and you may not read all of {warehouse}. Ask for the role read on "
                f"the warehouse; what you may read of it, the API and engines show you"
            )
        return catalog

    async def readable(self, principal: Principal) -> list[Catalog]:
        """The catalogs that this principal may look at, one at least."""
        found = [self._catalogs[name] for name in self.warehouses_of(principal)]
        may = [one for one in found if (await one.grants.rights(principal)).everywhere is not None]
        return may or [await self.catalog(self.default_of(principal), principal)]

    async def shows(self, catalog: Catalog, principal: Principal) -> Shows:
        """Which transactions this principal may look at: one's own, and those that are committed: tables show them.
        What others have not committed is for those who manage the warehouse."""
        if (await catalog.grants.rights(principal)).everywhere is Role.MANAGE:
            return lambda record: True
        return lambda record: record.state is State.COMMITTED or owner_of(record) == principal.name

    def acting(self, catalog: Catalog, principal: Principal) -> Catalog:
        """The catalog for what changes something: rights are checked, and it is noted who did it."""
        return seen_by(catalog, principal, self._trail)

    # --- namespaces ---

    async def namespaces(
        self, catalog: Catalog, parent: Sequence[str], after: str | None = None, limit: int = PAGE
    ) -> tuple[list[str], str | None]:
        """The names right below a namespace (or the root), sorted as far as the page goes."""
        prefix = catalog.parts.keys.namespaces_in(parent)
        cells, following = await _scan(catalog, prefix, after, limit)
        return sorted(last_segment(cell.key) for cell in cells), following

    async def namespace(
        self, catalog: Catalog, namespace: Sequence[str], after: str | None = None, children_after: str | None = None
    ) -> NamespacePage:
        if not namespace or not all(namespace):
            raise NoSuchNamespace.named(namespace)
        properties = await catalog.load_namespace(namespace)
        children, more_children = await self.namespaces(catalog, namespace, children_after)
        cells, following = await _scan(catalog, catalog.parts.keys.names_in(namespace), after, PAGE)
        return NamespacePage(properties, children, more_children, await _with_pointers(catalog, cells), following)

    async def tree(self, catalog: Catalog, namespace: Sequence[str], most: int) -> Tree:
        """The way down to a namespace with what is beside it, as it was a moment ago at most: it is on every page of a
        table, and what a page is about is never taken from it."""
        key = (catalog.warehouse.name, tuple(namespace))
        now_s = catalog.parts.clock.monotonic_s()
        known = self._trees.get(key)
        if known is not None and now_s - known[0] < _TREE_FOR_S:
            return known[1]
        paths = [tuple(namespace[:depth]) for depth in range(len(namespace) + 1)]
        found = await catalog.parts.tasks.all([self.namespaces(catalog, path, None, most) for path in paths])
        leaves = await self._leaves(catalog, namespace, most) if namespace else Leaves((), False)
        tree = Tree([names for names, _ in found], leaves)
        self._trees[key] = now_s, tree
        while len(self._trees) > _MOST_TREES:
            self._trees.popitem(last=False)
        return tree

    async def _leaves(self, catalog: Catalog, namespace: Sequence[str], most: int) -> Leaves:
        cells, following = await _scan(catalog, catalog.parts.keys.names_in(namespace), None, most)
        names = sorted(((_identifier(cell), _kind(cell)) for cell in cells), key=lambda one: one[0].name.casefold())
        return Leaves(names[:most], following is not None)

    async def search(self, catalog: Catalog, text: str, after: str | None = None) -> Found:
        """Names that hold this text, in any case; for as long as a page may take."""
        wanted = text.strip().casefold()
        clock, parts = catalog.parts.clock, catalog.parts
        until_s = clock.monotonic_s() + _SEARCH_WITHIN_S
        warehouse = catalog.warehouse.name
        namespaces: list[tuple[str, ...]] = []
        if after is None:
            cells, _ = await _scan(catalog, key_of(warehouse, "namespaces"), None, _SCAN)
            paths = (_namespace_of(cell) for cell in cells)
            namespaces = [path for path in paths if wanted in ".".join(path).casefold()]
        found: list[Cell] = []
        looked_at = 0
        while True:
            page = await parts.store.scan(key_of(warehouse, "names"), after, _SCAN)
            looked_at += len(page.cells)
            found += [cell for cell in page.cells if wanted in _full_name(cell).casefold()]
            after = page.after
            if after is None or len(found) >= _MOST_FOUND or clock.monotonic_s() > until_s:
                break
        return Found(sorted(namespaces)[:_MOST_FOUND], await _with_pointers(catalog, found), looked_at, after)

    # --- tables ---

    async def find(self, catalog: Catalog, identifier: Identifier) -> Pointer:
        """What a name stands for. Raises `NoSuchTable`."""
        if not identifier.name or not all(identifier.namespace):
            raise NoSuchTable(f"Table or view does not exist: {shown(identifier)}")
        pointer = await catalog.names.find(catalog.cells, identifier)
        if pointer is None:
            raise NoSuchTable(f"Table or view does not exist: {shown(identifier)}")
        return pointer

    async def revision(self, catalog: Catalog, pointer: Pointer) -> int:
        """How often the table's cell has changed."""
        key = _pointer_key(catalog, pointer.kind, pointer.id)
        return (await catalog.parts.store.read([key]))[key].revision

    async def metadata(self, catalog: Catalog, pointer: Pointer) -> MetadataFile | LakepactError:
        """The metadata, or why it cannot be read."""
        load = catalog.view_file if pointer.kind is Kind.VIEW else catalog.table_file
        try:
            return await load(pointer.metadata_location)
        except InvalidRequest:
            raise
        except LakepactError as error:
            return error

    async def delta(self, catalog: Catalog, identifier: Identifier) -> DeltaTable:
        return await catalog.load_delta(identifier, files=True)

    async def delta_sizes(self, table: DeltaTable, versions: Sequence[VersionRow]) -> list[Sized]:
        """How it grew, oldest first, as far back as can be told without reading too much."""
        if self.rows is None or not versions:
            return []
        first, budget = versions[0].version, _MOST_ACTIONS
        for row in versions[:_MOST_VERSIONS]:
            budget -= row.adds + row.removes
            if budget < 0:
                break
            first = row.version
        told = await self.rows.since(table.pointer.id, first, table.state.version)
        size, files = table.state.size_bytes, len(table.state.files)
        sizes: list[Sized] = []
        at = {row.version: row.info.timestamp_ms for row in versions}
        for version in reversed(told):
            sizes.append(Sized(version.row.version, version.row.info.timestamp_ms, size, files))
            for action in version.actions:
                if isinstance(action, Add):
                    size, files = size - action.size, files - 1
                elif isinstance(action, Remove):
                    size, files = size + (action.size or 0), files + 1
        if first in at:
            sizes.append(Sized(first, at[first], max(size, 0), max(files, 0)))
        return sizes[::-1]

    # --- mirrors ---

    async def mirrors(self, catalog: Catalog) -> list[tuple[str, MirrorRow]]:
        """Every mirror of a table of this warehouse, by the table's name."""
        if self.rows is None:
            return []
        names = {one.table_id: f"{one.namespace}.{one.name}" for one in await self.rows.tables(catalog.warehouse.name)}
        status = await self.rows.mirror_status()
        return sorted(
            ((names[one.table_id], one) for one in status if one.table_id in names),
            key=lambda pair: (pair[0], pair[1].engine),
        )

    async def mirror_of(self, pointer: Pointer) -> Sequence[MirrorRow]:
        return [] if self.rows is None else await self.rows.mirror_status(table_id=pointer.id)


async def _scan(catalog: Catalog, prefix: Key, after: str | None, limit: int) -> tuple[list[Cell], str | None]:
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


async def _with_pointers(catalog: Catalog, names: Sequence[Cell]) -> list[Named]:
    """The names with what they stand for, all looked up at once."""
    stands_for = [(_identifier(cell), Kind(cell.value["kind"]), str(cell.value["id"])) for cell in names if cell.value]
    keys = [_pointer_key(catalog, kind, id) for _, kind, id in stands_for]
    cells = await catalog.parts.store.read(keys) if keys else {}
    return sorted(
        (
            Named(identifier, kind, Pointer.of(cells[key]))
            for (identifier, kind, _), key in zip(stands_for, keys, strict=True)
        ),
        key=lambda one: (one.identifier.namespace, one.identifier.name.casefold()),
    )


def _pointer_key(catalog: Catalog, kind: Kind, id: str) -> Key:
    keys = catalog.parts.keys
    return {Kind.TABLE: keys.table, Kind.VIEW: keys.view, Kind.DELTA: keys.delta}[kind](id)


def _identifier(cell: Cell) -> Identifier:
    path, name = segments_of(cell.key)[2:]
    return Identifier(tuple(levels_of(path)), name)


def _kind(cell: Cell) -> Kind:
    return Kind((cell.value or {}).get("kind", Kind.TABLE))


def _full_name(cell: Cell) -> str:
    return shown(_identifier(cell))


def _namespace_of(cell: Cell) -> tuple[str, ...]:
    path, level = segments_of(cell.key)[2:]
    return (*(levels_of(path) if path != "." else ()), level)

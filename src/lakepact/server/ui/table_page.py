"""A table or view: what it is, how it grew, its versions, its snapshots.

What follows from a metadata file alone is the same for ever, and so is a page of versions that all have their
receipts: the markup of both is remembered by the file's location.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from lakepact.catalog import Catalog
from lakepact.catalog.delta_tables import DeltaTable
from lakepact.catalog.files import MetadataFile
from lakepact.catalog.pointers import Kind, Pointer, shown
from lakepact.errors import InvalidRequest, LakepactError
from lakepact.iceberg.requests import Identifier
from lakepact.server.http import Request
from lakepact.server.ui import shapes, text, versions
from lakepact.server.ui.catalog_page import CatalogPages
from lakepact.server.ui.charts import Point, area, nice, thinned
from lakepact.server.ui.data import Windows
from lakepact.server.ui.html import NOTHING, Child, Markup, join, lines, name, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.links import Links, levels_of
from lakepact.server.ui.parts import (
    ACCENT,
    KINDS,
    alert,
    badge,
    card,
    empty,
    facts,
    figures,
    grid,
    heading,
    mono,
    pager,
    properties,
    tabs,
)
from lakepact.server.ui.timeline import PAGE, Start, Versions
from lakepact.server.ui.timeline import figures as grown

_LATEST: Final = 5
_SNAPSHOTS: Final = 100
_REMEMBERED_BYTES: Final = 16 << 20


class TablePages:
    def __init__(self, windows: Windows, links: Links, catalog_pages: CatalogPages) -> None:
        self._windows = windows
        self._links = links
        self._catalog_pages = catalog_pages
        self._remembered = _Remembered(_REMEMBERED_BYTES)

    async def overview(self, request: Request) -> Page:
        catalog, pointer = await self._asked(request)
        if pointer.kind is Kind.DELTA:
            return await self._delta_overview(catalog, pointer)
        file = await self._windows.metadata(catalog, pointer)
        if isinstance(file, LakepactError):
            return await self._broken(catalog, pointer, file)
        if pointer.kind is Kind.VIEW:
            return await self._page(catalog, pointer, "", self._view(file))
        key = ("overview", catalog.warehouse.name, pointer.metadata_location, shown(pointer.identifier))
        body = self._remembered.get(key)
        if body is None:
            latest = await self._windows.timeline.page(catalog, pointer, file, limit=_LATEST)
            body = self._iceberg(
                catalog, pointer, file, versions.iceberg(latest.entries, self._links, catalog.warehouse.name)
            )
            if latest.complete:
                self._remembered.put(key, body)
        return await self._page(catalog, pointer, "", body)

    async def timeline(self, request: Request) -> Page:
        catalog, pointer = await self._asked(request)
        if pointer.kind is Kind.DELTA:
            return await self._delta_timeline(catalog, pointer, request)
        file = await self._iceberg_file(catalog, pointer)
        if isinstance(file, LakepactError):
            return await self._broken(catalog, pointer, file)
        start = _start(request, pointer)
        at = (start.file, start.version) if start is not None else ("", "")
        key = ("timeline", catalog.warehouse.name, pointer.metadata_location, shown(pointer.identifier), *at)
        body = self._remembered.get(key)
        if body is None:
            page = await self._windows.timeline.page(catalog, pointer, file, start)
            body = self._timeline(catalog, pointer, page, first=start is None)
            if page.complete:
                self._remembered.put(key, body)
        return await self._page(catalog, pointer, "timeline", body)

    async def snapshots(self, request: Request) -> Page:
        catalog, pointer = await self._asked(request)
        file = await self._iceberg_file(catalog, pointer)
        if isinstance(file, LakepactError):
            return await self._broken(catalog, pointer, file)
        start = _number(request, "skip")
        key = ("snapshots", catalog.warehouse.name, pointer.metadata_location, shown(pointer.identifier), str(start))
        body = self._remembered.get(key)
        if body is None:
            body = self._snapshots(catalog, pointer, file.document, start)
            self._remembered.put(key, body)
        return await self._page(catalog, pointer, "snapshots", body)

    def _timeline(self, catalog: Catalog, pointer: Pointer, page: Versions, *, first: bool) -> Markup:
        warehouse, following = catalog.warehouse.name, page.following
        here = self._links.table(warehouse, pointer.identifier, "timeline")
        there = None
        if following is not None:
            at = {"in": following.file, "from": following.version}
            there = self._links.table(warehouse, pointer.identifier, "timeline", **at)
        end = "This is as far back as the table's metadata goes." if page.entries else "These versions are gone by now."
        return join(
            tag("h2", "Timeline", class_="unseen"),
            versions.iceberg(page.entries, self._links, warehouse) if page.entries else None,
            pager(first=None if first else here, following=there, what="Pages of versions"),
            tag("p", end, class_="muted end") if following is None else None,
        )

    def _snapshots(self, catalog: Catalog, pointer: Pointer, document: Mapping[str, Any], start: int) -> Markup:
        found = sorted(
            document.get("snapshots") or (),
            key=lambda one: (text.number_of(one.get("sequence-number")) or 0, one.get("timestamp-ms") or 0),
            reverse=True,
        )
        if not found:
            return empty("No snapshots yet", "The first write makes one.")
        end = min(start + _SNAPSHOTS, len(found))
        return join(
            card("Snapshots", _snapshots(document, found[start:end]), flush=True),
            self._pager(
                catalog,
                pointer,
                "snapshots",
                str(start) if start else None,
                str(end) if end < len(found) else None,
                field="skip",
                note=f"{start + 1:,} to {end:,} of {len(found):,}",
            ),
        )

    # --- what they share ---

    async def _asked(self, request: Request) -> tuple[Catalog, Pointer]:
        catalog = await self._windows.catalog(request.params["warehouse"], request.principal)
        identifier = Identifier(levels_of(request.params["namespace"]), request.params["table"])
        return catalog, await self._windows.find(catalog, identifier)

    async def _iceberg_file(self, catalog: Catalog, pointer: Pointer) -> MetadataFile | LakepactError:
        if pointer.kind is not Kind.TABLE:
            raise InvalidRequest(f"{shown(pointer.identifier)} is a {KINDS[pointer.kind]}, and has no such page")
        return await self._windows.metadata(catalog, pointer)

    async def page(self, catalog: Catalog, pointer: Pointer, tab: str, body: Child) -> Page:
        return await self._page(catalog, pointer, tab, body)

    async def _page(self, catalog: Catalog, pointer: Pointer, tab: str, body: Child) -> Page:
        identifier, warehouse = pointer.identifier, catalog.warehouse.name
        names = {"": "Overview", "timeline": "Timeline", "snapshots": "Snapshots", "lineage": "Lineage"}
        has = {
            Kind.TABLE: ("", "timeline", "snapshots", "lineage"),
            Kind.DELTA: ("", "timeline", "lineage"),
            Kind.VIEW: ("",),
        }[pointer.kind]
        menu = tabs(
            [(names[one], self._links.table(warehouse, identifier, one), one == tab) for one in has],
            label="About this table",
        )
        return Page(
            shown(identifier),
            (heading(name(identifier.name), *_badges(pointer)), menu if len(has) > 1 else NOTHING, body),
            section="catalog",
            warehouse=warehouse,
            trail=self._catalog_pages.trail(warehouse, identifier.namespace),
            aside=await self._catalog_pages.tree(catalog, identifier.namespace, identifier),
        )

    def _pager(
        self,
        catalog: Catalog,
        pointer: Pointer,
        tab: str,
        start: str | None,
        following: str | None,
        *,
        field: str = "from",
        note: Child = None,
    ) -> Markup:
        def address(value: str | None) -> str:
            return self._links.table(catalog.warehouse.name, pointer.identifier, tab, **{field: value})

        return pager(
            first=address(None) if start else None,
            following=None if following is None else address(following),
            what="Pages of versions",
            note=note,
        )

    async def _broken(self, catalog: Catalog, pointer: Pointer, error: LakepactError) -> Page:
        """The pointer is there, its metadata is not, or cannot be understood."""
        body = join(
            alert("The metadata of this table cannot be read", name(str(error)[:2_000])),
            card("What the catalog knows", facts(_places(pointer))),
        )
        return await self._page(catalog, pointer, "", body)

    # --- Iceberg ---

    def _iceberg(self, catalog: Catalog, pointer: Pointer, file: MetadataFile, latest: Markup) -> Markup:
        document = file.document
        schema = shapes.current(document.get("schemas"), "schema-id", document.get("current-schema-id"))
        columns = shapes.names_by_id(schema)
        partition = shapes.partitioning(document, columns)
        order = shapes.sort_order(document, columns)
        marks = {column: "partition" for _, _, column in partition}
        became = grown(document)
        summary: Mapping[str, Any] = (became[-1].get("summary") or {}) if became else {}
        has = document.get("current-snapshot-id") not in (None, -1)
        return join(
            figures(
                (
                    ("Rows", _figure(summary.get("total-records")) if has else "0"),
                    ("Size", text.size(text.number_of(summary.get("total-files-size"))) if has else "0 B"),
                    ("Data files", _figure(summary.get("total-data-files")) if has else "0"),
                    ("Snapshots", f"{len(document.get('snapshots') or ()):,}"),
                    ("Last change", text.instant(document.get("last-updated-ms"), seconds=False)),
                )
            ),
            _growth(became),
            card(
                "Schema",
                shapes.schema(shapes.iceberg_columns(schema), marks),
                note=f"schema {schema.get('schema-id')}",
                flush=True,
            ),
            tag(
                "div",
                card("Partitioning", _partitioning(partition), flush=bool(partition)),
                card("Sort order", _order(order), flush=bool(order)),
                class_="pair",
            ),
            card(
                "Latest versions",
                latest,
                note=tag(
                    "a",
                    "Whole timeline",
                    href=self._links.table(catalog.warehouse.name, pointer.identifier, "timeline"),
                ),
            ),
            card("Branches and tags", shapes.refs(document), flush=True) if document.get("refs") else NOTHING,
            card("Properties", properties(document["properties"], label="Properties"), flush=True)
            if document.get("properties")
            else NOTHING,
            card("Where it is", facts(_places(pointer))),
        )

    def _view(self, file: MetadataFile) -> Markup:
        document = file.document
        found = document.get("versions") or ()
        version = shapes.current(found, "version-id", document.get("current-version-id"))
        schema = shapes.current(document.get("schemas"), "schema-id", version.get("schema-id"))
        statements = (
            card(f"SQL ({one.get('dialect')})", tag("pre", lines(str(one.get("sql"))), tabindex="0"))
            for one in version.get("representations") or ()
            if isinstance(one, dict)
        )
        history = (
            (str(one.get("version-id")), text.instant(one.get("timestamp-ms")), _words(one.get("summary")))
            for one in sorted(found, key=lambda one: text.number_of(one.get("version-id")) or 0, reverse=True)
        )
        return join(
            statements,
            card("Schema", shapes.schema(shapes.iceberg_columns(schema), {}), flush=True),
            card("Versions", grid(("Version", "Made", "By"), history, label="Versions"), flush=True),
            card("Properties", properties(document["properties"], label="Properties"), flush=True)
            if document.get("properties")
            else NOTHING,
            card(
                "Where it is",
                facts(
                    [("Location", mono(name(str(document.get("location"))))), ("Metadata", mono(name(file.location)))]
                ),
            ),
        )

    # --- Delta ---

    async def _delta_overview(self, catalog: Catalog, pointer: Pointer) -> Page:
        try:
            table = await self._windows.delta(catalog, pointer.identifier)
            rows = await catalog.delta_history(pointer.identifier, None, 200)
            sizes = await self._windows.delta_sizes(table, rows)
        except InvalidRequest:
            raise
        except LakepactError as error:
            return await self._broken(catalog, pointer, error)
        revision = await self._windows.revision(catalog, pointer)
        receipts = await self._windows.timeline.delta(catalog, pointer, revision, rows[:_LATEST])
        warehouse = catalog.warehouse.name
        latest = versions.delta(rows[:_LATEST], receipts, table.state.version, self._links, warehouse)
        points = [Point(one.at_ms, float(one.bytes), text.instant_text(one.at_ms, seconds=False)) for one in sizes]
        body = join(
            _delta_figures(table),
            card("Size over time", area(points, title="Size", shown=text.size, steps=True, end=text.nice_size))
            if len(points) > 1
            else NOTHING,
            card(
                "Schema",
                shapes.schema(
                    shapes.delta_columns(table.state.metadata.schema_string),
                    dict.fromkeys(table.state.metadata.partition_columns, "partition"),
                ),
                flush=True,
            ),
            card(
                "Latest versions",
                latest,
                note=tag("a", "Whole timeline", href=self._links.table(warehouse, pointer.identifier, "timeline")),
            ),
            card("Mirrors", _mirrors(await self._windows.mirror_of(pointer)), flush=True),
            card("Properties", properties(table.state.metadata.configuration, label="Properties"), flush=True)
            if table.state.metadata.configuration
            else NOTHING,
            card("Where it is", facts(_places(pointer))),
        )
        return await self._page(catalog, pointer, "", body)

    async def _delta_timeline(self, catalog: Catalog, pointer: Pointer, request: Request) -> Page:
        before = _number(request, "from") or None
        rows = await catalog.delta_history(pointer.identifier, before, PAGE)
        revision = await self._windows.revision(catalog, pointer)
        receipts = await self._windows.timeline.delta(catalog, pointer, revision, rows)
        current = int(pointer.summary.get("version") or 0)
        following = str(rows[-1].version) if rows and rows[-1].version > 0 else None
        body = join(
            tag("h2", "Timeline", class_="unseen"),
            versions.delta(rows, receipts, current, self._links, catalog.warehouse.name),
            self._pager(catalog, pointer, "timeline", str(before) if before else None, following),
        )
        return await self._page(catalog, pointer, "timeline", body)


class _Remembered:
    """Markup by what it was made of, bounded."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._held = 0
        self._found: OrderedDict[tuple[str, ...], Markup] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> Markup | None:
        found = self._found.get(key)
        if found is not None:
            self._found.move_to_end(key)
        return found

    def put(self, key: tuple[str, ...], body: Markup) -> None:
        if key in self._found:
            return
        self._found[key] = body
        self._held += len(body)
        while self._held > self._most_bytes:
            _, old = self._found.popitem(last=False)
            self._held -= len(old)


def _start(request: Request, pointer: Pointer) -> Start | None:
    version = request.query.get("from")
    return Start(request.query.get("in") or pointer.metadata_location, version) if version else None


def _badges(pointer: Pointer) -> Sequence[Child]:
    version = pointer.summary.get("format-version")
    found: list[Child] = [badge(KINDS[pointer.kind], ACCENT)]
    if pointer.kind is Kind.TABLE and version is not None:
        found.append(badge(f"format v{version}"))
    if pointer.kind is Kind.DELTA:
        found.append(badge(f"version {pointer.summary.get('version')}"))
    return found


def _places(pointer: Pointer) -> list[tuple[str, Child]]:
    return [
        ("Location", mono(name(pointer.location))),
        ("Metadata", mono(name(pointer.metadata_location))),
        ("Before that", mono(name(pointer.previous_metadata_location)) if pointer.previous_metadata_location else None),
        ("UUID", mono(name(pointer.id))),
    ]


def _growth(became: Sequence[Mapping[str, Any]]) -> Markup:
    """How it grew: in bytes if the writers say so, else in rows."""
    for field, title, shown_as, end in (
        ("total-files-size", "Size over time", text.size, text.nice_size),
        ("total-records", "Rows over time", text.short, nice),
    ):
        told = [
            (at_ms, value)
            for one in became
            if (value := text.number_of((one.get("summary") or {}).get(field))) is not None
            and isinstance(at_ms := one.get("timestamp-ms"), int)
        ]
        # Thinned first: to write down thousands of times takes longer than all the rest of the page.
        points = [Point(at, float(value), text.instant_text(at, seconds=False)) for at, value in thinned(told)]
        if len(points) > 1:
            return card(
                title, area(points, title=title, shown=shown_as, steps=True, end=end), note=f"{len(told):,} snapshots"
            )
    return NOTHING


def _partitioning(fields: Sequence[tuple[str, str, str]]) -> Child:
    if not fields:
        return tag("p", "Not partitioned.", class_="muted")
    rows = ((mono(name(field)), mono(name(transform)), mono(name(column))) for field, transform, column in fields)
    return grid(("Field", "Transform", "Of"), rows, label="Partitioning")


def _order(fields: Sequence[tuple[str, str, str]]) -> Child:
    if not fields:
        return tag("p", "Not sorted.", class_="muted")
    rows = ((mono(name(column)), mono(name(transform)), name(way)) for column, transform, way in fields)
    return grid(("Column", "Transform", "Direction"), rows, label="Sort order")


def _snapshots(document: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Markup:
    refs: dict[Any, list[str]] = {}
    for ref, one in (document.get("refs") or {}).items():
        refs.setdefault(one.get("snapshot-id"), []).append(ref)

    def row(one: Mapping[str, Any]) -> Sequence[Child]:
        summary = one.get("summary") or {}
        return (
            join(
                mono(str(one.get("snapshot-id"))),
                (join(" ", badge(name(ref), ACCENT)) for ref in refs.get(one.get("snapshot-id"), ())),
            ),
            text.instant(one.get("timestamp-ms")),
            name(str(summary.get("operation", "–"))),
            _figure(summary.get("added-records")),
            _figure(summary.get("deleted-records")),
            _figure(summary.get("total-records")),
            text.size(text.number_of(summary.get("total-files-size"))),
        )

    columns = ("Snapshot", "Made", "Operation", "Rows added", "Deleted", "In all", "Size")
    return grid(columns, map(row, found), label="Snapshots", numbers=(3, 4, 5, 6))


def _delta_figures(table: DeltaTable) -> Markup:
    rows = [_records(add.stats) for add in table.state.files.values()]
    known = None if any(one is None for one in rows) else sum(one or 0 for one in rows)
    return figures(
        (
            ("Rows", text.count(known)),
            ("Size", text.size(table.state.size_bytes)),
            ("Files", f"{len(table.state.files):,}"),
            ("Versions", f"{table.state.version + 1:,}"),
            ("Last change", text.instant(table.timestamp_ms, seconds=False)),
        )
    )


def _mirrors(rows: Sequence[Any]) -> Child:
    shown_rows = (
        (
            one.engine,
            badge(one.state.value),
            f"{one.mirrored_version:,}",
            f"{one.current_version - one.mirrored_version:,}",
        )
        for one in rows
    )
    return grid(("Engine", "State", "Has version", "Behind by"), shown_rows, label="Mirrors", numbers=(2, 3))


def _records(stats: Any) -> int | None:
    """How many rows a file's statistics say it has."""
    try:
        said = orjson.loads(stats) if isinstance(stats, str) else None
    except orjson.JSONDecodeError:
        return None
    return text.number_of(said.get("numRecords")) if isinstance(said, dict) else None


def _figure(value: Any) -> str:
    return text.count(text.number_of(value))


def _words(summary: Any) -> Child:
    if not isinstance(summary, dict):
        return "–"
    said = " ".join(str(summary[key]) for key in ("engine-name", "engine-version") if key in summary)
    return name(said or "–")


def _number(request: Request, field: str) -> int:
    value = request.query.get(field, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 16 else 0

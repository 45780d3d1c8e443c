"""A table or view: what it is, how it grew, its versions, its snapshots.

What follows from a metadata file alone is the same for ever, and so is, for those who see all of the warehouse, a page
of versions that all have their receipts: the markup of these is remembered by the file's location.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from lakepact.catalog.files import MetadataFile
from lakepact.catalog.pointers import Kind, Pointer, shown
from lakepact.errors import InvalidRequest, LakepactError
from lakepact.iceberg.requests import Identifier
from lakepact.server.http import Request
from lakepact.server.ui import delta_parts, governance_parts, iceberg_parts, text, versions, view_parts
from lakepact.server.ui.catalog_page import CatalogPages
from lakepact.server.ui.html import NOTHING, Child, Markup, join, name, tag
from lakepact.server.ui.layout import Page
from lakepact.server.ui.links import Links, levels_of
from lakepact.server.ui.parts import ACCENT, KINDS, alert, badge, card, empty, facts, heading, pager, tabs
from lakepact.server.ui.remembered import Remembered
from lakepact.server.ui.timeline import PAGE, Start, Versions
from lakepact.server.ui.window import Window
from lakepact.server.ui.windows import Windows

GOVERN: Final = "govern"
"""The page on which people say something about it."""

_LATEST: Final = 5
_SNAPSHOTS: Final = 100
_REMEMBERED_BYTES: Final = 16 << 20


class TablePages:
    def __init__(self, windows: Windows, links: Links, catalog_pages: CatalogPages) -> None:
        self._windows = windows
        self._links = links
        self._catalog_pages = catalog_pages
        self._remembered = Remembered(_REMEMBERED_BYTES)

    async def overview(self, request: Request) -> Page:
        window, pointer = await self.asked(request)
        said, _ = await window.governance(pointer)
        return await self.page(window, pointer, "", await self._with_said(window, pointer, said), said=said)

    async def _with_said(self, window: Window, pointer: Pointer, said: governance_parts.Said) -> Child:
        """What people say goes first, where they have said anything: it is for people."""
        body = await self._overview(window, pointer)
        change_at = None
        if window.may_govern(pointer):
            change_at = self._links.table(window.warehouse, pointer.identifier, GOVERN)
        about = governance_parts.about(said, change_at)
        if governance_parts.anything(said):
            return about, body
        return body, about if change_at is not None else None

    async def _overview(self, window: Window, pointer: Pointer) -> Child:
        if pointer.kind is Kind.DELTA:
            return await self._delta_overview(window, pointer)
        file = await window.metadata(pointer)
        if isinstance(file, LakepactError):
            return self._cannot_be_read(pointer, file)
        if pointer.kind is Kind.VIEW:
            return view_parts.body(file)
        shape = self._made_once(_key("shape", window, pointer), lambda: iceberg_parts.shape(file.document))
        latest = await self._latest(window, pointer, file)
        # Beside the file they show the pointer, of which a name may have another by the same file.
        told = (pointer.id, pointer.location, pointer.previous_metadata_location or "")
        key = _key("details", window, pointer, *told)
        details = self._made_once(key, lambda: iceberg_parts.details(file.document, pointer))
        return shape, latest, details

    def _made_once(self, key: tuple[str, ...], make: Callable[[], Markup]) -> Markup:
        body = self._remembered.get(key)
        if body is None:
            body = make()
            self._remembered.put(key, body)
        return body

    async def _latest(self, window: Window, pointer: Pointer, file: MetadataFile) -> Markup:
        key = _key("latest", window, pointer)
        body = self._remembered.get(key) if window.whole else None
        if body is None:
            page = await self._windows.timeline.page(window, pointer, file, limit=_LATEST)
            body = self._latest_versions(window, pointer, versions.iceberg(page.entries, self._links, window.warehouse))
            if page.complete and window.whole:
                self._remembered.put(key, body)
        return body

    async def timeline(self, request: Request) -> Page:
        window, pointer = await self.asked(request)
        if pointer.kind is Kind.DELTA:
            return await self._delta_timeline(window, pointer, request)
        file = await self._iceberg_file(window, pointer)
        if isinstance(file, LakepactError):
            return await self._broken(window, pointer, file)
        start = _start(request, pointer)
        key = _key("timeline", window, pointer, *((start.file, start.version) if start is not None else ("", "")))
        body = self._remembered.get(key) if window.whole else None
        if body is None:
            page = await self._windows.timeline.page(window, pointer, file, start)
            body = self._timeline(window, pointer, page, first=start is None)
            if page.complete and window.whole:
                self._remembered.put(key, body)
        return await self.page(window, pointer, "timeline", body)

    async def snapshots(self, request: Request) -> Page:
        window, pointer = await self.asked(request)
        file = await self._iceberg_file(window, pointer)
        if isinstance(file, LakepactError):
            return await self._broken(window, pointer, file)
        start = _number(request, "skip")
        key = _key("snapshots", window, pointer, str(start))
        body = self._made_once(key, lambda: self._snapshots(window, pointer, file, start))
        return await self.page(window, pointer, "snapshots", body)

    # --- what they share, also with other pages of a table ---

    async def asked(self, request: Request) -> tuple[Window, Pointer]:
        window = await self._windows.window(request.params["warehouse"], request.principal)
        identifier = Identifier(levels_of(request.params["namespace"]), request.params["table"])
        return window, await window.find(identifier)

    async def page(
        self, window: Window, pointer: Pointer, tab: str, body: Child, said: governance_parts.Said | None = None
    ) -> Page:
        identifier, warehouse = pointer.identifier, window.warehouse
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
            (
                heading(name(identifier.name), *_badges(pointer), governance_parts.protection(said or {})),
                menu if len(has) > 1 else NOTHING,
                body,
            ),
            section="catalog",
            warehouse=warehouse,
            trail=self._catalog_pages.trail(warehouse, identifier.namespace),
            aside=await self._catalog_pages.tree(window, identifier.namespace, identifier),
        )

    async def _iceberg_file(self, window: Window, pointer: Pointer) -> MetadataFile | LakepactError:
        if pointer.kind is not Kind.TABLE:
            raise InvalidRequest(f"{shown(pointer.identifier)} is a {KINDS[pointer.kind]}, and has no such page")
        return await window.metadata(pointer)

    async def _broken(self, window: Window, pointer: Pointer, error: LakepactError) -> Page:
        return await self.page(window, pointer, "", self._cannot_be_read(pointer, error))

    def _cannot_be_read(self, pointer: Pointer, error: LakepactError) -> Markup:
        """The pointer is there, its metadata is not, or cannot be understood."""
        return join(
            alert("The metadata of this table cannot be read", name(str(error)[:2_000])),
            card("What the catalog knows", facts(iceberg_parts.places(pointer))),
        )

    def _latest_versions(self, window: Window, pointer: Pointer, latest: Markup) -> Markup:
        href = self._links.table(window.warehouse, pointer.identifier, "timeline")
        return card("Latest versions", latest, note=tag("a", "Whole timeline", href=href))

    # --- Iceberg ---

    def _timeline(self, window: Window, pointer: Pointer, page: Versions, *, first: bool) -> Markup:
        warehouse, following = window.warehouse, page.following
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

    def _snapshots(self, window: Window, pointer: Pointer, file: MetadataFile, start: int) -> Markup:
        found = sorted(
            file.document.get("snapshots") or (),
            key=lambda one: (text.number_of(one.get("sequence-number")) or 0, one.get("timestamp-ms") or 0),
            reverse=True,
        )
        if not found:
            return empty("No snapshots yet", "The first write makes one.")
        end = min(start + _SNAPSHOTS, len(found))
        return join(
            card("Snapshots", iceberg_parts.snapshots(file.document, found[start:end]), flush=True),
            self._pager(
                window,
                pointer,
                "snapshots",
                str(start) if start else None,
                str(end) if end < len(found) else None,
                field="skip",
                note=f"{start + 1:,} to {end:,} of {len(found):,}",
            ),
        )

    def _pager(
        self,
        window: Window,
        pointer: Pointer,
        tab: str,
        start: str | None,
        following: str | None,
        *,
        field: str = "from",
        note: Child = None,
    ) -> Markup:
        def address(value: str | None) -> str:
            return self._links.table(window.warehouse, pointer.identifier, tab, **{field: value})

        return pager(
            first=address(None) if start else None,
            following=None if following is None else address(following),
            what="Pages of versions",
            note=note,
        )

    # --- Delta ---

    async def _delta_overview(self, window: Window, pointer: Pointer) -> Markup:
        try:
            table = await window.delta(pointer.identifier)
            rows = await window.delta_history(pointer.identifier, None, 200)
            sizes = await window.delta_sizes(table, rows)
        except InvalidRequest:
            raise
        except LakepactError as error:
            return self._cannot_be_read(pointer, error)
        receipts = await self._windows.timeline.delta(window, pointer, await window.revision(pointer), rows[:_LATEST])
        latest = versions.delta(rows[:_LATEST], receipts, table.state.version, self._links, window.warehouse)
        return join(
            delta_parts.shape(table, sizes),
            self._latest_versions(window, pointer, latest),
            delta_parts.details(table, await window.mirrors_of(pointer)),
            card("Where it is", facts(iceberg_parts.places(pointer))),
        )

    async def _delta_timeline(self, window: Window, pointer: Pointer, request: Request) -> Page:
        before = _number(request, "from") or None
        rows = await window.delta_history(pointer.identifier, before, PAGE)
        receipts = await self._windows.timeline.delta(window, pointer, await window.revision(pointer), rows)
        current = int(pointer.summary.get("version") or 0)
        following = str(rows[-1].version) if rows and rows[-1].version > 0 else None
        body = join(
            tag("h2", "Timeline", class_="unseen"),
            versions.delta(rows, receipts, current, self._links, window.warehouse),
            self._pager(window, pointer, "timeline", str(before) if before else None, following),
        )
        return await self.page(window, pointer, "timeline", body)


def _key(what: str, window: Window, pointer: Pointer, *more: str) -> tuple[str, ...]:
    return (what, window.warehouse, pointer.metadata_location, shown(pointer.identifier), *more)


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


def _number(request: Request, field: str) -> int:
    value = request.query.get(field, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 16 else 0

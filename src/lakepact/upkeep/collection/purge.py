"""Dropped tables whose time is over.

Whoever was dropped without a wish to purge keeps its files for good: only its location is given back. Whoever was to be
purged loses its files, and then its note. The note says that the purge has begun before the first file goes, so nobody
can bring the table back half; and the file that leads to all others goes last, so whoever was interrupted goes on.

A file goes only if it lies in the table's own folder and nothing else leads to it. Of a folder that Lakepact chose, and
that carries the table's id, everything goes; of one that a user chose only what the table leads to.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Final

from lakepact.catalog import Catalog
from lakepact.catalog.dropped import DroppedTable, Life
from lakepact.catalog.errors import NotFound, Refusal
from lakepact.catalog.pointers import Kind, Pointer, shown
from lakepact.catalog.reachable import Reachable, Reached, Why
from lakepact.delta.actions import Add
from lakepact.delta.paths import decode_path
from lakepact.delta.protocol import is_managed
from lakepact.errors import Unreadable
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.files import collects, is_inside, one_spelling
from lakepact.upkeep.collection.references import CannotJudge, References
from lakepact.upkeep.collection.removal import Class, Removal, Remover, Report

_PAGE: Final = 1_000
_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Others:
    """Everything but the tables that are to go."""

    folders: frozenset[str]
    needed: set[str]
    unreadable: list[CannotJudge]
    in_use: dict[str, str]
    """Folders of tables that are dropped, and still looked at; by whom."""


class Purge:
    def __init__(self, catalog: Catalog, references: References, *, retention_s: float) -> None:
        self._catalog = catalog
        self._references = references
        self._retention_ms = int(retention_s * 1000)

    async def run(self, remover: Remover, report: Report) -> None:
        now_ms = self._catalog.parts.clock.confirmed_ms()
        due = [one async for one in self._all() if one.life(now_ms, self._retention_ms) in (Life.EXPIRED, Life.PURGING)]
        for one in due:
            if not one.purge:
                await self._release(one, remover, now_ms)
        await self._purge([one for one in due if one.purge], remover, report, now_ms)

    async def _all(self) -> AsyncIterator[DroppedTable]:
        token: str | None = None
        while True:
            page = await self._catalog.dropped.page(token)
            for one in page.tables:
                yield one
            if page.next_token is None:
                return
            token = page.next_token

    async def _release(self, one: DroppedTable, remover: Remover, now_ms: int) -> None:
        pointer = one.pointer
        why = "dropped without purge, and its retention is over: its files stay, its location is free"
        remover.note(Removal(Class.DROPPED, f"location {pointer.location}", shown(pointer.identifier), why))
        if not remover.dry_run:
            before_ms = now_ms - self._retention_ms
            await self._catalog.collect_step(lambda draft: self._catalog.dropped.release(draft, pointer.id, before_ms))

    async def _purge(self, due: list[DroppedTable], remover: Remover, report: Report, now_ms: int) -> None:
        begun: list[DroppedTable] = []
        for one in due:
            if one.pointer.kind is Kind.VIEW:
                continue
            if remover.dry_run or await self._begin(one.pointer, now_ms):
                begun.append(one)
        if not begun:
            return
        # Only now, when nobody can bring them back, it is looked who else needs their files.
        others = await self._others(begun)
        for unreadable in others.unreadable:
            report.leave("files that an unreadable table may refer to", unreadable)
        for one in begun:
            if others.unreadable and await self._may_be_needed(one.pointer, others):
                report.leave(shown(one.pointer.identifier), "an unreadable table may refer to its files")
                continue
            by = others.in_use.get(one_spelling(one.pointer.location))
            if by is not None:
                report.leave(shown(one.pointer.identifier), f"{by} still looks at it")
                continue
            try:
                await self._purge_one(one.pointer, others, remover)
            except (Refusal, NotFound, Unreadable) as error:
                # Whoever wrote a table may have written anything into its manifests. That is this table's matter alone.
                report.leave(shown(one.pointer.identifier), error)

    async def _begin(self, pointer: Pointer, now_ms: int) -> bool:
        before_ms = now_ms - self._retention_ms
        done = await self._catalog.collect_step(
            lambda draft: self._catalog.dropped.begin_purge(draft, pointer.id, before_ms)
        )
        return bool(done.result["purging"])

    async def _others(self, begun: Iterable[DroppedTable]) -> _Others:
        going = {one.pointer.id: one_spelling(one.pointer.location) for one in begun}
        found = [
            one
            async for one in Reachable(self._catalog.parts).all()
            # What a transaction has seen of a table before it was dropped keeps its files.
            if one.id not in going or one.why not in (Why.DROPPED, Why.PURGING)
        ]
        mirrored = await self._catalog.parts.watch.mirrored(self._catalog.warehouse.name)
        in_use = {one_spelling(one.location): "a mirror" for one in mirrored}
        in_use |= {going[one.id]: f"transaction {one.transaction_id}" for one in found if one.id in going}
        needed = await self._references.needed_by_others(_distinct(found), going.values())
        folders = frozenset(one_spelling(one.location) for one in found if one.id not in going)
        return _Others(folders, needed.paths, needed.unreadable, in_use)

    async def _may_be_needed(self, pointer: Pointer, others: _Others) -> bool:
        """Whether a table that cannot be read may refer to a file in the folder of this one."""
        parts = self._catalog.parts
        folder = parts.warehouse.blob_name(pointer.location)
        after: str | None = None
        while page := await parts.blobs.list(f"{folder}/", after, _PAGE):
            if any(one.may_need(file.modified_ms) for file in page for one in others.unreadable):
                return True
            after = page[-1].name
        return False

    async def _purge_one(self, pointer: Pointer, others: _Others, remover: Remover) -> None:
        name, folder = shown(pointer.identifier), one_spelling(pointer.location)
        document = await self._document(pointer)
        why = "dropped with purge, and its retention is over"

        def goes(path: str) -> bool:
            place = one_spelling(path)
            if not is_inside(place, folder) or place in others.needed or _is_anothers(place, folder, others):
                return False
            return self._has_one_reading(path)

        async for batch in self._candidates(pointer, document):
            await remover.files([Removal(Class.DROPPED, path, name, why) for path in batch if goes(path)])
        if document is not None and goes(pointer.metadata_location):
            await remover.files([Removal(Class.DROPPED, pointer.metadata_location, name, why)])
        if pointer.kind is Kind.DELTA:
            remover.note(Removal(Class.DROPPED, f"rows of {pointer.id}", name, why))
            if not remover.dry_run and self._catalog.parts.rows is not None:
                while await self._catalog.parts.rows.purge(pointer.id, _ROWS):
                    pass
        if not remover.dry_run:
            await self._catalog.collect_step(lambda draft: self._catalog.dropped.end_purge(draft, pointer.id))

    def _has_one_reading(self, path: str) -> bool:
        """Not a place that only looks as if it were inside, such as one with `..` in it."""
        try:
            self._catalog.warehouse.blob_name(path)
        except Refusal:
            return False
        return True

    async def _document(self, pointer: Pointer) -> JsonObject | None:
        """The metadata; None if it has gone, or if there is none in a file."""
        if pointer.kind is Kind.DELTA:
            return None
        try:
            return (await self._catalog.parts.files.of(pointer)).document
        except NotFound:
            return None

    async def _candidates(self, pointer: Pointer, document: JsonObject | None) -> AsyncIterator[list[str]]:
        """What might go, in the order in which it goes. Not the metadata file: it leads to the rest."""
        if pointer.kind is Kind.DELTA:
            async for batch in self._of_delta(pointer):
                yield batch
            return
        if document is None:
            return
        of_table = await self._references.of_table(pointer.metadata_location, document)
        if collects(document):
            yield sorted(of_table.data)
            if _is_its_own(pointer):
                async for batch in self._listed(pointer):
                    yield [path for path in batch if path not in of_table.manifests | of_table.metadata]
        yield sorted(of_table.manifests)
        yield sorted(of_table.metadata)

    async def _of_delta(self, pointer: Pointer) -> AsyncIterator[list[str]]:
        rows = self._catalog.parts.rows
        if rows is None:
            return
        version: int = pointer.summary["version"]
        protocol = (await rows.contents(pointer.id, version)).protocol
        if protocol is None or not is_managed(protocol):
            # Others write it. Only what is known of it here goes.
            return
        if not _is_its_own(pointer):
            paths: set[str] = set()
            for one in await rows.since(pointer.id, -1, version):
                paths.update(decode_path(action.path) for action in one.actions if isinstance(action, Add))
            yield sorted(f"{pointer.location}/{path}" for path in paths if ":" not in path.partition("/")[0])
            async for batch in self._listed(pointer, "/_delta_log/"):
                yield batch
            return
        async for batch in self._listed(pointer):
            yield batch

    async def _listed(self, pointer: Pointer, below: str = "/") -> AsyncIterator[list[str]]:
        """Everything in its folder but its metadata file, page by page."""
        parts = self._catalog.parts
        folder = parts.warehouse.blob_name(pointer.location)
        last = None if pointer.kind is Kind.DELTA else parts.warehouse.blob_name(pointer.metadata_location)
        after: str | None = None
        while True:
            page = await parts.blobs.list(folder + below, after, _PAGE)
            if not page:
                return
            after = page[-1].name
            yield [f"{pointer.location}{one.name[len(folder) :]}" for one in page if one.name != last]


def _is_its_own(pointer: Pointer) -> bool:
    """Whether Lakepact chose the folder for this table alone."""
    return pointer.location.rstrip("/").endswith(f"-{pointer.id}")


def _is_anothers(path: str, folder: str, others: _Others) -> bool:
    """Whether a table that lies deeper owns the place of this file."""
    place = path.rpartition("/")[0]
    while is_inside(place, folder):
        if place in others.folders:
            return True
        place = place.rpartition("/")[0]
    return place in others.folders


def _distinct(found: Iterable[Reached]) -> list[Reached]:
    return list({(one.kind, one.id, one.metadata_location): one for one in found}.values())

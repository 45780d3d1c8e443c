"""What was dropped: it can come back while its files are there, and collection takes it in steps that can be repeated.

A drop leaves a note, `<warehouse>/dropped/<uuid>`, and its location stays its own. From there:

    note                          a drop. `undrop` takes the note away, and the table is back.
    note with `released-ms`       its retention has ended, and nobody asked for its files to go: they stay for ever, and
                                  only its location is given back. It can still come back while that is free.
    note with `purging`           its retention has ended, and its files are being deleted. There is no way back.
    no note                       it is restored, or its files are gone.

Every step compares the note, so a table is restored or purged, never half of both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from lakepact.catalog.announced import owner_of
from lakepact.catalog.cells import Cells
from lakepact.catalog.errors import AlreadyExists, BadRequest, NoSuchTable
from lakepact.catalog.files import MetadataFiles
from lakepact.catalog.keys import Keys
from lakepact.catalog.listing import check_token, page_of
from lakepact.catalog.names import Names, Reads
from lakepact.catalog.namespaces import Namespaces
from lakepact.catalog.overlaps import Folders
from lakepact.catalog.pointers import Change, Kind, Pointer, identifier_json, shown
from lakepact.catalog.tables import already_exists
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.work import Draft
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Value


class Life(StrEnum):
    RESTORABLE = "restorable"
    EXPIRED = "expired"
    """Its retention has ended; collection has not come yet."""

    RELEASED = "released"
    PURGING = "purging"


@dataclass(frozen=True, slots=True)
class DroppedTable:
    """A table or view that was dropped, as its note says."""

    pointer: Pointer
    dropped_ms: int
    purge: bool
    purging: bool = False
    released_ms: int | None = None
    namespace_ids: tuple[str | int | None, ...] = ()
    """Which namespaces it was in, the outermost first: another one that gets the name of one has another id."""

    @classmethod
    def from_json(cls, note: Value) -> Self:
        return cls(
            Pointer.from_json(note),
            note["dropped-ms"],
            bool(note["purge"]),
            bool(note.get("purging")),
            note.get("released-ms"),
            tuple(note.get("namespace-ids", ())),
        )

    def to_json(self) -> Value:
        note: dict[str, object] = {**self.pointer.to_json(), "dropped-ms": self.dropped_ms, "purge": self.purge}
        if self.purging:
            note["purging"] = True
        if self.released_ms is not None:
            note["released-ms"] = self.released_ms
        if self.namespace_ids:
            note["namespace-ids"] = list(self.namespace_ids)
        return note

    def life(self, now_ms: int, retention_ms: int) -> Life:
        if self.purging:
            return Life.PURGING
        if self.released_ms is not None:
            return Life.RELEASED
        return Life.EXPIRED if now_ms >= self.dropped_ms + retention_ms else Life.RESTORABLE


@dataclass(frozen=True, slots=True)
class DroppedPage:
    tables: tuple[DroppedTable, ...]
    next_token: str | None


class Dropped:
    """Plans for what was dropped in one warehouse."""

    def __init__(
        self,
        keys: Keys,
        warehouse: Warehouse,
        names: Names,
        namespaces: Namespaces,
        files: MetadataFiles,
        folders: Folders,
        cells: Cells,
        max_page: int,
    ) -> None:
        self._keys = keys
        self._warehouse = warehouse
        self._names = names
        self._namespaces = namespaces
        self._files = files
        self._folders = folders
        self._cells = cells
        self._max_page = max_page

    async def page(self, token: str | None, size: int | None = None) -> DroppedPage:
        """One page, in no order that means anything. It has a successor only if something follows."""
        prefix, limit = self._keys.all_dropped(), self._max_page if size is None else size
        check_token(token, prefix)
        cells, after = await page_of(
            self._cells.scan, prefix, token, limit, self._max_page, lambda cell: cell.value is not None
        )
        return DroppedPage(tuple(DroppedTable.from_json(cell.value) for cell in cells if cell.value is not None), after)

    async def undrop(
        self, draft: Draft, identifier: Identifier | None, table_id: str | None, target: Identifier | None
    ) -> JsonObject:
        """Bring it back, under the name it had or another. Its files and its history are as they were."""
        found = await self.wanted(draft, identifier, table_id)
        pointer, note = found.pointer, self._keys.dropped(found.pointer.id)
        if found.purging:
            raise BadRequest(
                f"{shown(pointer.identifier)} ({pointer.id}) cannot come back: its files are being deleted"
            )
        name = target or pointer.identifier
        await self._namespaces.enter(draft, name.namespace)
        there = await self._names.find(draft, name)
        if there is not None:
            raise AlreadyExists(
                f"Cannot restore {shown(pointer.identifier)}: {already_exists(there).message}. Rename that one, or "
                f"restore it under another name"
            )
        await self._take_location(draft, pointer)
        await self._check_readable(pointer)
        key, name_key = self._names.pointer_key(pointer), self._keys.name(name)
        [cell, _] = await draft.read(key, name_key)
        if cell.exists:
            # The cells are read one after another: another request restored the table after its note was read.
            raise AlreadyExists(
                f"Cannot restore {shown(pointer.identifier)} ({pointer.id}): another request has restored it already"
            )
        back = replace(pointer, identifier=name, change=Change.UNDROP)
        draft.write(note, None)
        draft.write(name_key, {"kind": pointer.kind, "id": pointer.id})
        draft.write(key, back.to_json())
        return {
            "id": pointer.id,
            "kind": pointer.kind,
            "identifier": identifier_json(name),
            "location": pointer.location,
            "metadata-location": pointer.metadata_location,
        }

    async def wanted(self, draft: Reads, identifier: Identifier | None, table_id: str | None) -> DroppedTable:
        """The one with this id, or the one dropped last under this name."""
        if table_id is not None:
            [cell] = await draft.read(self._keys.dropped(table_id))
            found = None if cell.value is None else DroppedTable.from_json(cell.value)
            if found is None or (identifier is not None and found.pointer.identifier != identifier):
                raise not_dropped(identifier, table_id)
            return found
        assert identifier is not None, "whoever asks names it one way or the other"
        newest: DroppedTable | None = None
        token: str | None = None
        while True:
            page = await self.page(token)
            for one in page.tables:
                if one.pointer.identifier == identifier and (newest is None or one.dropped_ms > newest.dropped_ms):
                    newest = one
            if page.next_token is None:
                break
            token = page.next_token
        if newest is None:
            raise not_dropped(identifier, None)
        # The listing was not part of the plan. The note is.
        return await self.wanted(draft, identifier, newest.pointer.id)

    async def _take_location(self, draft: Draft, pointer: Pointer) -> None:
        if pointer.kind is Kind.VIEW:
            await self._folders.check_view(draft, pointer)
            return
        key = self._location(pointer)
        owner = owner_of(await draft.current(key))
        if owner is None:
            await self._folders.check_restored(draft, pointer)
            draft.write(key, {"id": pointer.id, "location": pointer.location})
        elif owner["id"] != pointer.id:
            raise AlreadyExists(
                f"Cannot restore {shown(pointer.identifier)}: its location {pointer.location} belongs to another table "
                f"by now"
            )

    async def _check_readable(self, pointer: Pointer) -> None:
        """A name that leads to nothing would be worse than no name."""
        match pointer.kind:
            case Kind.TABLE | Kind.VIEW:
                await self._files.of(pointer)
            case Kind.DELTA:
                # Its rows are compared in the step that brings it back.
                pass

    # --- for collection ---

    async def begin_purge(self, draft: Draft, table_id: str, before_ms: int) -> JsonObject:
        """From here on it cannot come back. Only what was to be purged, and was dropped before this time."""
        found = await self._collectable(draft, table_id, before_ms)
        if found is not None and found.purge and not found.purging:
            draft.write(self._keys.dropped(table_id), replace(found, purging=True).to_json())
        return {"purging": found is not None and found.purge}

    async def end_purge(self, draft: Draft, table_id: str) -> JsonObject:
        """Its files are gone: its location is free, and nothing is left of it."""
        governance = self._keys.governance(table_id)
        [cell, said] = await draft.read(self._keys.dropped(table_id), governance)
        if cell.value is not None and (found := DroppedTable.from_json(cell.value)).purging:
            draft.write(self._keys.dropped(table_id), None)
            if said.exists:
                # Its id is free again. What was said about it is not said about who takes that next.
                draft.write(governance, None)
            await self._free_location(draft, found.pointer)
        return {}

    async def release(self, draft: Draft, table_id: str, before_ms: int) -> JsonObject:
        """Its files stay for good; its location is free for others."""
        found = await self._collectable(draft, table_id, before_ms)
        if found is not None and not found.purge and found.released_ms is None:
            draft.write(self._keys.dropped(table_id), replace(found, released_ms=draft.now_ms).to_json())
            await self._free_location(draft, found.pointer)
        return {}

    async def _collectable(self, draft: Draft, table_id: str, before_ms: int) -> DroppedTable | None:
        [cell] = await draft.read(self._keys.dropped(table_id))
        if cell.value is None:
            return None
        found = DroppedTable.from_json(cell.value)
        return found if found.dropped_ms <= before_ms else None

    async def _free_location(self, draft: Draft, pointer: Pointer) -> None:
        if pointer.kind is Kind.VIEW:
            return
        key = self._location(pointer)
        owner = await draft.current(key)
        if owner is not None and owner["id"] == pointer.id:
            draft.write(key, None)

    def _location(self, pointer: Pointer) -> Key:
        return self._keys.location(self._warehouse.blob_name(pointer.location))


def not_dropped(identifier: Identifier | None, table_id: str | None) -> NoSuchTable:
    if table_id is None:
        assert identifier is not None, "whoever asks names it one way or the other"
        what = shown(identifier)
    else:
        what = f"{shown(identifier)} with id {table_id}" if identifier is not None else f"a table {table_id}"
    return NoSuchTable(f"{what} is not among what was dropped; `lakepact dropped` lists it")

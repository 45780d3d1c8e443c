"""Everything that files may be reachable from, page by page: for those who look for files that nothing needs.

A page is not a cut, so the order matters. Open transactions come first: what one of them publishes meanwhile is found
among the tables after that. Notes of dropped tables come before and after the tables: whoever is dropped or restored
once in the meantime is found in one of the two.

Whoever deletes reads all of this after having listed the files, and takes only files of tables that were there before
the listing too, and are there now.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import orjson

from lakepact.catalog.delta_steps import DELTA_CELLS, kept_actions, needed
from lakepact.catalog.delta_tables import RECOVERING
from lakepact.catalog.dropped import DroppedTable
from lakepact.catalog.errors import BadRequest, NoSuchTable
from lakepact.catalog.keys import family_of
from lakepact.catalog.operations import Parts
from lakepact.catalog.overlay import belongs_to
from lakepact.catalog.pointers import Kind, Pointer
from lakepact.catalog.staged import STAGED, StagedNote
from lakepact.delta.actions import Add
from lakepact.delta.ports import MirrorState
from lakepact.delta.protocol import is_managed
from lakepact.delta.retention import deleted_file_retention_ms
from lakepact.errors import SnapshotTooOld, TransactionError
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import State, TransactionRecord

ALIVE: Final = (State.OPEN, State.PREPARING, State.PREPARED, State.RETRYABLE)
"""The states of a transaction that may still be committed, or read in."""

_PHASES: Final = ("transactions", "dropped", "tables", "views", "delta", "dropped-again", "mirrored")
_POINTERS: Final = ("tables", DELTA_CELLS)
_PAGE: Final = 500


class Why(StrEnum):
    LIVE = "live"
    PINNED = "pinned"
    """An open transaction sees the table like this; everybody else sees a later version."""

    STAGED = "staged"
    """An open transaction has made this version, or this location; nobody else sees it yet."""

    DROPPED = "dropped"
    """It can come back."""

    RELEASED = "released"
    """Dropped long ago, without a wish to have its files deleted."""

    MIRRORED = "mirrored"
    """A copy shows the table like this, and may be behind."""

    PURGING = "purging"
    """Dropped, and its files are on their way out. That is not for others to do."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Something that files may be reachable from, or that owns a place."""

    why: Why
    kind: Kind
    id: str
    location: str
    metadata_location: str | None = None
    name: str | None = None
    version: int | None = None
    transaction_id: TransactionId | None = None
    search: bool = False
    """Whether files below its location that nothing needs may be deleted."""

    def to_json(self) -> dict[str, Any]:
        return {
            "why": self.why,
            "kind": self.kind,
            "id": self.id,
            "name": self.name,
            "location": self.location,
            "metadata-location": self.metadata_location,
            "version": self.version,
            "transaction-id": self.transaction_id,
            "search": self.search,
        }


@dataclass(frozen=True, slots=True)
class ReachablePage:
    items: tuple[Reached, ...]
    next_token: str | None


@dataclass(frozen=True, slots=True)
class _Place:
    """How far somebody has come."""

    phase: str = _PHASES[0]
    after: str | None = None
    inside: str | None = None
    """Of a transaction: what it sees is looked at, in pages."""

    family: str = _POINTERS[0]
    cursor: str | None = None

    def token(self) -> str:
        fields = [self.phase, self.after, self.inside, self.family, self.cursor]
        return base64.urlsafe_b64encode(orjson.dumps(fields)).decode()

    @classmethod
    def of(cls, token: str | None) -> _Place:
        if not token:
            return cls()
        try:
            place = cls(*orjson.loads(base64.urlsafe_b64decode(token)))
        except (ValueError, TypeError):
            place = None
        if place is None or place.phase not in _PHASES or place.family not in _POINTERS:
            raise BadRequest("the page token is none that this server gave; begin again without one")
        return place


class Reachable:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def page(self, token: str | None = None) -> ReachablePage:
        """The next page. It may be empty and still have a successor."""
        place = _Place.of(token)
        match place.phase:
            case "transactions":
                items, following = await self._transactions(place)
            case "tables" | "views" | "delta":
                items, following = await self._pointers(place)
            case "mirrored":
                items, following = await self._mirrored(), None
            case _:
                items, following = await self._dropped(place)
        if following is None and place.phase != _PHASES[-1]:
            following = _Place(_PHASES[_PHASES.index(place.phase) + 1])
        return ReachablePage(tuple(items), None if following is None else following.token())

    async def all(self) -> AsyncIterator[Reached]:
        """Page after page. What two pages name twice comes twice."""
        token: str | None = None
        while True:
            page = await self.page(token)
            for one in page.items:
                yield one
            if page.next_token is None:
                return
            token = page.next_token

    # --- what everybody sees ---

    async def _pointers(self, place: _Place) -> tuple[list[Reached], _Place | None]:
        parts = self._parts
        page = await parts.store.scan(parts.keys.all_pointers(place.phase), place.after, _PAGE)
        pointers = [Pointer.from_json(cell.value) for cell in page.cells if cell.value is not None]
        found = [_reached(Why.LIVE, one, search=await self._may_search(one)) for one in pointers]
        return found, None if page.after is None else _Place(place.phase, page.after)

    async def _may_search(self, pointer: Pointer) -> bool:
        if pointer.kind is not Kind.DELTA:
            return pointer.kind is Kind.TABLE
        if RECOVERING in pointer.summary:
            # Versions that are still to come need files that those that are there do not name.
            return False
        # Files of a table that others write, or that other files say more about, are not judged by its adds alone.
        contents = await needed(self._parts.rows).contents(pointer.id, pointer.summary["version"])
        protocol = contents.protocol
        if protocol is None or not is_managed(protocol):
            return False
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        return features.isdisjoint({"deletionVectors", "changeDataFeed"})

    async def _dropped(self, place: _Place) -> tuple[list[Reached], _Place | None]:
        parts = self._parts
        page = await parts.store.scan(parts.keys.all_dropped(), place.after, _PAGE)
        found: list[Reached] = []
        for cell in page.cells:
            if cell.value is not None:
                one = DroppedTable.from_json(cell.value)
                why = Why.PURGING if one.purging else Why.RELEASED if one.released_ms is not None else Why.DROPPED
                found.append(_reached(why, one.pointer))
        return found, None if page.after is None else _Place(place.phase, page.after)

    async def _mirrored(self) -> list[Reached]:
        # A copy of a Delta table is found by how far it has come: see `delta_files`.
        return [
            Reached(Why.MIRRORED, Kind.TABLE, one.metadata_location, one.location, one.metadata_location)
            for one in await self._parts.watch.mirrored(self._parts.warehouse.name)
            if not one.delta
        ]

    # --- what only an open transaction sees ---

    async def _transactions(self, place: _Place) -> tuple[list[Reached], _Place | None]:
        if place.inside is not None:
            return await self._seen_inside(place)
        page = await self._parts.store.transactions(ALIVE, after=place.after, limit=1)
        following = None if page.after is None else _Place(place.phase, page.after)
        for record in page.transactions:
            if belongs_to(record, self._parts.warehouse.name):
                return await self._staged(record), _Place(place.phase, page.after, inside=record.id)
        return [], following

    async def _staged(self, record: TransactionRecord) -> list[Reached]:
        try:
            writes = (await self._parts.store.contents(record.id)).writes
        except TransactionError:
            return []
        found: list[Reached] = []
        for write in writes:
            value, family = write.value, family_of(write.key)
            if value is None:
                continue
            if family == "locations":
                place = value["location"]
                found.append(Reached(Why.STAGED, Kind.TABLE, str(value["id"]), place, transaction_id=record.id))
            if family not in ("tables", "views", DELTA_CELLS):
                continue
            pointer = Pointer.from_json(value)
            found.append(_reached(Why.STAGED, pointer, transaction_id=record.id))
            if family == "tables" and STAGED in value:
                base = StagedNote.from_json(value[STAGED]).base_location
                if base is not None:
                    found.append(_reached(Why.PINNED, pointer, metadata_location=base, transaction_id=record.id))
        return found

    async def _seen_inside(self, place: _Place) -> tuple[list[Reached], _Place | None]:
        """A page of what an open transaction sees and others do not see any more."""
        parts, transaction_id = self._parts, TransactionId(place.inside or "")
        following = None if place.after is None else _Place(place.phase, place.after)
        try:
            page = await parts.store.scan_in(transaction_id, parts.keys.all_pointers(place.family), place.cursor, _PAGE)
        except (TransactionError, SnapshotTooOld):
            # It has ended, or cannot read what it saw any more.
            return [], following
        now = await parts.store.read([cell.key for cell in page.cells])
        found = [
            _reached(Why.PINNED, Pointer.from_json(cell.value), transaction_id=transaction_id)
            for cell in page.cells
            if cell.value is not None and cell.writer != transaction_id and now[cell.key].revision != cell.revision
        ]
        if page.after is not None:
            return found, _Place(place.phase, place.after, place.inside, place.family, page.after)
        if place.family != _POINTERS[-1]:
            return found, _Place(place.phase, place.after, place.inside, _POINTERS[-1])
        return found, following

    # --- the files of a Delta table ---

    async def delta_files(self, table_id: str, keep_ms: int) -> list[str]:
        """The files that any version of the last `keep_ms` needs, or any open transaction, as their adds say it."""
        parts, rows = self._parts, needed(self._parts.rows)
        key = parts.keys.delta(table_id)
        seen, staged = await self._versions_inside(table_id, key)
        cell = (await parts.store.read([key]))[key]
        note = (await parts.store.read([parts.keys.dropped(table_id)]))[parts.keys.dropped(table_id)]
        value = cell.value if cell.value is not None else note.value
        if value is None:
            if not seen and not staged:
                raise NoSuchTable(f"there is no Delta table with id {table_id}")
            current = max(seen, default=-1)
        else:
            current = int(value["version"])
        keep_ms = max(keep_ms, await self._retention_ms(table_id, current))
        first = await rows.version_at(table_id, parts.clock.confirmed_ms() - keep_ms)
        copies = [
            row.mirrored_version
            for row in await rows.mirror_status(table_id=table_id)
            if row.state is not MirrorState.OFF and row.mirrored_version >= 0
        ]
        begin = min([-1 if first is None else first, *seen, *copies])
        found = {one.path for one in await rows.files(table_id, begin)} if begin >= 0 else set()
        for version in await rows.since(table_id, begin, current):
            found.update(action.path for action in version.actions if isinstance(action, Add))
        return sorted(found | staged)

    async def _retention_ms(self, table_id: str, version: int) -> int:
        """For how long the table itself wants to keep removed files."""
        metadata = (await needed(self._parts.rows).contents(table_id, version)).metadata
        return deleted_file_retention_ms({} if metadata is None else metadata.configuration)

    async def _versions_inside(self, table_id: str, key: Key) -> tuple[list[int], set[str]]:
        """The versions at which open transactions see a table, and the files that they have staged for it."""
        parts, rows = self._parts, needed(self._parts.rows)
        versions: list[int] = []
        staged: set[str] = set()
        async for record in alive(parts):
            texts = (await rows.staged(record.id)).get(table_id, {})
            for text in texts.values():
                staged.update(action.path for action in kept_actions(text) if isinstance(action, Add))
            try:
                cell = (await parts.store.read_in(record.id, [key], note=False))[key]
            except (TransactionError, SnapshotTooOld):
                continue
            if cell.value is not None and cell.writer != record.id:
                versions.append(int(cell.value["version"]))
            elif cell.value is not None and STAGED in cell.value:
                versions.append(int(cell.value[STAGED]["base-version"]))
        return [one for one in versions if one >= 0], staged


async def alive(parts: Parts) -> AsyncIterator[TransactionRecord]:
    """The transactions of this warehouse that have not ended."""
    after: str | None = None
    while True:
        page = await parts.store.transactions(ALIVE, after=after, limit=_PAGE)
        for record in page.transactions:
            if belongs_to(record, parts.warehouse.name):
                yield record
        if page.after is None:
            return
        after = page.after


def _reached(
    why: Why,
    pointer: Pointer,
    *,
    search: bool = False,
    metadata_location: str | None = None,
    transaction_id: TransactionId | None = None,
) -> Reached:
    return Reached(
        why,
        pointer.kind,
        pointer.id,
        pointer.location,
        metadata_location or pointer.metadata_location,
        ".".join((*pointer.identifier.namespace, pointer.identifier.name)),
        pointer.summary.get("version") if pointer.kind is Kind.DELTA else None,
        transaction_id,
        search,
    )

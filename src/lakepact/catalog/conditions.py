"""What must hold at the instant at which a transaction is published, whether or not the transaction has read it.

Under snapshot isolation what was read may have moved. But what is created needs a namespace that stays, an id that
nothing else has and a folder that is in nobody's; what is dropped must not be protected, and leaves neither a child nor
a grant behind. All of it is looked at when it is published, and becomes a dependency of the commit: if it moves in
between, it is looked at again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from lakepact.access import Scope
from lakepact.catalog.announced import announce, is_announced, owner_of, withdraw
from lakepact.catalog.errors import CommitFailed, NamespaceNotEmpty
from lakepact.catalog.governance import refuse_protected
from lakepact.catalog.grants import refuse_granted
from lakepact.catalog.ids import beside
from lakepact.catalog.keys import family_of, last_segment, namespace_of
from lakepact.catalog.namespaces import MARK, children_of, without_mark
from lakepact.catalog.operations import Parts
from lakepact.catalog.overlaps import Folders, Sees, is_own_folder, overlap_message, overlapping_in
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer
from lakepact.errors import Contended
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Transaction, Value, Write

Mark: TypeAlias = Callable[[Sequence[str], str], Awaitable[None]]

_POINTERS: Final = frozenset(FAMILIES.values())


class Conditions:
    def __init__(self, parts: Parts, mark: Mark) -> None:
        """`mark` puts a mark on a namespace that is to be dropped, in a transaction of its own."""
        self._parts = parts
        self._mark = mark

    async def secure(self, sealed: Transaction, writes: dict[Key, Write], reads: dict[Key, int], sees: Sees) -> None:
        """Look at all that these writes need, and add it to what the commit depends on. Raises what refuses them.

        `sees`: whether a refusal may name this table.
        """
        keys, grants = self._parts.keys, self._parts.grants
        created = [key for key, write in writes.items() if write.value is not None]
        dropped = [key for key, write in writes.items() if write.value is None and write.revision > 0]
        namespaces = [key for key in dropped if family_of(key) == "namespaces"]
        for key in namespaces:
            writes[key] = await self._marked(sealed, writes[key], writes)
        parents = dict.fromkeys(parent for key in created if (parent := keys.parent(key)) is not None)
        new = [key for key in created if writes[key].revision == 0 and family_of(key) in _POINTERS]
        said = {keys.governance(last_segment(key)): key for key in dropped if family_of(key) in _POINTERS}
        held = dict.fromkeys(grants.holding(Scope.namespace(namespace_of(key))) for key in namespaces)
        places = [_place(writes[key]) for key in created if family_of(key) == "locations" or _is_new_view(writes[key])]
        places += [_place(write) for write in await self._moved_views(writes)]
        folders = {key: place for place in places for key in Folders(self._parts).keys(place.location)}
        looked = (*parents, *beside(keys, new), *folders, *said, *held)
        # Folders are read again even if the transaction has read them: a note there has to be removed, and one that
        # came and went is no conflict.
        wanted = [key for key in looked if key not in writes and (key not in reads or key in folders)]
        found = await self._parts.store.read(wanted) if wanted else {}
        for key, cell in found.items():
            if key in parents:
                _stay(cell, writes, reads)
                continue
            if key in said:
                _refuse_protected(cell, writes[keys.dropped(last_segment(key))])
            elif key in held:
                for namespace in namespaces:
                    refuse_granted(namespace_of(namespace), cell)
            elif key in folders and is_announced(cell.value):
                writes[key] = Write(key, cell.revision, None)
                continue
            elif key in folders:
                await self._refuse_inside(cell, folders[key], sees)
            elif cell.exists:
                raise CommitFailed(f"the uuid {last_segment(key)} was given to another table or view meanwhile")
            reads[key] = cell.revision
        await self._check_around(writes, sees)

    def rechecked(self, sealed: Transaction) -> set[Key]:
        """Return the location cells that `secure` reads again: a plan may be made again although they have moved."""
        placed = [write for write in sealed.writes if write.value is not None and _has_location(write)]
        rechecked: set[Key] = set()
        for place in map(_place, placed):
            own, *above = Folders(self._parts).keys(place.location)
            rechecked.update(above if is_own_folder(place.location, place.id) else [own, *above])
        return rechecked

    async def _moved_views(self, writes: Mapping[Key, Write]) -> list[Write]:
        """Return the writes that give an existing view another location."""
        views = [write for write in writes.values() if _is_view(write) and write.revision > 0]
        cells = await self._parts.store.read([write.key for write in views]) if views else {}
        return [write for write in views if _location(cells[write.key].value) != _location(write.value)]

    async def _check_around(self, writes: dict[Key, Write], sees: Sees) -> None:
        """Refuse a location around others: they may have come since it was staged, or with the same transaction."""
        planned = {key: write.value for key, write in writes.items()}
        for key, write in list(writes.items()):
            if family_of(key) != "locations" or write.value is None:
                continue
            place = _place(write)
            if not is_own_folder(place.location, place.id):
                announced = await self._announced(write, place, sees)
                if announced is not None:
                    writes[key] = replace(write, revision=announced.revision)
                other = await overlapping_in(self._parts, place.location, (place.id,), ("locations", "views"), planned)
                if other is not None:
                    if announced is not None:
                        await withdraw(self._parts, announced)
                    raise CommitFailed(await overlap_message(self._parts, place.location, other, sees))

    async def _announced(self, write: Write, place: _Place, sees: Sees) -> Cell | None:
        """Announce the location if nobody owns it. Return its cell; None: it has an owner."""
        cell = (await self._parts.store.read([write.key]))[write.key]
        owner = owner_of(cell.value)
        if owner is not None:
            # Nothing comes inside a location that has an owner. It must be the one that the transaction has seen.
            if cell.revision == write.revision:
                return None
            if owner["id"] == place.id:
                raise CommitFailed(f"location {place.location} was changed by another request meanwhile; run it again")
            raise CommitFailed(await overlap_message(self._parts, place.location, owner, sees))
        announced = await announce(self._parts, cell, place.location)
        if announced is None:
            raise Contended(
                f"others are taking location {place.location} or giving it up; commit the transaction again"
            )
        return announced

    async def _refuse_inside(self, folder: Cell, place: _Place, sees: Sees) -> None:
        """Of several tables in one folder, any will do: if it belongs to another table, none may be there."""
        if folder.value is not None and folder.value["id"] != place.id:
            raise CommitFailed(await overlap_message(self._parts, place.location, folder.value, sees))

    async def _marked(self, sealed: Transaction, write: Write, writes: Mapping[Key, Write]) -> Write:
        cell = (await self._parts.store.read([write.key]))[write.key]
        if cell.value is None:
            raise CommitFailed(f"namespace {last_segment(write.key)} was dropped meanwhile")
        namespace = tuple(cell.value["namespace"])
        expected = write.revision
        if cell.value.get(MARK) != sealed.id:
            if cell.revision != write.revision:
                raise CommitFailed(f"namespace {'.'.join(namespace)} was changed meanwhile")
            await self._mark(namespace, sealed.id)
            cell = (await self._parts.store.read([write.key]))[write.key]
            expected = write.revision + 1
        gone = {key for key, planned in writes.items() if planned.value is None}
        if cell.value is None or cell.value.get(MARK) != sealed.id or cell.revision < expected:
            raise CommitFailed(f"namespace {'.'.join(namespace)} was changed meanwhile")
        async for child in children_of(self._parts.keys, self._parts.store.scan, namespace):
            if child not in gone:
                raise NamespaceNotEmpty(f"Namespace {'.'.join(namespace)} is not empty: others have created in it")
        return Write(write.key, cell.revision, None)


def _stay(namespace: Cell, writes: dict[Key, Write], reads: dict[Key, int]) -> None:
    if namespace.value is None:
        raise CommitFailed(f"namespace {last_segment(namespace.key)} was dropped meanwhile")
    if MARK in namespace.value:
        # Somebody means to drop it. Whoever creates in it takes the mark away, and so sends them back to looking.
        writes[namespace.key] = Write(namespace.key, namespace.revision, without_mark(namespace))
    else:
        reads[namespace.key] = namespace.revision


@dataclass(frozen=True, slots=True)
class _Place:
    location: str
    id: str


def _place(write: Write) -> _Place:
    value = write.value or {}
    return _Place(value["location"], value.get("id") or value["uuid"])


def _has_location(write: Write) -> bool:
    return family_of(write.key) == "locations" or _is_view(write)


def _is_view(write: Write) -> bool:
    return family_of(write.key) == FAMILIES[Kind.VIEW] and write.value is not None


def _is_new_view(write: Write) -> bool:
    return _is_view(write) and write.revision == 0


def _location(pointer: Value | None) -> object:
    return None if pointer is None else pointer["location"]


def _refuse_protected(governance: Cell, note: Write) -> None:
    """The note has the name by which it was dropped: where it is by now may be out of sight."""
    assert note.value is not None, "what is dropped leaves a note"
    refuse_protected(Pointer.from_json(note.value), governance.value)

"""Path overlap check: the location of a table contains no other table or view, and lies in no other table's location.

Both directions are checked when a table is created, registered, moved, imported or restored:

- A location inside another one: the requester depends on the location cells of all folders above, so this holds at the
  instant of the commit.
- A location around others: `locations` and `views` are scanned, when the plan is made and again when an open
  transaction is published. The location is announced before the scan (`announced`), so this holds at the instant of the
  commit too. A folder whose name ends in the uuid of its table needs neither: `Warehouse` lets nothing lie below such a
  folder. Only principals with the role manage on the warehouse may choose any other location.

Views own no location, and lie in no table's; nor does a table write into another's (`check_paths`).

A refusal names the other table only to a requester who may see it. These checks run last, after authorization.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from lakepact.catalog.announced import announce, is_announced, owner_of, withdraw
from lakepact.catalog.errors import BadRequest, CommitFailed
from lakepact.catalog.ids import cells_of
from lakepact.catalog.keys import family_of
from lakepact.catalog.pointers import Kind, Pointer, shown
from lakepact.catalog.warehouse import LOCATION_PROPERTIES, is_of_a_table
from lakepact.catalog.work import Draft
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.locations import without_trailing_slash
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Cell, Value

if TYPE_CHECKING:
    from lakepact.catalog.operations import Parts

Sees: TypeAlias = Callable[[Pointer], bool]

_OWNED: Final = ("locations", "views")
"""Who owns which location, and where views are."""

_TAKEN: Final = (*_OWNED, "staged")
"""Those, and what open transactions have begun."""

_LEFT: Final = ("dropped",)
"""What dropped tables have left behind, also where their location is free."""


class Folders:
    """Which location a table or view may take."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def claim(self, draft: Draft, pointer: Pointer, *, returns: bool = True) -> None:
        """Take the location of this table, unless it overlaps another one: files of one would be orphans of the other.

        `returns`: the table may have been here before.
        """
        self._parts.warehouse.check_alone(pointer.location)
        [key, *above] = self.keys(pointer.location)
        await draft.read(key, *above)
        owner = owner_of(await draft.current(key))
        other = owner if owner is not None and owner["id"] != pointer.id else None
        gives_way = other is not None and await self._gives_way(draft, other["id"], pointer)
        draft.write(key, {"id": pointer.id, "location": pointer.location})
        if other is not None and not gives_way:
            draft.check_last(partial(self._refuse, draft, pointer.location, other))
        self._check_free(draft, above, pointer.location, pointer.id)
        if owner is None or other is not None:
            skipped = (pointer.id, other["id"] if other is not None else None)
            draft.check_last(partial(self._check_inside, draft, pointer, skipped, returns=returns))

    async def release(self, draft: Draft, pointer: Pointer) -> None:
        key = self.key(pointer.location)
        owner = await draft.current(key)
        if owner is not None and owner["id"] == pointer.id:
            draft.write(key, None)

    async def check_staged(self, draft: Draft, identifier: Identifier, location: str, id: str) -> None:
        """Refuse a location that a client asks for before it creates the table. Nothing is taken."""
        self._parts.warehouse.check_alone(location)
        [key, *above] = self.keys(location)
        await draft.read(key, *above)
        owner = owner_of(await draft.current(key))
        dropped_id = None
        if owner is not None and await self._dropped_under_name(draft, owner["id"], Kind.TABLE, identifier) is not None:
            dropped_id = owner["id"]
        self._check_free(draft, above if dropped_id else [key, *above], location, id, creates=False)
        if not is_own_folder(location, id):
            other = await overlapping_in(self._parts, location, (id, dropped_id), _OWNED, draft.writes)
            if other is not None:
                await self._refuse(draft, location, other)

    async def check_view(self, draft: Draft, view: Pointer) -> None:
        """Refuse a view inside the location of a table. A view owns no location, so it must not be a table's either."""
        self._parts.warehouse.check_alone(view.location)
        keys = self.keys(view.location)
        await draft.read(*keys)
        self._check_free(draft, keys, view.location, view.id)

    def check_paths(self, draft: Draft, pointer: Pointer, metadata: JsonObject, before: JsonObject) -> None:
        """Refuse to write into another table's location. Costs nothing where a table writes into its own."""
        old, new = before.get("properties") or {}, metadata.get("properties") or {}
        for path in {new[name] for name in LOCATION_PROPERTIES if name in new and new[name] != old.get(name)}:
            name, own = (self._parts.warehouse.blob_name(one) for one in (path, pointer.location))
            if not f"{name}/".startswith(f"{own}/"):
                self._check_free(draft, self.keys(path), path, pointer.id, creates=False)

    def _check_free(
        self, draft: Draft, folders: Sequence[Key], location: str, id: str, *, creates: bool = True
    ) -> None:
        """Refuse, after authorization, a location in one of these folders if another table owns it.

        `creates`: a table or view comes to be there. Another request that has announced one of the folders has to scan
        again.
        """

        async def check() -> None:
            await draft.read(*folders)
            for key in folders:
                value = await draft.current(key)
                if is_announced(value):
                    if creates and not draft.is_staged:
                        draft.write(key, None)
                elif value is not None and value["id"] != id:
                    await self._refuse(draft, location, value)
                # A table that takes that folder at the same moment takes it around this location.
                draft.depend_on(key)

        draft.check_last(check)

    async def _check_inside(
        self, draft: Draft, pointer: Pointer, skipped: Collection[str | None], *, returns: bool
    ) -> None:
        """Refuse a location around others.

        Where a table returns to a location, open transactions count too: credentials that it had may still be in use,
        and must not reach what has come since.
        """
        if is_own_folder(pointer.location, pointer.id):
            return
        families = _TAKEN if returns else _OWNED
        announced = await self._announced(draft, pointer.location)
        other = await overlapping_in(self._parts, pointer.location, skipped, families, draft.writes)
        if other is None:
            return
        if announced is not None:
            draft.seen[announced.key] = await withdraw(self._parts, announced)
        await self._refuse(draft, pointer.location, other)

    async def _announced(self, draft: Draft, location: str) -> Cell | None:
        """Announce a location that nobody owns, before the scan. Return its cell; None: there is no note to withdraw.

        Publishing does the same for what an open transaction has staged.
        """
        key = self.key(location)
        [cell] = await draft.read(key)
        if draft.is_staged or owner_of(cell.value) is not None:
            return None
        announced = await announce(self._parts, cell, location)
        if announced is None:
            # The cell has moved, so the plan is made again.
            raise CommitFailed(f"others are taking location {location} or giving it up; try again")
        draft.seen[key] = announced
        return announced

    async def check_restored(self, draft: Draft, pointer: Pointer) -> None:
        """The location of a table that is restored, if nobody has it: nothing may have come around or inside it."""
        self._parts.warehouse.check_alone(pointer.location)
        [_, *above] = self.keys(pointer.location)
        self._check_free(draft, above, pointer.location, pointer.id)
        draft.check_last(partial(self._check_inside, draft, pointer, (pointer.id,), returns=True))

    async def _refuse(self, draft: Draft, location: str, other: Value) -> None:
        raise BadRequest(await overlap_message(self._parts, location, other, draft.sees))

    async def _gives_way(self, draft: Draft, owner_id: str, pointer: Pointer) -> bool:
        """Whoever makes a table anew, under the name and in the folder of one that was dropped, means its folder.

        The dropped one keeps its files for good, and can come back once the folder is free. Not for Delta: there would
        be two logs in one folder.
        """
        note = await self._dropped_under_name(draft, owner_id, pointer.kind, pointer.identifier)
        if note is None:
            return False
        draft.write(self._parts.keys.dropped(owner_id), {**note, "purge": False, "released-ms": draft.now_ms})
        return True

    async def _dropped_under_name(
        self, draft: Draft, owner_id: str, kind: Kind, identifier: Identifier
    ) -> JsonObject | None:
        """Return the note of a dropped Iceberg table that had this name, unless its files are being deleted."""
        note = await draft.current(self._parts.keys.dropped(owner_id))
        if note is None or note.get("purging") or kind is not Kind.TABLE:
            return None
        before = Pointer.from_json(note)
        return dict(note) if (before.kind, before.identifier) == (kind, identifier) else None

    def keys(self, location: str) -> list[Key]:
        """The cells that say whose folder this is, and whose those are that it lies in."""
        levels = self._parts.warehouse.blob_name(location).split("/")
        return [self._parts.keys.location("/".join(levels[:count])) for count in range(len(levels), 0, -1)]

    def key(self, location: str) -> Key:
        """The cell that says whose folder this is."""
        return self._parts.keys.location(self._parts.warehouse.blob_name(location))


async def overlap_message(parts: Parts, location: str, other: Value, sees: Sees) -> str:
    """Why a location is refused. `other`: the cell of the location, view or staged table that it overlaps.

    The other table is named only if the requester may see it.
    """
    id = str(other.get("id") or other.get("uuid") or "")
    pointer = None
    dropped = False
    if id:
        keys = cells_of(parts.keys, id)
        cells = await parts.store.read(keys)
        values = {key: cells[key].value for key in keys}
        pointer = next((Pointer.from_json(value) for value in values.values() if value is not None), None)
        dropped = values[keys[-1]] is not None
    if pointer is None or not sees(pointer):
        return (
            f"location {location} overlaps the location of another table or view. Choose another location, or leave "
            f"the location out"
        )
    kind = "view" if pointer.kind is Kind.VIEW else "table"
    todo = "Undrop that table, wait until its files are deleted, or choose" if dropped else "Choose"
    return (
        f"location {location} overlaps {other['location']}, the location of {kind} {shown(pointer.identifier)} ({id})"
        f"{', which was dropped' if dropped else ''}. {todo} another location, or leave the location out"
    )


def is_own_folder(location: str, uuid: str) -> bool:
    """Whether this folder was made for this table, so that nothing else can lie in it."""
    location = without_trailing_slash(location)
    return is_of_a_table(location) and location.endswith(f"-{uuid.lower()}")


async def overlapping(parts: Parts, location: str, uuid: str) -> str | None:
    """The location of another table or view that this one shares files with; None: there is none."""
    if is_own_folder(location, uuid):
        return None
    other = await overlapping_in(parts, location, (uuid,), (*_TAKEN, *_LEFT), {})
    return None if other is None else str(other["location"])


async def overlapping_in(
    parts: Parts,
    location: str,
    own: Collection[str | None],
    families: Sequence[str],
    planned: Mapping[Key, Value | None],
) -> Value | None:
    """The cell of a table or view, other than `own`, whose location overlaps this one.

    `planned` are writes of the same commit: they count instead of what the store holds.
    """
    here = _folder(parts, location)
    for family in families:
        written = {key: value for key, value in planned.items() if family_of(key) == family}
        async for value in _locations(parts, family, written):
            there = _folder(parts, value["location"])
            id = value.get("id") or value.get("uuid") or ""
            # An older release has not noted for which table a transaction has begun a location.
            is_own = (id == "" and there == here) or id in own
            if not is_own and (there.startswith(here) or here.startswith(there)):
                return value
    return None


def _folder(parts: Parts, location: str) -> str:
    """A location in the one spelling that is compared. One that an older release accepted is compared as it is."""
    try:
        return f"{parts.warehouse.blob_name(location)}/"
    except BadRequest:
        return f"{without_trailing_slash(location)}/"


async def _locations(parts: Parts, family: str, written: Mapping[Key, Value | None]) -> AsyncIterator[Value]:
    for value in written.values():
        if value is not None and "location" in value:
            yield value
    after = None
    while True:
        page = await parts.store.scan(key_of(parts.warehouse.name, family), after, parts.settings.max_page)
        for cell in page.cells:
            owner = owner_of(cell.value)
            if owner is not None and "location" in owner and cell.key not in written:
                yield owner
        if page.after is None:
            return
        after = page.after

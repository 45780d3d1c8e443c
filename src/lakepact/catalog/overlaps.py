"""Whether a table's folder is its own: that no other table lies in it, nor it in another's.

Nothing comes to lie in a table's folder (`Folders.check`): whoever takes a place depends on the cells of all folders
above it, so of two that would lie one inside the other at most the inner one can have come first. And a folder whose
name ends in the uuid of its table is not even asked about: `Warehouse` lets nothing lie below such a one. Views own no
folder, and lie in no table's; nor does a table write into another's (`check_paths`).

What was there before a folder was taken is looked for when it matters: when a credential is made for a folder that a
client chose, and when a table comes back to one that it had left (`overlapping`). From then on nothing can come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from lakepact.catalog.errors import BadRequest
from lakepact.catalog.pointers import Kind, Pointer, shown
from lakepact.catalog.warehouse import LOCATION_PROPERTIES, is_of_a_table
from lakepact.catalog.work import Draft
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.locations import without_trailing_slash
from lakepact.kernel.keys import Key, key_of

if TYPE_CHECKING:
    from lakepact.catalog.operations import Parts

_TAKEN: Final = ("locations", "views", "staged")
"""Who owns which location, where views are, what open transactions have begun."""

_LEFT: Final = ("dropped",)
"""What dropped tables have left behind, also where their location is free."""


class Folders:
    """Who may come to lie where."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def claim(self, draft: Draft, pointer: Pointer, *, returns: bool = True) -> None:
        """No two tables share a location, nor lie one inside the other: one's files would be the other's orphans.

        `returns`: the table may have been here before.
        """
        await self.check(draft, pointer)
        key = self.key(pointer.location)
        owner = await draft.current(key)
        if owner is not None and owner["id"] != pointer.id and not await self._gives_way(draft, owner["id"], pointer):
            # Not a 409: clients take that for a name that is taken and say so, or try the same again.
            raise BadRequest(f"location {pointer.location} {await self._whose(draft, owner['id'])}")
        if returns and (owner is None or owner["id"] != pointer.id):
            await self.check_again(pointer, owner["id"] if owner is not None else None)
        draft.write(key, {"id": pointer.id, "location": pointer.location})

    async def release(self, draft: Draft, pointer: Pointer) -> None:
        key = self.key(pointer.location)
        owner = await draft.current(key)
        if owner is not None and owner["id"] == pointer.id:
            draft.write(key, None)

    async def check(self, draft: Draft, pointer: Pointer) -> None:
        """Refuse a place inside of another table's folder. Reads the cell of the place itself too, in one round."""
        self._parts.warehouse.check_alone(pointer.location)
        await draft.read(*self.keys(pointer.location))
        [_, *above] = self.keys(pointer.location)
        await self._check_free(draft, above, pointer.location, pointer.id)

    async def check_view(self, draft: Draft, view: Pointer) -> None:
        """The same for a view. It owns no folder, so its place must not be a table's either."""
        self._parts.warehouse.check_alone(view.location)
        await self._check_free(draft, self.keys(view.location), view.location, view.id)

    def check_paths(self, draft: Draft, pointer: Pointer, metadata: JsonObject, before: JsonObject) -> None:
        """Refuse to write into another table's folder. Costs nothing where a table writes into its own."""
        old, new = before.get("properties") or {}, metadata.get("properties") or {}
        for path in {new[name] for name in LOCATION_PROPERTIES if name in new and new[name] != old.get(name)}:
            name, own = (self._parts.warehouse.blob_name(one) for one in (path, pointer.location))
            if not f"{name}/".startswith(f"{own}/"):
                draft.check_last(partial(self._check_free, draft, self.keys(path), path, pointer.id))

    async def _check_free(self, draft: Draft, folders: Sequence[Key], place: str, id: str) -> None:
        await draft.read(*folders)
        for key in folders:
            owner = await draft.current(key)
            if owner is not None and owner["id"] != id:
                raise inside_of_another(place, owner["location"])
            # Whoever takes that folder at the same moment takes it around this place.
            draft.depend_on(key)

    async def check_again(self, pointer: Pointer, gives_way: str | None = None) -> None:
        """Refuse a place around others for a table that may have been there before.

        Credentials that it had then may be remembered, and must not reach what has come since. `gives_way`: the id of a
        dropped table that leaves the place to this one.
        """
        if is_own_folder(pointer.location, pointer.id):
            return
        other = await _overlapping(self._parts, pointer.location, (pointer.id, gives_way), _TAKEN)
        if other is not None:
            raise BadRequest(
                f"location {pointer.location} and {other} of another table lie one inside the other by now. Choose "
                f"another location"
            )

    async def _gives_way(self, draft: Draft, owner_id: str, pointer: Pointer) -> bool:
        """Whoever makes a table anew, under the name and in the folder of one that was dropped, means its folder.

        The dropped one keeps its files for good, and can come back once the folder is free. Not for Delta: there would
        be two logs in one folder.
        """
        key = self._parts.keys.dropped(owner_id)
        note = await draft.current(key)
        if note is None or note.get("purging") or pointer.kind is not Kind.TABLE:
            return False
        before = Pointer.from_json(note)
        if (before.kind, before.identifier) != (pointer.kind, pointer.identifier):
            return False
        draft.write(key, {**note, "purge": False, "released-ms": draft.now_ms})
        return True

    async def _whose(self, draft: Draft, owner_id: str) -> str:
        note = await draft.current(self._parts.keys.dropped(owner_id))
        if note is None:
            return "belongs to another table. Choose another, or leave the location out"
        return (
            f"is kept for {shown(Pointer.from_json(note).identifier)} ({owner_id}), which was dropped: undrop that, "
            f"choose another location, or wait until it is collected"
        )

    def keys(self, location: str) -> list[Key]:
        """The cells that say whose folder this is, and whose those are that it lies in."""
        levels = self._parts.warehouse.blob_name(location).split("/")
        return [self._parts.keys.location("/".join(levels[:count])) for count in range(len(levels), 0, -1)]

    def key(self, location: str) -> Key:
        """The cell that says whose folder this is."""
        return self._parts.keys.location(self._parts.warehouse.blob_name(location))


def inside_of_another(location: str, other: str) -> BadRequest:
    return BadRequest(
        f"{location} lies in {other}, the folder of another table: whoever may reach that table's files would reach "
        f"what is put there too. Choose another location, give the namespace another one (its property 'location'), or "
        f"move that table"
    )


def is_own_folder(location: str, uuid: str) -> bool:
    """Whether this folder was made for this table, so that nothing else can lie in it."""
    location = without_trailing_slash(location)
    return is_of_a_table(location) and location.endswith(f"-{uuid.lower()}")


async def overlapping(parts: Parts, location: str, uuid: str) -> str | None:
    """The location of another table or view that this one shares files with; None: there is none."""
    if is_own_folder(location, uuid):
        return None
    return await _overlapping(parts, location, (uuid,), (*_TAKEN, *_LEFT))


async def _overlapping(parts: Parts, location: str, own: Collection[str | None], families: Sequence[str]) -> str | None:
    here = f"{without_trailing_slash(location)}/"
    for family in families:
        async for id, other in _locations(parts, family):
            there = f"{without_trailing_slash(other)}/"
            # An older release has not noted for which table a transaction has begun a location.
            is_own = (id == "" and there == here) or id in own
            if not is_own and (there.startswith(here) or here.startswith(there)):
                return other
    return None


async def _locations(parts: Parts, family: str) -> AsyncIterator[tuple[str, str]]:
    after = None
    while True:
        page = await parts.store.scan(key_of(parts.warehouse.name, family), after, parts.settings.max_page)
        for cell in page.cells:
            value = cell.value or {}
            if "location" in value:
                yield value.get("id") or value.get("uuid") or "", value["location"]
        if page.after is None:
            return
        after = page.after

"""Whether a table's folder is its own: that no other table lies in it, nor it in another's.

Nothing comes to lie in a table's folder (`Folders.check`): whoever takes a place depends on the cells of all folders
above it, so of two that would lie one inside the other at most the inner one can have come first. And a folder whose
name ends in the uuid of its table is not even asked about: `Warehouse` lets nothing lie below such a one.

What was there before a folder was taken is looked for when it matters: when a credential is made for a folder that a
client chose, and when a table comes back to one that it had left (`overlapping`). From then on nothing can come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from lakepact.catalog.errors import BadRequest
from lakepact.catalog.pointers import Pointer
from lakepact.catalog.warehouse import is_of_a_table
from lakepact.catalog.work import Draft
from lakepact.iceberg.locations import without_trailing_slash
from lakepact.kernel.keys import Key, key_of

if TYPE_CHECKING:
    from lakepact.catalog.operations import Parts

_FAMILIES: Final = ("locations", "dropped")
"""Who owns which location, and what dropped tables have left behind."""


class Folders:
    """Who may come to lie where."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def check(self, draft: Draft, pointer: Pointer) -> None:
        """Refuse a place inside of another table's folder. Reads the cell of the place itself too, in one round."""
        self._parts.warehouse.check_alone(pointer.location)
        above = keys_above(self._parts, pointer.location)
        await draft.read(self.key(pointer.location), *above)
        for key in above:
            owner = await draft.current(key)
            if owner is not None and owner["id"] != pointer.id:
                raise inside_of_another(pointer.location, owner["location"])
            # Whoever takes that folder at the same moment takes it around this one.
            draft.depend_on(key)

    async def check_again(self, pointer: Pointer) -> None:
        """Refuse a place around others, or inside of what they left, for a table that may have been there before.

        Credentials that it had then may be remembered, and must not reach what has come since.
        """
        other = await overlapping(self._parts, pointer.location, pointer.id)
        if other is not None:
            raise BadRequest(
                f"location {pointer.location} and {other} of another table lie one inside the other by now. Choose "
                f"another location"
            )

    def key(self, location: str) -> Key:
        """The cell that says whose folder this is."""
        return self._parts.keys.location(self._parts.warehouse.blob_name(location))


def keys_above(parts: Parts, location: str) -> list[Key]:
    """The cells of all folders that this one lies in."""
    return [parts.keys.location(folder) for folder in _above(parts.warehouse.blob_name(location))]


def inside_of_another(location: str, other: str) -> BadRequest:
    return BadRequest(
        f"location {location} lies in {other}, the folder of another table: whoever may reach that table's files would "
        f"reach these too. Choose another location, give the namespace another one (its property 'location'), or move "
        f"that table"
    )


def is_own_folder(location: str, uuid: str) -> bool:
    """Whether this folder was made for this table, so that nothing else can lie in it."""
    location = without_trailing_slash(location)
    return is_of_a_table(location) and location.endswith(f"-{uuid.lower()}")


async def overlapping(parts: Parts, location: str, uuid: str) -> str | None:
    """The location of another table that this one shares files with; None: there is none."""
    if is_own_folder(location, uuid):
        return None
    here = f"{without_trailing_slash(location)}/"
    for family in _FAMILIES:
        async for id, other in _locations(parts, family):
            there = f"{without_trailing_slash(other)}/"
            if id != uuid and (there.startswith(here) or here.startswith(there)):
                return other
    return None


async def _locations(parts: Parts, family: str) -> AsyncIterator[tuple[str, str]]:
    after = None
    while True:
        page = await parts.store.scan(key_of(parts.warehouse.name, family), after, parts.settings.max_page)
        for cell in page.cells:
            value = cell.value or {}
            if "location" in value:
                yield str(value.get("id") or value.get("uuid")), str(value["location"])
        if page.after is None:
            return
        after = page.after


def _above(name: str) -> Iterator[str]:
    levels = name.split("/")
    for count in range(1, len(levels)):
        yield "/".join(levels[:count])

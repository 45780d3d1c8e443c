"""The id of a table or view is its own, whatever kind it is of.

Pointers of different kinds are kept apart. What people say about a table, and the note that it was dropped, are kept by
the id alone: so no id is ever given to a second one, of any kind, while the first is there or may come back.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakepact.catalog.errors import AlreadyExists, BadRequest
from lakepact.catalog.keys import Keys, last_segment
from lakepact.catalog.pointers import FAMILIES, Change, Kind, Pointer, shown
from lakepact.catalog.work import Draft
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Value


def cells_of(keys: Keys, id: str) -> tuple[Key, ...]:
    """All that tells whether an id is free: one of each kind, and the note that one was dropped."""
    return *keys.of_any_kind(id).values(), keys.dropped(id)


def beside(keys: Keys, pointers: Iterable[Key]) -> list[Key]:
    """The cells that must hold nothing when these pointers are new."""
    return [one for key in pointers for one in cells_of(keys, last_segment(key)) if one != key]


async def claim_id(draft: Draft, keys: Keys, pointer: Pointer) -> bool:
    """Write name and pointer of something that was not there, if nothing else has its id. Whether it comes back."""
    cells, name = cells_of(keys, pointer.id), keys.name(pointer.identifier)
    await draft.read(*cells, name)
    *pointers, dropped = cells
    for key in pointers:
        # As this draft leaves it: two creations of one transaction may ask for the same uuid.
        if (there := await draft.current(key)) is not None:
            raise _taken(pointer, Pointer.from_json(there))
    note = await draft.current(dropped)
    if note is not None:
        _check_may_come_back(pointer, note)
        # It is back. A note that it was dropped, perhaps with its files to be purged, must not outlive that.
        draft.write(dropped, None)
    for key in cells:
        # Nothing else may get this id at the same moment either.
        draft.depend_on(key)
    draft.write(name, {"kind": pointer.kind, "id": pointer.id})
    draft.write(keys.of_any_kind(pointer.id)[FAMILIES[pointer.kind]], pointer.to_json())
    return note is not None


def _taken(pointer: Pointer, there: Pointer) -> AlreadyExists:
    if pointer.change is Change.REGISTER:
        # Whoever registers a file may know of all.
        what, whose = there.kind, f"{shown(there.identifier)} ({pointer.id})"
    else:
        # Others are told of the id that they have sent, and neither a name nor a kind.
        what, whose = pointer.kind, pointer.id
    word = "View" if what is Kind.VIEW else "Table"
    return AlreadyExists(f"{word} with the same uuid already exists: {whose}. Rename it, or drop it first")


def _check_may_come_back(pointer: Pointer, note: Value) -> None:
    """Only by registering its own file, and while that is there."""
    if note.get("purging"):
        raise BadRequest(f"table {pointer.id} was dropped, and its files are being deleted: it cannot come back")
    if pointer.change is Change.CREATE:
        raise BadRequest(
            f"the uuid {pointer.id} is that of a table that was dropped. Undrop that one, or let the catalog choose a "
            f"uuid"
        )
    before = Pointer.from_json(note)
    if before.kind is not pointer.kind:
        raise BadRequest(
            f"the uuid {pointer.id} is that of {before.kind} {shown(before.identifier)}, which was dropped and may "
            f"come back. Register a file with a uuid of its own"
        )

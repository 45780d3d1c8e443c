"""Announced locations: how a location around others is checked at the instant of the commit.

A scan of all locations is no dependency of a commit: a table may be created inside the folder after the scan. So a
request for a location that others might lie in works in two steps:

1. It announces the location: a commit of its own writes a note into the location's cell. The cell has no owner yet.
2. It scans the locations, and commits. That commit compares the cell with the revision of the note.

Every creation reads the location cells of all folders above its own, and depends on them. A creation that finds a note
there removes it in its own commit, so the two requests compare the same cell. Of an outer and an inner table, one
commit comes first:

- The inner table before the note: the scan, which comes after the note, finds the inner table.
- The inner table after the note: its commit removes the note, or conflicts with it if the cell was read before. The
  commit of the outer table then conflicts, and its next attempt finds the inner table.
- The outer table first: the commit of the inner table conflicts, and its next attempt finds the owner.

A note belongs to no request: every request for this location may use the one that it finds. It reserves nothing, so one
that a crashed server has left is harmless.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lakepact.catalog.work import unless_held
from lakepact.errors import Contended, OutcomeUnknown, StoreUnavailable
from lakepact.kernel.model import Busy, Cell, CommitResult, Committed, Transaction, Value, Write

if TYPE_CHECKING:
    from lakepact.catalog.operations import Parts

ANNOUNCED: Final = "announced"
ANNOUNCING: Final = "announceLocation"
"""The operation of a step that writes or removes a note. It changes nothing that a client sees, and has no receipt."""


def is_announced(value: Value | None) -> bool:
    """Return whether a location cell holds a note, and no owner."""
    return value is not None and ANNOUNCED in value


def owner_of(value: Value | None) -> Value | None:
    """Return the value of a location cell if a table owns the location, and None otherwise."""
    return None if is_announced(value) else value


async def announce(parts: Parts, cell: Cell, location: str) -> Cell | None:
    """Write the note into the cell of a location that nobody owns. Return the cell with it.

    None: the cell has changed since it was read. Nothing that a client sees has happened in any case.
    """
    if is_announced(cell.value):
        return cell
    # A server of an older release takes the note for the location of a table, and refuses to create there or inside.
    return await _put(parts, cell, {"id": f"{ANNOUNCED} {location}", "location": location, ANNOUNCED: True})


async def withdraw(parts: Parts, cell: Cell) -> Cell:
    """Remove a note after a refusal. Return the cell as it is then, as far as that is known."""
    try:
        return await _put(parts, cell, None) or cell
    except (Contended, StoreUnavailable):
        # The note is harmless.
        return cell


async def _put(parts: Parts, cell: Cell, value: Value | None) -> Cell | None:
    id = parts.new_id()
    write = Write(cell.key, cell.revision, value)
    answer = {"operation": ANNOUNCING, "warehouse": parts.warehouse.name, "result": {}}
    transaction = Transaction(id, "", (write,), answer=answer)
    try:
        outcome: CommitResult = await unless_held(
            lambda: parts.store.commit(transaction), parts.clock, parts.rng, parts.settings.held_wait_s
        )
    except OutcomeUnknown as error:
        # The note itself changes nothing for anybody.
        raise StoreUnavailable(
            "the store did not say whether a location was announced. Nothing was applied; send the request again"
        ) from error
    match outcome:
        case Committed():
            return Cell(cell.key, cell.revision + 1, value, id)
        case Busy():
            raise Contended(
                f"transaction {outcome.owner or 'of another request'} holds the location. Nothing was applied; send "
                f"the request again",
                owner=outcome.owner,
                retry_after_s=outcome.retry_after_s,
            )
        case _:
            return None

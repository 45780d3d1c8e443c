"""Whether a table's folder is its own: that no other table lies in it, nor it in another's.

A folder whose name ends in the uuid of its table is: `Warehouse` lets no other table lie below such a one. Others were
chosen by a client, and are compared with the location of every table there is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from lakepact.catalog.warehouse import is_of_a_table
from lakepact.iceberg.locations import without_trailing_slash
from lakepact.kernel.keys import key_of

if TYPE_CHECKING:
    from lakepact.catalog.operations import Parts

_FAMILIES: Final = ("locations", "dropped")
"""Who owns which location, and what dropped tables have left behind."""


async def overlapping(parts: Parts, location: str, uuid: str | None) -> str | None:
    """The location of another table that this one shares files with; None: there is none."""
    location = without_trailing_slash(location)
    if uuid is not None and is_of_a_table(location) and location.endswith(f"-{uuid.lower()}"):
        return None
    for family in _FAMILIES:
        async for id, other in _locations(parts, family):
            here, there = f"{location}/", f"{without_trailing_slash(other)}/"
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

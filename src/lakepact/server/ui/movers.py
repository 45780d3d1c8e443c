"""Who was faster: the commits after which a refused transaction found its tables other than it had expected.

What a commit has found is the newest version that there was when it was refused. The versions of a table know the time
of each, and their receipts the transaction.
"""

from __future__ import annotations

from typing import Any, Final

from lakepact.catalog.pointers import Kind
from lakepact.errors import LakepactError
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.model import TransactionRecord
from lakepact.server.ui.activity import conflict_of
from lakepact.server.ui.timeline import Timeline
from lakepact.server.ui.window import Window

_MOST_TABLES: Final = 8
_FIELDS: Final = ("failed-requirements", "version-conflicts", "conflicts")


def unmet(record: TransactionRecord) -> list[dict[str, Any]]:
    """What did not hold, each with the table it is about."""
    refusal = conflict_of(record) or {}
    return [one for field in _FIELDS for one in refusal.get(field) or () if isinstance(one, dict)]


def table_of(requirement: dict[str, Any]) -> Identifier | None:
    told = requirement.get("identifier")
    if not isinstance(told, dict) or not told.get("namespace") or not told.get("name"):
        return None
    return Identifier(tuple(map(str, told["namespace"])), str(told["name"]))


async def movers(window: Window, timeline: Timeline, record: TransactionRecord) -> dict[Identifier, str]:
    """The ids of these commits, by table; of tables in sight alone."""
    found: dict[Identifier, str] = {}
    tables = dict.fromkeys(filter(None, map(table_of, unmet(record))))
    for identifier in list(tables)[:_MOST_TABLES]:
        try:
            mover = await _mover(window, timeline, identifier, record.decided_ms or window.now_ms())
        except LakepactError:
            # The page is about the refusal; who was faster is what it can do without.
            continue
        if mover is not None and mover != record.id:
            found[identifier] = mover
    return found


async def _mover(window: Window, timeline: Timeline, identifier: Identifier, at_ms: int) -> str | None:
    pointer = await window.neighbour(identifier)
    if pointer is None or pointer.kind is Kind.VIEW:
        return None
    if pointer.kind is Kind.DELTA:
        rows = await window.delta_history(identifier, None, 50)
        return next((row.transaction_id for row in rows if row.info.timestamp_ms <= at_ms), None)
    file = await window.metadata(pointer)
    if isinstance(file, LakepactError):
        return None
    page = await timeline.page(window, pointer, file)
    return next((one.transaction_id for one in page.entries if one.timestamp_ms <= at_ms), None)

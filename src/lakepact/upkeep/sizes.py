"""How large a Delta table was after a change, for its receipt.

The rows of a version say what it added and removed, and not how much there is. All live files are counted once for a
table; after that only what was added since, as long as nothing is taken away. Where something is, all are counted again
by the database: whoever rewrites files has moved more than that.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import structlog

from lakepact.catalog.pointers import Kind
from lakepact.catalog.receipts import CommittedChange
from lakepact.delta.ports import DeltaRows, Totals
from lakepact.errors import Contended, StoreUnavailable
from lakepact.iceberg.fields import JsonObject

_MOST_REMEMBERED: Final = 10_000
_MOST_VERSIONS: Final = 1_000
"""Between the version that was counted last and the one that is wanted."""

_log = structlog.get_logger(__name__)


class DeltaSizes:
    def __init__(self, rows: DeltaRows | None) -> None:
        self._rows = rows
        self._known: OrderedDict[str, tuple[int, Totals]] = OrderedDict()
        """By table: a version, and its size."""

    async def after(self, change: CommittedChange) -> JsonObject | None:
        """None: it is no new version of a Delta table, or its rows are gone, or the database takes too long."""
        if self._rows is None or change.kind != Kind.DELTA or not change.has_new_metadata or change.pointer is None:
            return None
        try:
            found = await self._totals(self._rows, change.id, change.pointer.summary["version"])
        except (StoreUnavailable, Contended) as error:
            # Better a receipt that says less than none.
            _log.warning("a receipt does without the size of its table", table_id=change.id, error=str(error))
            return None
        if found is None:
            return None
        records = {} if found.records is None else {"records": found.records}
        return {"files": found.files, "bytes": found.bytes, **records}

    async def _totals(self, rows: DeltaRows, table_id: str, version: int) -> Totals | None:
        known = self._known.get(table_id)
        found: Totals | None = None
        if known is not None and 0 <= version - known[0] <= _MOST_VERSIONS:
            growth = await rows.growth(table_id, known[0], version)
            found = known[1].plus(growth) if growth is not None else None
        if found is None:
            found = await rows.totals(table_id, version)
        if found is not None and (known is None or known[0] <= version):
            self._known[table_id] = version, found
            self._known.move_to_end(table_id)
            if len(self._known) > _MOST_REMEMBERED:
                self._known.popitem(last=False)
        return found

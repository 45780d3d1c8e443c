"""How far the projections are behind: the age of the oldest commit that they do not have.

The projections are computed outside the server, by `lakepact project` on Spark, on a schedule that its operator
chooses. The server cannot make them fresh; it can say how stale they are.

The last run says when it began to read (`read-ms` of its position). Records are listed oldest first, so the first
commit after that moment is the oldest one that is missing. Commits of the projections themselves do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from lakepact.catalog import Catalog
from lakepact.catalog.overlay import warehouse_of
from lakepact.catalog.receipts import changes_of
from lakepact.kernel.model import State, TransactionRecord
from lakepact.kernel.ports import Clock
from lakepact.upkeep.collection.receipts import POSITION, position_of
from lakepact.upkeep.runner import Job

_MARGIN_MS: Final = 3_600_000
"""A transaction may have begun this long before the run that does not have its commit."""

_JOB: Final = "projections"
"""What the projections call themselves in the source of their commits."""

_PAGE: Final = 500
_MOST_PAGES: Final = 10


def projection_lag_job(catalogs: Mapping[str, Catalog], clock: Clock, on_lag: Callable[[float], None]) -> Job:
    """Measure the lag of the warehouse that is behind most, in seconds; 0 if none has projections."""

    async def measure() -> bool:
        now_ms = clock.now_ms()
        on_lag(max([await projection_lag_s(catalog, now_ms) for catalog in catalogs.values()], default=0.0))
        return False

    return measure


async def projection_lag_s(catalog: Catalog, now_ms: int) -> float:
    """The age of the oldest commit that the projections of this warehouse do not have; 0 if they have all."""
    if await position_of(catalog) is None:
        return 0.0
    key = catalog.parts.keys.state(POSITION)
    position = ((await catalog.parts.store.read([key]))[key].value or {}).get("value")
    read_ms = position.get("read-ms") if isinstance(position, Mapping) else None
    if not isinstance(read_ms, int):
        return 0.0
    after: str | None = None
    for _ in range(_MOST_PAGES):
        page = await catalog.parts.store.transactions(
            [State.COMMITTED], made_since_ms=max(read_ms - _MARGIN_MS, 0), after=after, limit=_PAGE
        )
        missing = [
            record.decided_ms
            for record in page.transactions
            if record.decided_ms is not None
            and record.decided_ms > read_ms
            and _leaves_receipts(record, catalog.warehouse.name)
        ]
        if missing:
            return max(0.0, (now_ms - min(missing)) / 1000)
        if page.after is None:
            return 0.0
        after = page.after
    # There are more records than are read here: it is not older than the last run.
    return max(0.0, (now_ms - read_ms) / 1000)


def _leaves_receipts(record: TransactionRecord, warehouse: str) -> bool:
    if warehouse_of(record) != warehouse:
        return False
    source = (record.answer or {}).get("source") or {}
    if source.get("kind") == "upkeep" and source.get("job") == _JOB:
        return False
    # Of a record that was trimmed nothing but the answer is left; it has results if it changed tables.
    return bool(changes_of(record.writes)) or (not record.writes and bool((record.answer or {}).get("result")))

"""What happens inside the catalogs, as this server tells of it: metrics, log lines, receipts, mirrors."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from lakepact.catalog import Watch
from lakepact.catalog.watch import Mirrored
from lakepact.kernel.model import Transaction
from lakepact.mirrors import Mirrors
from lakepact.server.metrics import Metrics
from lakepact.upkeep.receipts import Receipts

_log = structlog.get_logger(__name__)


class CatalogWatch(Watch):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.receipts: Receipts | None = None
        self.mirrors: Mirrors | None = None

    def cache(self, hit: bool) -> None:
        if hit:
            self._metrics.metadata_cache_hit()
        else:
            self._metrics.metadata_cache_missed()

    def retried(self, operation: str = "", transaction_id: str = "") -> None:
        self._metrics.commit_retried()
        _log.debug("a plan was out of date and is made again", operation=operation, transaction_id=transaction_id)

    def applied(self, changes: int) -> None:
        self._metrics.commit_applied(changes)

    def refused(self) -> None:
        self._metrics.commit_refused()

    def unknown(self) -> None:
        self._metrics.commit_unknown()

    def together(self, tables: int, milliseconds: float) -> None:
        self._metrics.commit_of_many(tables, milliseconds)

    def conflicted(self, reason: str = "") -> None:
        self._metrics.commit_conflicted()
        _log.debug("a commit was refused because something had moved", reason=reason)

    async def mirrored(self, warehouse: str) -> Sequence[Mirrored]:
        return () if self.mirrors is None else await self.mirrors.shown(warehouse)

    async def committed(self, transaction: Transaction) -> None:
        if self.receipts is not None:
            self.receipts.later(transaction)
        if self.mirrors is not None:
            await self.mirrors.after_commit(transaction)

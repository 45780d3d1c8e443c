"""Writes receipts: right after a commit, in the background, and again for what a crash has left out.

A receipt is put if absent under a name that follows from the change, so it does not matter who writes it or how often.
The pass looks at transactions made since a little before the last one; what is older is for the reconciler.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from lakepact.catalog import Catalog
from lakepact.catalog.catalog import MARKING
from lakepact.catalog.errors import NotFound
from lakepact.catalog.pointers import Kind
from lakepact.catalog.receipts import CommittedChange, changes_of, receipt_of
from lakepact.errors import LakepactError
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import segments_of
from lakepact.kernel.model import State, Write
from lakepact.kernel.ports import CellStore, Clock

_LOOK_BACK_MS: Final = 15 * 60 * 1000
_PAGE: Final = 200
_MOST_REMEMBERED: Final = 100_000

_log = structlog.get_logger(__name__)


class Receipts:
    def __init__(
        self,
        catalogs: Mapping[str, Catalog],
        store: CellStore,
        clock: Clock,
        *,
        on_written: Callable[[], None] = lambda: None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalogs = catalogs
        self._store = store
        self._clock = clock
        self._on_written = on_written
        self._on_failed = on_failed
        self._done: OrderedDict[TransactionId, None] = OrderedDict()
        """Transactions whose receipts this process has seen to: a pass need not read them again."""

        self._through_ms = clock.now_ms()
        self._after: str | None = None

    async def write(self, transaction_id: TransactionId, writes: tuple[Write, ...], answer: Mapping[str, Any]) -> None:
        """The receipts of one committed transaction. Never raises: a pass comes later."""
        if answer.get("operation") != MARKING and (catalog := self._catalog_of(writes)) is not None:
            changes = changes_of(writes)
            try:
                for change in changes:
                    await self._write_one(catalog, change, transaction_id, len(changes), answer)
            except LakepactError as error:
                self._on_failed()
                _log.warning("a receipt could not be written yet", transaction_id=transaction_id, error=str(error))
                return
        self._done[transaction_id] = None
        if len(self._done) > _MOST_REMEMBERED:
            self._done.popitem(last=False)

    async def catch_up(self) -> bool:
        """One pass over what was committed lately: whether there is more."""
        began_ms = self._clock.now_ms()
        page = await self._store.transactions(
            [State.COMMITTED], made_since_ms=self._through_ms - _LOOK_BACK_MS, after=self._after, limit=_PAGE
        )
        for record in page.transactions:
            if record.id not in self._done and record.writes:
                await self.write(record.id, record.writes, record.answer or {})
        self._after = page.after
        if page.after is None:
            self._through_ms = began_ms
        return page.after is not None

    async def _write_one(
        self,
        catalog: Catalog,
        change: CommittedChange,
        transaction_id: TransactionId,
        tables: int,
        answer: Mapping[str, Any],
    ) -> None:
        metadata = await self._metadata(catalog, change)
        receipt = receipt_of(change, transaction_id=transaction_id, tables=tables, answer=answer, metadata=metadata)
        # False: there is one already, perhaps with fewer details. The first one stays.
        await catalog.blobs.put(receipt.name, receipt.to_bytes())
        self._on_written()

    async def _metadata(self, catalog: Catalog, change: CommittedChange) -> JsonObject | None:
        if change.pointer is None or not change.has_new_metadata:
            return None
        load = catalog.files.table if change.kind == Kind.TABLE else catalog.files.view
        try:
            return (await load(change.pointer.metadata_location)).document
        except NotFound:
            # Deleted since, as old metadata may be. What the pointer says is enough for a receipt.
            return {"last-updated-ms": change.pointer.summary.get("last-updated-ms")}

    def _catalog_of(self, writes: tuple[Write, ...]) -> Catalog | None:
        return self._catalogs.get(segments_of(writes[0].key)[0]) if writes else None

"""Writes receipts: a moment after a commit, in the background, and again for what a crash has left out.

A receipt is put if absent under a name that follows from the change, so it does not matter who writes it or how often.
It waits for a moment, so that receipts of many commits are flushed to disk together and stay out of the way of the
commits that follow. What waits is remembered in memory only: the records of the transactions are what is durable.

A pass looks at transactions made since a little before the last one ended, by whichever server: how far the passes have
come is kept in a cell, so that a crash of all servers, however long, leaves nothing out. Ids are made by clients, and a
request may come long after its id was made; so once in a while a pass looks back as far as a key may be old. What is
older still is for the reconciler.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import structlog

from lakepact.catalog import Catalog
from lakepact.catalog.errors import NotFound
from lakepact.catalog.overlay import MARKING
from lakepact.catalog.pointers import Kind
from lakepact.catalog.receipts import CommittedChange, Receipt, changes_of, receipt_of
from lakepact.errors import Contended, StoreUnavailable
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import key_of, segments_of
from lakepact.kernel.model import Cell, State, Transaction, Write
from lakepact.kernel.ports import CellStore, Clock, Tasks
from lakepact.upkeep.arrivals import put_receipt, put_receipts
from lakepact.upkeep.backup import RESTORING
from lakepact.upkeep.bases import base_of
from lakepact.upkeep.recent_set import RecentSet
from lakepact.upkeep.sizes import DeltaSizes

MARK: Final = key_of("lakepact", "upkeep", "receipts")
"""How far the passes have come: `through_ms`, and `deep_ms` for those that look back far."""

_MINUTE_MS: Final = 60 * 1000
_LOOK_BACK_MS: Final = 15 * _MINUTE_MS
_DEEP_EVERY_MS: Final = 60 * _MINUTE_MS
_DEEP_LOOK_BACK_MS: Final = 75 * _MINUTE_MS
_FIRST_LOOK_BACK_MS: Final = 25 * 60 * _MINUTE_MS
"""Where no pass has been yet. Older records are trimmed, and do not say any more what they changed."""

_MARK_EVERY_MS: Final = 5 * _MINUTE_MS
"""Every mark leaves a record in the store, so not every pass leaves one."""

_PAUSE_S: Final = 0.5
_AT_ONCE: Final = 64
"""Transactions whose receipts are written together. A disk flushes many files of a folder at the cost of few."""

_BETWEEN_REQUESTS: Final = 8
"""Transactions whose receipts are built in a row, before waiting requests get their turn."""

_MOST_WAITING: Final = 10_000
"""Transactions whose receipts wait in memory. The receipts of those beyond are left to a pass."""

_PAGE: Final = 200
_FREE_RECORDS: Final = 1_000
_REST_S_A_RECORD: Final = 0.03
_LONGEST_REST_S: Final = 300.0
"""A pass reads all records of the last minutes again, so its cost grows with what is committed in that time. The more
it has read, the longer the next one waits: then it costs a small, constant share of what the commits cost."""

_MOST_RECENT: Final = 40_000
"""Ids of transactions with receipts. At most twice as many are in memory, 6 MiB for each 40,000."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Pass:
    began_ms: int
    since_ms: int
    deep: bool
    mark: Cell
    after: str | None = None
    read: int = 0
    """How many records."""

    complete: bool = True
    """Whether everything it met has its receipt now, or never can."""


class Receipts:
    def __init__(
        self,
        catalogs: Mapping[str, Catalog],
        store: CellStore,
        clock: Clock,
        tasks: Tasks,
        *,
        on_written: Callable[[], None] = lambda: None,
        on_failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._catalogs = catalogs
        self._store = store
        self._clock = clock
        self._tasks = tasks
        self._on_written = on_written
        self._on_failed = on_failed
        self._written: RecentSet[TransactionId] = RecentSet(_MOST_RECENT)
        """Transactions whose receipts this process has written: a pass need not write them again."""

        self._sizes = {name: DeltaSizes(catalog.parts.rows) for name, catalog in catalogs.items()}
        self._pass: _Pass | None = None
        self._rests_until_s = 0.0
        self._waiting: deque[Transaction] = deque()
        self._writing = False
        self._hurry = asyncio.Event()

    def later(self, transaction: Transaction) -> None:
        """See to the receipts of a committed transaction in a moment."""
        if len(self._waiting) >= _MOST_WAITING:
            return
        self._waiting.append(transaction)
        if not self._writing:
            self._writing = True
            self._tasks.background(self._write_waiting())

    def hurry(self) -> None:
        """From now on wait for nothing: the server is about to end."""
        self._hurry.set()

    async def _write_waiting(self) -> None:
        try:
            while self._waiting:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_PAUSE_S):
                        await self._hurry.wait()
                for _ in range(0, len(self._waiting), _AT_ONCE):
                    await self._write_all([self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))])
        finally:
            self._writing = False

    async def _write_all(self, transactions: Sequence[Transaction]) -> None:
        """The receipts of several transactions, flushed together."""
        receipts: dict[str, list[Receipt]] = {}
        try:
            for start in range(0, len(transactions), _BETWEEN_REQUESTS):
                # Metadata that is no longer cached is read side by side. One file after another, a writer that has
                # fallen behind the commits would never catch up.
                chunk = transactions[start : start + _BETWEEN_REQUESTS]
                for built in await self._tasks.all([self._build(one) for one in chunk]):
                    for warehouse, made in built.items():
                        receipts.setdefault(warehouse, []).extend(made)
                # Requests that arrived meanwhile go first.
                await asyncio.sleep(0)
            for warehouse, made in receipts.items():
                await put_receipts(self._catalogs[warehouse].parts.blobs, self._clock, made)
        except Exception:
            # One of them stands in the way. Each for itself, it is told which, and why; and the others get through.
            await self._tasks.all([self.write(one.id, one.writes, one.answer) for one in transactions])
            return
        for made in receipts.values():
            for _ in made:
                self._on_written()
        for one in transactions:
            self._written.add(one.id)

    async def _build(self, transaction: Transaction) -> dict[str, list[Receipt]]:
        """Return the receipts of a committed transaction by the warehouse that they belong to."""
        catalog = self._catalog_of(transaction.writes, transaction.answer)
        if catalog is None:
            return {}
        receipts = await self._receipts_of(catalog, transaction.id, transaction.writes, transaction.answer)
        return {catalog.warehouse.name: receipts}

    async def write(self, transaction_id: TransactionId, writes: tuple[Write, ...], answer: Mapping[str, Any]) -> bool:
        """The receipts of one committed transaction. Never raises: False means that a later pass may have more luck."""
        try:
            if (catalog := self._catalog_of(writes, answer)) is not None:
                for receipt in await self._receipts_of(catalog, transaction_id, writes, answer):
                    # There may be one already, perhaps with fewer details. The first one stays.
                    await put_receipt(catalog.parts.blobs, self._clock, receipt)
                    self._on_written()
        except Exception as error:
            return self._failed(transaction_id, error)
        self._written.add(transaction_id)
        return True

    def _failed(self, transaction_id: TransactionId, error: Exception) -> bool:
        """Whether it is of no use to try again."""
        self._on_failed()
        if isinstance(error, StoreUnavailable | Contended):
            _log.warning("a receipt could not be written yet", transaction_id=transaction_id, error=str(error))
            return False
        # One that cannot be written must not keep the others from being written.
        _log.error("a receipt cannot be written", transaction_id=transaction_id, exc_info=error)
        self._written.add(transaction_id)
        return True

    async def catch_up(self) -> bool:
        """One page of a pass over what was committed lately: whether there is more."""
        if self._pass is None:
            if self._clock.monotonic_s() < self._rests_until_s:
                return False
            self._pass = await self._begin()
        current = self._pass
        page = await self._store.transactions(
            [State.COMMITTED], made_since_ms=current.since_ms, after=current.after, limit=_PAGE
        )
        for record in page.transactions:
            if record.writes and record.id not in self._written:
                current.complete &= await self.write(record.id, record.writes, record.answer or {})
        current.read += len(page.transactions)
        current.after = page.after
        if page.after is not None:
            return True
        self._pass = None
        self._rests_until_s = self._clock.monotonic_s() + rest_s(current.read)
        if current.complete:
            await self._end(current)
        return False

    async def _begin(self) -> _Pass:
        now_ms = self._clock.now_ms()
        cell = (await self._store.read([MARK]))[MARK]
        through_ms, deep_ms = _mark(cell)
        if through_ms is None or deep_ms is None:
            return _Pass(now_ms, now_ms - _FIRST_LOOK_BACK_MS, deep=True, mark=cell)
        if now_ms - deep_ms >= _DEEP_EVERY_MS:
            return _Pass(now_ms, min(deep_ms - _DEEP_LOOK_BACK_MS, through_ms - _LOOK_BACK_MS), deep=True, mark=cell)
        return _Pass(now_ms, through_ms - _LOOK_BACK_MS, deep=False, mark=cell)

    async def _end(self, ended: _Pass) -> None:
        through_ms, deep_ms = _mark(ended.mark)
        if not ended.deep and through_ms is not None and ended.began_ms - through_ms < _MARK_EVERY_MS:
            return
        value = {"through_ms": ended.began_ms, "deep_ms": ended.began_ms if ended.deep else deep_ms}
        new_id = next(iter(self._catalogs.values())).new_id()
        # A conflict is somebody else's mark, and as good.
        await self._store.commit(Transaction(new_id, "", (Write(MARK, ended.mark.revision, value),)))

    async def _receipts_of(
        self, catalog: Catalog, transaction_id: TransactionId, writes: tuple[Write, ...], answer: Mapping[str, Any]
    ) -> list[Receipt]:
        changes = changes_of(writes, catalog.settings.generation)
        return [
            receipt_of(
                change,
                transaction_id=transaction_id,
                tables=len(changes),
                answer=answer,
                metadata=await self._metadata(catalog, change),
                base=await base_of(change, catalog.parts.files),
                size=await self._sizes[catalog.warehouse.name].after(change),
            )
            for change in changes
        ]

    async def _metadata(self, catalog: Catalog, change: CommittedChange) -> JsonObject | None:
        if change.pointer is None or not change.has_new_metadata or change.kind == Kind.DELTA:
            return None
        load = catalog.parts.files.table if change.kind == Kind.TABLE else catalog.parts.files.view
        try:
            return (await load(change.pointer.metadata_location, look=False)).document
        except NotFound:
            # Deleted since, as old metadata may be. What the pointer says is enough for a receipt.
            return {"last-updated-ms": change.pointer.summary.get("last-updated-ms")}

    def _catalog_of(self, writes: tuple[Write, ...], answer: Mapping[str, Any]) -> Catalog | None:
        """Where the receipts belong. None: it leaves none."""
        if answer.get("operation") in (MARKING, RESTORING):
            return None
        # Not the first one: a change of grants also writes cells that belong to no warehouse.
        names = (segments_of(write.key)[0] for write in writes)
        return next((self._catalogs[name] for name in names if name in self._catalogs), None)


def rest_s(records: int) -> float:
    """How long after a pass over this many records the next one begins, at the earliest."""
    return min(max(0, records - _FREE_RECORDS) * _REST_S_A_RECORD, _LONGEST_REST_S)


def _mark(cell: Cell) -> tuple[int | None, int | None]:
    value = cell.value or {}
    through_ms, deep_ms = value.get("through_ms"), value.get("deep_ms")
    if isinstance(through_ms, int) and isinstance(deep_ms, int):
        return through_ms, deep_ms
    return None, None

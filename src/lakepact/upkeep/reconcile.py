"""The reconciler: finds committed changes that have no receipt, and writes it.

It trusts nobody's word that a receipt was written, and looks. First at the finished records since the last pass, which
know everything; then at every cell of the catalog: its last change is wholly known by the cell itself, and what came
before by the metadata log of the table (`chain`), or the rows of a Delta table. Nothing is listed; a table that has not
changed since it was found complete costs no more than its cell.

Receipts are put if absent at places that follow from the change, so any number of reconcilers, writers and crashes come
to the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from lakepact.catalog import Catalog
from lakepact.catalog.overlay import MARKING
from lakepact.catalog.pointers import Kind, Pointer
from lakepact.catalog.receipts import CommittedChange, Receipt, changes_of, receipt_of
from lakepact.errors import LakepactError
from lakepact.kernel.identity import TransactionId, timestamp_ms, uuid7
from lakepact.kernel.keys import key_of, segments_of
from lakepact.kernel.model import Cell, State, Transaction, TransactionRecord, Write
from lakepact.kernel.ports import CellStore, Clock, Rng
from lakepact.upkeep.backup import RESTORING
from lakepact.upkeep.chain import Version
from lakepact.upkeep.completed import Completed, Done, Missing
from lakepact.upkeep.days import in_ms, side_by_side
from lakepact.upkeep.histories import Bounds, Head, head_writes, settle_delta, settle_table, settle_version
from lakepact.upkeep.mending import Mended, damages, mend_all
from lakepact.upkeep.scribe import CannotTell, Report, Scribe
from lakepact.upkeep.steps import Steps
from lakepact.upkeep.witnesses import Witness, Witnesses

MARK: Final = key_of("lakepact", "upkeep", "reconcile")
"""`began_ms`: of the last pass that came to its end; `through_ms`: records made before then have been looked at."""

DROPPED: Final = "dropped"
_FAMILIES: Final = ("namespaces", "views", "tables", "delta", DROPPED)
_LOOK_BACK_MS: Final = 5 * 60 * 1000
"""An id is made a moment before its commit. For older ones there are the cells, and the passes of `receipts`."""

_FIRST_LOOK_BACK_MS: Final = 25 * 60 * 60 * 1000
"""Where no pass has been yet. Older records do not say any more what they changed."""

_PAGE: Final = 200
_TABLES_AT_ONCE: Final = 8
_FLUSH_EVERY: Final = 5_000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Depth:
    """How far a pass looks."""

    versions: int = 10_000
    """Of one table."""

    receipt_days: int = 0
    """What is older has no receipt any more; 0: receipts are kept for ever."""

    full: bool = False
    """Look at everything, whatever was found complete before."""

    mend: bool = False
    """Write damaged receipts anew, and damaged days that were packed. Everything is looked at."""

    grace_s: float = 0.0
    """For how long after its commit a receipt is not missed. The server that made the commit writes it any moment."""

    @property
    def everything(self) -> bool:
        return self.full or self.mend


class Reconciler:
    def __init__(
        self,
        catalogs: Mapping[str, Catalog],
        store: CellStore,
        clock: Clock,
        rng: Rng,
        depth: Depth,
        *,
        interval_s: float = 0.0,
        on_pass: Callable[[Report], None] = lambda report: None,
    ) -> None:
        self._catalogs = catalogs
        self._store = store
        self._clock = clock
        self._rng = rng
        self._depth = depth
        self._interval_ms = int(interval_s * 1000)
        self._on_pass = on_pass
        self._steps = Steps(self._pass)
        self.report = Report()
        """Of the pass that is under way, or of the last one."""

    async def work(self) -> bool:
        """A job for the runner: some of a pass, if one is under way or due."""
        if not self._steps.under_way and not await self._is_due():
            return False
        return await self._steps.next()

    async def run(self) -> Report:
        """A whole pass, now."""
        while await self._steps.next():
            pass
        return self.report

    async def _is_due(self) -> bool:
        began_ms, _ = _mark((await self._store.read([MARK]))[MARK])
        return began_ms is None or not 0 <= self._clock.now_ms() - began_ms < self._interval_ms

    async def _pass(self) -> AsyncIterator[None]:
        began_ms, began_s = self._clock.now_ms(), self._clock.monotonic_s()
        mark = (await self._store.read([MARK]))[MARK]
        self.report = report = Report()
        witnesses = Witnesses(self._store, generation_of(self._catalogs))
        scribes = {
            name: Scribe(catalog, self._clock, witnesses, report, mend=self._depth.mend, grace_s=self._depth.grace_s)
            for name, catalog in self._catalogs.items()
        }
        if self._depth.everything:
            async for _ in self._packed_days(scribes):
                yield
        async for _ in self._records(scribes, _since_ms(mark, began_ms, everything=self._depth.everything)):
            yield
        records_failed = report.failed
        for name, catalog in self._catalogs.items():
            async for _ in self._cells(catalog, scribes[name], began_ms):
                yield
        through_ms = _mark(mark)[1] if records_failed else began_ms
        value = {"began_ms": began_ms, "through_ms": through_ms}
        # A conflict is the mark of another pass, and as good.
        new_id = uuid7(self._clock.now_ms(), self._rng.bits(74))
        await self._store.commit(Transaction(new_id, "", (Write(MARK, mark.revision, value),)))
        self._on_pass(report)
        _log.info(
            "receipts reconciled",
            seconds=round(self._clock.monotonic_s() - began_s, 3),
            tables=report.tables,
            unchanged=report.unchanged,
            transactions=report.transactions,
            found=report.found,
            written=report.written,
            late=report.late,
            unreadable=report.unreadable,
            damaged=report.damaged,
            rebuilt=report.rebuilt,
            lost=report.lost,
            failed=report.failed,
        )

    # --- packed days ---

    async def _packed_days(self, scribes: Mapping[str, Scribe]) -> AsyncIterator[None]:
        """First: what turns out to be lost is then written anew like anything else that is missing."""
        for scribe in scribes.values():
            if not self._depth.mend:
                async for date, wrong in damages(scribe.blobs, self._clock):
                    if wrong:
                        scribe.damaged_day(date, "; ".join(wrong))
                    yield
                continue
            mended = Mended()
            async for _ in mend_all(scribe.blobs, self._clock, mended):
                yield
            scribe.report.rebuilt += len(mended.rebuilt)
            scribe.report.lost += len(mended.lost)
            for lost in mended.lost:
                scribe.report.problem(lost)

    # --- records ---

    async def _records(self, scribes: Mapping[str, Scribe], since_ms: int) -> AsyncIterator[None]:
        after: str | None = None
        while True:
            page = await self._store.transactions([State.COMMITTED], made_since_ms=since_ms, after=after, limit=_PAGE)
            await side_by_side(lambda record: self._record(scribes, record), page.transactions)
            if (after := page.after) is None:
                return
            yield

    async def _record(self, scribes: Mapping[str, Scribe], record: TransactionRecord) -> None:
        names = (segments_of(write.key)[0] for write in record.writes)
        scribe = next((scribes[name] for name in names if name in scribes), None)
        if scribe is None or (record.answer or {}).get("operation") in (MARKING, RESTORING):
            return
        scribe.report.transactions += 1
        witness = Witness.of(record, scribe.generation)
        for change in witness.changes:
            try:
                await self._settle_change(scribe, change, record.id, witness)
            except Exception as error:
                # Whatever it is, it must not keep the others from being looked at.
                scribe.report.failed += 1
                scribe.report.problem(f"transaction {record.id}: {_told(error)}")

    async def _settle_change(
        self,
        scribe: Scribe,
        change: CommittedChange,
        transaction_id: TransactionId,
        witness: Witness | None,
        since_ms: int = 0,
    ) -> Missing | None:
        async def make() -> Receipt:
            known = witness if witness is not None else await scribe.witnesses.by_id(transaction_id)
            return await scribe.of_change(change, transaction_id, known)

        # Where it lies does not depend on what it says, and the pointer knows the time of its metadata.
        last_ms = change.pointer.summary.get("last-updated-ms") if change.pointer is not None else None
        sketch = receipt_of(
            change, transaction_id=transaction_id, tables=1, answer={}, metadata={"last-updated-ms": last_ms}
        )
        committed_ms: int = sketch.document["committed-ms"]
        return await scribe.settle(sketch.name, committed_ms, make) if committed_ms >= since_ms else None

    # --- cells ---

    async def _cells(self, catalog: Catalog, scribe: Scribe, began_ms: int) -> AsyncIterator[None]:
        completed = await Completed.load(catalog.parts.blobs, scribe.generation)
        kept_ms = in_ms(self._depth.receipt_days)
        bounds = Bounds(began_ms - kept_ms if kept_ms else 0, self._depth.versions)
        looked_at, failed = 0, scribe.report.failed
        for family in _FAMILIES:
            after: str | None = None
            while True:
                page = await self._store.scan(key_of(catalog.warehouse.name, family), after, _PAGE)
                heads: list[tuple[Cell, Cell | None]] = [(cell, None) for cell in page.cells]
                if family == DROPPED:
                    heads = await self._heads(catalog, page.cells)
                await side_by_side(
                    lambda head: self._cell(catalog, scribe, completed, *head, bounds), heads, _TABLES_AT_ONCE
                )
                looked_at += len(page.cells)
                if looked_at >= _FLUSH_EVERY:
                    await completed.flush()
                    looked_at = 0
                yield
                if (after := page.after) is None:
                    break
        if scribe.report.failed == failed:
            completed.forget_unseen()
        await completed.flush()

    async def _heads(self, catalog: Catalog, notes: Sequence[Cell]) -> list[tuple[Cell, Cell | None]]:
        """For what dropped tables have left behind: the tombstones in their places, which know who dropped them."""
        names = catalog.parts.keys
        of = {Kind.TABLE: names.table, Kind.VIEW: names.view, Kind.DELTA: names.delta}
        pointers = [(note, Pointer.from_json(note.value)) for note in notes if note.value is not None]
        keys = {of[pointer.kind](pointer.id): note for note, pointer in pointers}
        cells = await self._store.read(keys)
        return [(cell, keys[key]) for key, cell in cells.items() if cell.value is None and cell.revision]

    async def _cell(
        self, catalog: Catalog, scribe: Scribe, completed: Completed, cell: Cell, note: Cell | None, bounds: Bounds
    ) -> None:
        scribe.report.tables += 1
        try:
            await self._history(catalog, scribe, completed, cell, note, bounds)
        except Exception as error:
            scribe.report.failed += 1
            scribe.report.problem(f"{cell.key}: {_told(error)}")

    async def _history(
        self,
        catalog: Catalog,
        scribe: Scribe,
        completed: Completed,
        cell: Cell,
        note: Cell | None,
        bounds: Bounds,
    ) -> None:
        name = cell.key.partition("/")[2]
        done = completed.get(name)
        if done is not None and done.revision == cell.revision and not self._depth.everything and not done.left:
            scribe.report.unchanged += 1
            return
        change = next(iter(changes_of(head_writes(cell, note), scribe.generation)), None)
        restored = _is_restored(cell, catalog)
        head = Head.of(cell, change, restored=restored) if change is not None else None
        missing: list[Missing] = []
        if done is not None and not self._depth.everything:
            missing += await self._again(scribe, head, done)
        if done is None or done.revision != cell.revision or self._depth.everything:
            if change is not None and cell.writer is not None and not restored:
                found = await self._settle_change(scribe, change, cell.writer, None, bounds.since_ms)
                missing += [found] if found is not None else []
            since = None if self._depth.everything else done
            if head is not None and head.pointer.kind is Kind.TABLE:
                missing += await settle_table(scribe, head, since, bounds)
            elif head is not None and head.pointer.kind is Kind.DELTA and catalog.parts.rows is not None:
                missing += await settle_delta(scribe, catalog.parts.rows, head, since, bounds)
        if not any(one.young for one in missing):
            completed.set(name, Done(cell.revision, _through(head), tuple(missing)))

    async def _again(self, scribe: Scribe, head: Head | None, done: Done) -> list[Missing]:
        """What was missing the last time may be mended by now."""
        still: list[Missing] = []
        for one in done.left:
            if one.location is not None and head is not None and head.pointer.kind is Kind.TABLE:
                version = Version(one.location, one.committed_ms)
                found = await settle_version(scribe, head.pointer, version, None)
            else:
                found = await scribe.settle(one.name, 0, _not_told)
            still += [found] if found is not None else []
        return still


def generation_of(catalogs: Mapping[str, Catalog]) -> int:
    """All catalogs are over one store."""
    return next((catalog.settings.generation for catalog in catalogs.values()), 0)


def _is_restored(cell: Cell, catalog: Catalog) -> bool:
    """Whether a restore has made this cell. Who made its last change before, and as which revision, is not known."""
    restored_ms = catalog.settings.restored_ms
    return cell.revision == 1 and cell.writer is not None and timestamp_ms(cell.writer) <= restored_ms


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, LakepactError) else repr(error)


async def _not_told() -> Receipt:
    raise CannotTell("its record does not say any more what it changed")


def _through(head: Head | None) -> str | int | None:
    if head is None:
        return None
    if head.pointer.kind is Kind.DELTA:
        version: int = head.pointer.summary["version"]
        return version
    return head.pointer.metadata_location


def _since_ms(mark: Cell, now_ms: int, *, everything: bool) -> int:
    _, through_ms = _mark(mark)
    if everything:
        return 0
    return now_ms - _FIRST_LOOK_BACK_MS if through_ms is None else through_ms - _LOOK_BACK_MS


def _mark(cell: Cell) -> tuple[int | None, int | None]:
    value = cell.value or {}
    began_ms, through_ms = value.get("began_ms"), value.get("through_ms")
    return (
        began_ms if isinstance(began_ms, int) else None,
        through_ms if isinstance(through_ms, int) else None,
    )

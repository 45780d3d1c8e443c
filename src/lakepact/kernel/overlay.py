"""The catalog as seen from inside an open transaction on a document store: what is staged, over everything else.

Looking notes nothing and writes nothing. A document store keeps no history, so what is shown beside the staged cells is
as of one instant after the call began, at which everything the transaction has noted was still as noted; a page of a
scan is not even that, as everywhere. What was only looked at is not pinned: `stage` notes it, if the caller says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakepact.errors import SnapshotTooOld, WrongState
from lakepact.kernel.access import Access
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, is_below, name_of_cell
from lakepact.kernel.model import Cell, CellPage, Isolation, State, Transaction, Value
from lakepact.kernel.openrecord import found_record, live_record
from lakepact.kernel.reader import Reader
from lakepact.kernel.staginglog import LogKeeper, StagingLog, StagingLogs


class Overlay:
    def __init__(self, access: Access, logs: StagingLogs) -> None:
        self._access = access
        self._keeper = LogKeeper(access, logs)
        self._reader = Reader(access)

    async def look(self, transaction_id: TransactionId, keys: Sequence[Key]) -> dict[Key, Cell]:
        """Staged cells, and the others in one cut with everything noted. One round if all of it is remembered.

        The record, the next place of the log and the cells are read side by side: if the place is free, then the log
        was complete at that time, and nothing that was acknowledged before this call is missing.
        """
        log = await self._keeper.remembered(transaction_id)
        while True:
            staged = {key: log.shown(transaction_id, key) for key in keys if key in log.staged}
            outside = [key for key in keys if key not in staged]
            cells, grown = await self._cut_and_look_on(transaction_id, log, outside)
            if not grown:
                return {key: staged.get(key) or cells[key] for key in keys}

    async def _cut_and_look_on(
        self, transaction_id: TransactionId, log: StagingLog, outside: Sequence[Key]
    ) -> tuple[dict[Key, Cell], bool]:
        """These cells as of the transaction's instant, and whether the log had more than is remembered."""
        length, noted = log.length, dict(log.seen)
        cells: dict[Key, Cell] = {}
        grown = False

        async def cut() -> None:
            cells.update(await in_one_instant(self._reader, noted, outside))

        async def look_on() -> None:
            nonlocal grown
            grown = await self._keeper.look_on(transaction_id, log, length)

        await self._access.tasks.all([self._check_readable(transaction_id, log), look_on(), cut()])
        return cells, grown

    async def page(self, transaction_id: TransactionId, prefix: str, after: str | None, limit: int) -> CellPage:
        """A page of cells as they are now, with the staged ones among them: each comes with the page its name is in."""
        log = await self._keeper.remembered(transaction_id)
        pages: list[CellPage] = []

        async def refresh() -> None:
            await self._keeper.look_on(transaction_id, log, log.length)

        async def read_page() -> None:
            pages.append(await self._reader.page(prefix, after, limit, tombstones=True))

        await self._access.tasks.all([self._check_readable(transaction_id, log), refresh(), read_page()])
        page = pages[0]
        shown = {cell.key: cell for cell in page.cells if cell.key not in log.staged}
        check_unmoved(log.seen, shown)
        for key in log.staged:
            if is_below(key, prefix) and _lies_between(after, name_of_cell(key), page.after):
                shown[key] = log.shown(transaction_id, key)
        live = sorted((cell for cell in shown.values() if cell.exists), key=lambda cell: name_of_cell(cell.key))
        return CellPage(tuple(live), page.after)

    async def contents(self, transaction_id: TransactionId) -> Transaction:
        """What is staged and noted by now; once it is no longer open, what its record says."""
        record = (await found_record(self._access, transaction_id)).document
        if record.state is State.OPEN:
            log = await self._keeper.refreshed(transaction_id)
            return plan_of(transaction_id, record.request_hash, log, record.isolation, {}, sealed=log.sealed)
        public = record.public()
        return Transaction(
            record.id, record.request_hash, public.writes, public.reads, record.answer or {}, sealed=True
        )

    async def _check_readable(self, transaction_id: TransactionId, log: StagingLog) -> None:
        record = (await live_record(self._access, transaction_id, State.OPEN, State.PREPARED)).document
        if not record.staged:
            raise WrongState(f"transaction {transaction_id} was never open, so there is nothing to see from inside it")
        log.isolation = record.isolation


def plan_of(
    transaction_id: TransactionId,
    request_hash: str,
    log: StagingLog,
    isolation: Isolation,
    answer: Value,
    *,
    sealed: bool,
) -> Transaction:
    """What a log comes to. Under snapshot isolation nothing depends on what was only read."""
    writes, reads = log.plan()
    kept = reads if isolation is Isolation.SERIALIZABLE else ()
    return Transaction(transaction_id, request_hash, writes, kept, answer, sealed=sealed)


async def in_one_instant(reader: Reader, noted: Mapping[Key, int], keys: Sequence[Key]) -> dict[Key, Cell]:
    """These cells as of the one instant all reads of this transaction share.

    Cells noted before are the same as long as their revision is. A new one must be read in one cut with them.
    """
    new = [key for key in keys if key not in noted]
    cells = await reader.cut(list(dict.fromkeys([*noted, *keys])) if new else list(keys))
    check_unmoved(noted, cells)
    return {key: cells[key] for key in keys}


def check_unmoved(noted: Mapping[Key, int], cells: Mapping[Key, Cell]) -> None:
    for key, cell in cells.items():
        if noted.get(key, cell.revision) != cell.revision:
            raise too_old(key, noted[key], cell.revision)


def too_old(key: Key, noted: int, now: int) -> SnapshotTooOld:
    return SnapshotTooOld(
        f"cell {key!r} was read at revision {noted} and is now at {now}; this store "
        f"keeps no older state. Abort the transaction and run it again"
    )


def _lies_between(after: str | None, name: str, until: str | None) -> bool:
    """Whether a name belongs to the page that begins after the one and ends with the other."""
    return (after is None or name > after) and (until is None or name <= until)

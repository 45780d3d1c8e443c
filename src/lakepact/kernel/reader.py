"""Consistent reading: one cut over many cells, and pages of live cells.

A cut: read all cells, read each distinct locking record once, then read all cells again, and every record that was
undecided. If no version token has changed and every undecided record is still undecided at that epoch, then at the
instant the second reading began all of it was true at once. Otherwise the second reading becomes the first one of
the next attempt. Remembered cells serve as the first reading, so a warm cut takes one round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakepact.errors import Contended
from lakepact.kernel import decide
from lakepact.kernel.access import Access, CellVersion, DeadlinePassed
from lakepact.kernel.decide import UNDECIDED_STATES, Resolved, Standing
from lakepact.kernel.documents import RecordDocument
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, name_prefix_of_cells
from lakepact.kernel.model import Cell, CellPage
from lakepact.kernel.resolve import Resolver, blocker


class Reader:
    def __init__(self, access: Access) -> None:
        self._access = access
        self._resolver = Resolver(access)

    async def cut(self, keys: Sequence[Key]) -> dict[Key, Cell]:
        """These cells as they were at one instant after this call began."""
        if not keys:
            return {}
        attempt = 0
        waited_for: RecordDocument | None = None
        try:
            first = await self._first_reading(keys)
            while True:
                first, resolved = await self._resolve_all(first)
                waited_for = next((blocker(seen) for seen in resolved.values() if seen.blocks_readers), None)
                if waited_for is not None:
                    if not await self._resolver.end_if_over(waited_for):
                        await self._access.pause(attempt)
                    first = await self._read_all(keys)
                else:
                    # One cell is what it is; several must be seen to stand still together.
                    second = await self._confirm(first, resolved) if len(keys) > 1 else None
                    if second is None:
                        return {key: resolved[key].cell for key in keys}
                    first = second
                attempt += 1
        except DeadlinePassed:
            owner = waited_for.id if waited_for is not None else None
            raise Contended(
                f"no consistent cut of {len(keys)} cells could be had in {self._access.settings.deadline_s} s "
                f"({f'transaction {owner} is undecided' if owner else 'they keep changing'}). Try again",
                owner=owner,
                retry_after_s=self._access.settings.max_backoff_s,
            ) from None

    async def _first_reading(self, keys: Sequence[Key]) -> dict[Key, CellVersion]:
        """Remembered cells will do, if there is a second reading to confirm them: with one cell there is none."""
        known = {key: self._access.remembered_cell(key) for key in keys} if len(keys) > 1 else {}
        missing = [key for key in keys if known.get(key) is None]
        fetched = await self._read_all(missing)
        return {key: known.get(key) or fetched[key] for key in keys}

    async def page(self, prefix: str, after: str | None, limit: int, *, tombstones: bool = False) -> CellPage:
        """Live cells (or all there are) below a prefix, in the order of their document names. Not a cut.

        One round lists, one reads the cells that are not remembered at the listed version, one reads the records
        of those that are locked.
        """
        entries = await self._access.list(name_prefix_of_cells(prefix), after, limit)
        versions = await self._access.tasks.all([self._access.cell_listed(entry) for entry in entries])
        _, resolved = await self._resolve_all({v.document.key: v for v in versions if v is not None})
        cells: list[Cell] = []
        for key, seen in resolved.items():
            cell = (await self.cut([key]))[key] if seen.blocks_readers else seen.cell
            if cell.exists or tombstones:
                cells.append(cell)
        return CellPage(tuple(cells), entries[-1].name if len(entries) == limit else None)

    async def _read_all(self, keys: Sequence[Key]) -> dict[Key, CellVersion]:
        if not keys:
            return {}
        versions = await self._access.tasks.all([self._access.cell(key) for key in keys])
        return dict(zip(keys, versions, strict=True))

    async def _resolve_all(
        self, versions: Mapping[Key, CellVersion]
    ) -> tuple[dict[Key, CellVersion], dict[Key, Resolved]]:
        """The effective cells, each distinct locking record read once and after the cells."""
        locking = list(dict.fromkeys(v.document.lock.transaction for v in versions.values() if v.document.lock))
        records: dict[TransactionId, RecordDocument | None] = {}
        if locking:
            found = await self._access.tasks.all([self._access.record_of_lock(owner) for owner in locking])
            records = dict(zip(locking, found, strict=True))
        seen = dict(versions)
        resolved: dict[Key, Resolved] = {}
        for key, version in versions.items():
            lock = version.document.lock
            record = records[lock.transaction] if lock is not None else None
            if lock is not None and (record is None or record.trimmed):
                seen[key], resolved[key] = await self._resolver.effective(version)
            else:
                resolved[key] = decide.resolve(version.document, record)
        return seen, resolved

    async def _confirm(
        self, first: Mapping[Key, CellVersion], resolved: Mapping[Key, Resolved]
    ) -> dict[Key, CellVersion] | None:
        """Read everything again. None if nothing has changed, else the second reading."""
        undecided = {
            blocker(seen).id: blocker(seen) for seen in resolved.values() if seen.standing is Standing.UNDECIDED
        }
        second, still = await self._both(list(first), list(undecided))
        cells_equal = all(second[key].token == version.token for key, version in first.items())
        records_equal = all(
            (found := still[transaction_id]) is not None
            and found.state in UNDECIDED_STATES
            and found.epoch == record.epoch
            for transaction_id, record in undecided.items()
        )
        return None if cells_equal and records_equal else second

    async def _both(
        self, keys: Sequence[Key], records: Sequence[TransactionId]
    ) -> tuple[dict[Key, CellVersion], dict[TransactionId, RecordDocument | None]]:
        """Cells and records side by side, in one round."""
        found: dict[TransactionId, RecordDocument | None] = {}
        cells: dict[Key, CellVersion] = {}

        async def read_record(transaction_id: TransactionId) -> None:
            version = await self._access.record(transaction_id)
            found[transaction_id] = version.document if version is not None else None

        async def read_cell(key: Key) -> None:
            cells[key] = await self._access.cell(key)

        await self._access.tasks.all([*map(read_cell, keys), *map(read_record, records)])
        return cells, found

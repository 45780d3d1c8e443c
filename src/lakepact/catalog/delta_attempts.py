"""The rows of one transaction, over all attempts to commit it: written once, then moved to where they are needed."""

from __future__ import annotations

from collections.abc import Sequence

from lakepact.catalog.delta_steps import needed
from lakepact.delta.ports import DeltaRows, TableChange
from lakepact.errors import RowsGone
from lakepact.kernel.identity import TransactionId


class PlannedRows:
    """What the attempts of one call have put. A version that others have taken is no reason to write it all again."""

    def __init__(
        self, rows: DeltaRows | None, transaction_id: TransactionId, request_hash: str, *, discards: bool
    ) -> None:
        """`discards`: what an attempt has left for other tables goes. Not for a transaction whose statements are
        staged: they would go with it."""
        self._rows = rows
        self._id = transaction_id
        self._hash = request_hash
        self._discards = discards
        self._placed: Sequence[TableChange] = ()

    async def place(self, changes: Sequence[TableChange]) -> None:
        """Let exactly these be planned. Raises what `DeltaRows.put` and `move` raise but `RowsGone`."""
        if not changes:
            return
        rows = needed(self._rows)
        if self._placed:
            if await self._moved(rows, changes):
                self._placed = changes
                return
            if self._discards:
                await rows.discard(self._id)
        await rows.put(self._id, changes, request_hash=self._hash)
        self._placed = changes

    def lost(self) -> None:
        """A commit has not found them: another attempt under the same id has put its own, or put them aside."""
        self._placed = ()

    async def _moved(self, rows: DeltaRows, changes: Sequence[TableChange]) -> bool:
        """Whether only versions have changed, and the rows are where they are needed now."""
        placed = {one.table_id: one for one in self._placed}
        if placed.keys() != {one.table_id for one in changes}:
            return False
        if any(placed[one.table_id].actions != one.actions for one in changes):
            return False
        try:
            for one in changes:
                if (version := placed[one.table_id].version) != one.version:
                    await rows.move(self._id, one.table_id, version, one.version, request_hash=self._hash)
        except RowsGone:
            return False
        return True

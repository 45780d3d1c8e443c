"""What anyone does on meeting somebody else's unfinished transaction.

Fencing: nobody clears a lock that counts before its record has been swapped out of its undecided state. Leases and
clocks decide only when somebody may try; the swap decides whether. Everything here may be done by anyone, twice,
at the same time, and lost halfway.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakepact.kernel import decide
from lakepact.kernel.access import Access, CellVersion, RecordVersion
from lakepact.kernel.decide import Resolved, Standing
from lakepact.kernel.documents import RecordDocument
from lakepact.kernel.keys import Key
from lakepact.kernel.model import State


class Resolver:
    def __init__(self, access: Access) -> None:
        self._access = access

    async def effective(self, version: CellVersion) -> tuple[CellVersion, Resolved]:
        """The cell as a reader must see it: the cell first, then the record behind its lock.

        If the record is missing, or only its stub is left, the cell is read again before anyone speaks of damage or
        of a stale lock: the value may have been applied, and the record collected, in between.
        """
        while (lock := version.document.lock) is not None:
            record = await self._access.record_of_lock(lock.transaction)
            if record is None or record.trimmed:
                again = await self._access.cell(version.document.key)
                if again.token != version.token:
                    version = again
                    continue
            return version, decide.resolve(version.document, record)
        return version, decide.resolve(version.document, None)

    async def end_if_over(self, record: RecordDocument) -> bool:
        """Swap an undecided transaction whose lease is over out of the way. True if it is worth looking again."""
        if not decide.lease_over(record, self._access.now_ms()):
            return False
        current = await self._access.record(record.id)
        if current is not None and decide.lease_over(current.document, self._access.now_ms()):
            await self.give_up(current)
        return True

    async def give_up(self, version: RecordVersion) -> RecordVersion | None:
        """Swap an undecided record out of its state: preparing to retryable, prepared to aborted.

        The record as it stands afterwards if the swap was ours, else None: somebody else was there first.
        """
        now_ms = self._access.now_ms()
        match version.document.state:
            case State.PREPARING:
                expires_ms = now_ms + int(self._access.settings.retryable_s * 1000)
                return await self._access.write_record(version, decide.retryable(version.document, expires_ms))
            case State.PREPARED:
                return await self._access.write_record(version, decide.aborted(version.document, now_ms))
            case _:
                return None

    async def finish(self, version: RecordVersion, held: Mapping[Key, CellVersion] | None = None) -> bool:
        """Write the values of a decided transaction into its cells, clear its locks, mark it finalized."""
        done = await self.release(version.document, held)
        if not done:
            return False
        return await self._access.write_record(version, decide.finalized(version.document)) is not None

    async def clean_up(self, version: RecordVersion, held: Mapping[Key, CellVersion] | None = None) -> None:
        """What is left to do once a transaction is decided, or retryable."""
        if version.document.state.final:
            await self.finish(version, held)
        else:
            await self.release(version.document, held)

    async def release(self, record: RecordDocument, held: Mapping[Key, CellVersion] | None = None) -> bool:
        """See to it that no touched cell carries a lock of this transaction any more, its value applied if committed.

        `record` must be decided, or retryable: then only locks up to its epoch are cleared.
        """
        known = held or {}
        results = await self._access.tasks.all(
            [self._release_cell(record, key, known.get(key)) for key in record.touched]
        )
        return all(results)

    async def _release_cell(self, record: RecordDocument, key: Key, known: CellVersion | None) -> bool:
        version = known or await self._access.cell(key)
        for _ in range(self._access.settings.resends + 1):
            next_document = decide.settled(version.document, record)
            if next_document is None or await self._access.write_cell(version, next_document) is not None:
                return True
            # Refused or unknown: look again. Whoever was there first may have done it, or our own write has landed.
            version = await self._access.cell(key)
        return False


def blocker(resolved: Resolved) -> RecordDocument:
    """The record of an undecided lock."""
    assert resolved.standing is Standing.UNDECIDED and resolved.record is not None
    return resolved.record

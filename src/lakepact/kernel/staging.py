"""Open transactions on a document store: a record that says "open", and a log of what was staged.

`seal` appends the entry that ends the log: creation orders it against every staging call, so all that was acknowledged
is in the plan, and nothing is acknowledged afterwards.

Reads are of one instant. A document store keeps no history, so each new cell is read in one cut with all that were
seen before; if one of those has moved, the instant cannot be shown any more and the read is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakepact.errors import OutcomeUnknown, SnapshotTooOld, StoreUnavailable, TransactionNotFound, WrongState
from lakepact.kernel import checks, decide
from lakepact.kernel.access import Access, RecordVersion
from lakepact.kernel.checks import CheckedValue
from lakepact.kernel.documents import StagedEntry
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Isolation, Read, State, Transaction, TransactionRecord, Value, Write
from lakepact.kernel.protocol import closed
from lakepact.kernel.reader import Reader
from lakepact.kernel.staginglog import LogKeeper, StagingLog, StagingLogs


class Staging:
    def __init__(self, access: Access, logs: StagingLogs) -> None:
        self._access = access
        self._keeper = LogKeeper(access, logs)
        self._reader = Reader(access)

    async def begin(
        self,
        transaction_id: TransactionId,
        request_hash: str,
        ttl_s: float,
        isolation: Isolation,
        properties: Mapping[str, str],
    ) -> TransactionRecord:
        identity = self._access.identity(self._access.fresh_owner())
        record = decide.opened(
            transaction_id,
            identity,
            request_hash=request_hash,
            expires_ms=identity.now_ms + int(ttl_s * 1000),
            isolation=isolation,
            properties=properties,
            write_format=self._access.settings.write_format,
        )
        created = await self._access.write_record(None, record)
        if created is not None:
            return created.document.public()
        existing = await self._record(transaction_id)
        decide.check_hash(existing.document, request_hash)
        return existing.document.public()

    async def read_in(self, transaction_id: TransactionId, keys: Sequence[Key]) -> dict[Key, Cell]:
        await self._live_record(transaction_id, State.OPEN)
        while True:
            # What was seen before is taken down once, and so is the next place in the log: if another call takes it
            # while the cut is read, that call may have seen cells of its own, and the cut is read again with them.
            log = await self._keeper.refreshed(transaction_id)
            place, seen = log.length + 1, dict(log.seen)
            staged = {
                key: Cell(key, (log.base(key) or 0) + 1, log.staged[key], transaction_id)
                for key in keys
                if key in log.staged
            }
            outside = [key for key in keys if key not in staged]
            cells = await self._in_one_instant(seen, outside)
            reads = {key: cells[key].revision for key in outside if key not in seen}
            if not reads or await self._append_reads(transaction_id, log, place, reads):
                return {key: staged.get(key) or cells[key] for key in keys}

    async def _append_reads(
        self, transaction_id: TransactionId, log: StagingLog, place: int, reads: Mapping[Key, int]
    ) -> bool:
        checks.check_cell_count(log.count_with([*reads]), self._access.settings)
        if log.sealed:
            raise _sealed(transaction_id)
        try:
            return await self._keeper.append(log, self._entry(transaction_id, place, reads=reads))
        except OutcomeUnknown as error:
            raise StoreUnavailable(f"what transaction {transaction_id} read could not be noted: {error}") from error

    async def stage(self, transaction_id: TransactionId, operation_id: str, writes: Mapping[Key, CheckedValue]) -> None:
        log = await self._keeper.remembered(transaction_id)
        while operation_id not in log.operations:
            if log.sealed:
                raise _sealed(transaction_id)
            place = log.length + 1
            bases = await self._bases(transaction_id, log, [key for key in writes if log.base(key) is None])
            checks.check_cell_count(log.count_with([*writes]), self._access.settings)
            checks.check_total(log.size_with({key: value.size for key, value in writes.items()}), self._access.settings)
            values = {key: checked.value for key, checked in writes.items()}
            # Whether the log has grown elsewhere shows when we append: then what stands there is folded, and once more.
            await self._keeper.append(log, self._entry(transaction_id, place, operation_id, values, bases))

    async def _bases(self, transaction_id: TransactionId, log: StagingLog, unknown: Sequence[Key]) -> dict[Key, int]:
        """The revisions that cells not seen before are based on; and the record is looked at, in the same round.

        A blind write shows nothing to anyone, so under serializable isolation its base needs no cut: whatever else
        was read is validated at the commit. Under snapshot isolation it is not, so there the base must be of the
        same instant as everything that was read.
        """
        bases: dict[Key, int] = {}

        async def check_open() -> None:
            log.isolation = (await self._live_record(transaction_id, State.OPEN)).document.isolation

        async def find_base(key: Key) -> None:
            bases[key] = (await self._reader.cut([key]))[key].revision

        if log.seen and unknown and log.isolation is not Isolation.SERIALIZABLE:
            await check_open()
            if log.isolation is Isolation.SNAPSHOT:
                cells = await self._in_one_instant(dict(log.seen), unknown)
                return {key: cell.revision for key, cell in cells.items()}
        await self._access.tasks.all([check_open(), *(find_base(key) for key in unknown)])
        return bases

    async def seal(self, transaction_id: TransactionId, answer: Value) -> Transaction:
        anything_but_aborted = [state for state in State if state is not State.ABORTED]
        record = (await self._live_record(transaction_id, *anything_but_aborted)).document
        if record.state.final:
            # Decided already: the caller commits again to hear the answer again.
            decided = record.public()
            return Transaction(record.id, record.request_hash, decided.writes, decided.reads, answer, sealed=True)
        log = await self._keeper.refreshed(transaction_id)
        while not log.sealed:
            await self._keeper.append(log, self._entry(transaction_id, log.length + 1, sealed=True))
        reads = log.seen if record.isolation is Isolation.SERIALIZABLE else {}
        return Transaction(
            id=transaction_id,
            request_hash=record.request_hash,
            writes=tuple(Write(key, log.base(key) or 0, value) for key, value in log.staged.items()),
            reads=tuple(Read(key, revision) for key, revision in reads.items() if key not in log.staged),
            answer=answer,
            sealed=True,
        )

    def _entry(
        self,
        transaction_id: TransactionId,
        place: int,
        operation: str | None = None,
        writes: Mapping[Key, Value | None] | None = None,
        bases: Mapping[Key, int] | None = None,
        *,
        reads: Mapping[Key, int] | None = None,
        sealed: bool = False,
    ) -> StagedEntry:
        return StagedEntry(
            transaction_id,
            place,
            operation or self._access.fresh_owner(),
            writes or {},
            bases or {},
            reads or {},
            sealed,
            self._access.settings.write_format,
        )

    async def renew(self, transaction_id: TransactionId, ttl_s: float) -> TransactionRecord:
        attempt = 0
        while True:
            version = await self._live_record(transaction_id, State.OPEN, State.PREPARED)
            record = version.document
            wanted_ms = max(record.expires_ms or 0, self._access.now_ms() + int(ttl_s * 1000))
            if record.expires_ms == wanted_ms:
                return record.public()
            renewed = await self._access.swap_record_once(version, decide.renewed(record, wanted_ms))
            if renewed is not None:
                return renewed.document.public()
            await self._access.pause(attempt)
            attempt += 1

    async def abort(self, transaction_id: TransactionId) -> RecordVersion:
        attempt = 0
        while True:
            version = await self._record(transaction_id)
            match version.document.state:
                case State.ABORTED:
                    self._keeper.forget(transaction_id)
                    return version
                case State.OPEN | State.PREPARED | State.RETRYABLE:
                    given_up = decide.aborted(version.document, self._access.now_ms())
                    if await self._access.swap_record_once(version, given_up) is None:
                        await self._access.pause(attempt)
                case State.PREPARING:
                    raise WrongState(
                        f"transaction {transaction_id} is being committed right now and cannot be aborted; "
                        f"look it up to learn how it ended"
                    )
                case _:
                    raise closed(version.document)
            attempt += 1

    # --- reading at one instant ---

    async def _in_one_instant(self, seen: Mapping[Key, int], keys: Sequence[Key]) -> dict[Key, Cell]:
        """These cells as of the one instant all reads of this transaction share.

        Cells seen before are the same as long as their revision is. A new one must be read in one cut with them.
        """
        new = [key for key in keys if key not in seen]
        cells = await self._reader.cut(list(dict.fromkeys([*seen, *keys])) if new else list(keys))
        for key, cell in cells.items():
            if seen.get(key, cell.revision) != cell.revision:
                raise SnapshotTooOld(
                    f"cell {key!r} was read at revision {seen[key]} and is now at {cell.revision}; this store "
                    f"keeps no older state. Abort the transaction and run it again"
                )
        return {key: cells[key] for key in keys}

    # --- the record ---

    async def _record(self, transaction_id: TransactionId) -> RecordVersion:
        version = await self._access.record(transaction_id)
        if version is None:
            raise TransactionNotFound(f"there is no transaction {transaction_id}; begin it first")
        return version

    async def _live_record(self, transaction_id: TransactionId, *allowed: State) -> RecordVersion:
        """The record, in one of these states and not past its time. One that is past it is aborted on the way.

        Only what the record says is told to the caller: if our abort was refused, somebody may have renewed it.
        """
        attempt = 0
        while True:
            version = await self._record(transaction_id)
            record = version.document
            if decide.expired(record, self._access.now_ms()):
                aborted = decide.aborted(record, self._access.now_ms())
                if await self._access.swap_record_once(version, aborted) is None:
                    await self._access.pause(attempt)
            elif record.state in allowed:
                return version
            elif record.state.final:
                raise closed(record)
            else:
                raise WrongState(
                    f"transaction {record.id} is {record.state.value}; this step needs it to be "
                    f"{' or '.join(state.value for state in allowed)}. Look it up to learn how it ends"
                )
            attempt += 1


def _sealed(transaction_id: TransactionId) -> WrongState:
    return WrongState(
        f"transaction {transaction_id} is sealed for its commit and takes no more changes; begin a new transaction"
    )

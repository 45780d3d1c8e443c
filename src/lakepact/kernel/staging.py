"""Open transactions on a document store: a record that says "open", and a log of what was staged.

`seal` appends the entry that ends the log: creation orders it against every staging call, so all that was acknowledged
is in the plan, and nothing is acknowledged afterwards.

Reads are of one instant. A document store keeps no history, so each new cell is read in one cut with all that were
seen before; if one of those has moved, the instant cannot be shown any more and the read is refused.

A caller may instead look without leaving a trace (`overlay`), plan, and stage with what it was shown. That is compared
with the log up to the very place the entry takes, and noted in the same entry: creation makes it one atomic step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakepact.errors import LakepactError, OutcomeUnknown, StoreUnavailable, WrongState
from lakepact.kernel import checks, decide
from lakepact.kernel.access import Access, RecordVersion
from lakepact.kernel.checks import CheckedValue
from lakepact.kernel.documents import StagedEntry
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Isolation, State, Transaction, TransactionRecord, Value
from lakepact.kernel.openrecord import found_record, live_record
from lakepact.kernel.overlay import check_unmoved, in_one_instant, plan_of, too_old
from lakepact.kernel.protocol import closed
from lakepact.kernel.reader import Reader
from lakepact.kernel.seen import Seen
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
        existing = await found_record(self._access, transaction_id)
        decide.check_hash(existing.document, request_hash)
        return existing.document.public()

    async def read_in(self, transaction_id: TransactionId, keys: Sequence[Key]) -> dict[Key, Cell]:
        await live_record(self._access, transaction_id, State.OPEN)
        while True:
            # What was seen before is taken down once, and so is the next place in the log: if another call takes it
            # while the cut is read, that call may have seen cells of its own, and the cut is read again with them.
            log = await self._keeper.refreshed(transaction_id)
            place, seen = log.length + 1, dict(log.seen)
            staged = {key: log.shown(transaction_id, key) for key in keys if key in log.staged}
            outside = [key for key in keys if key not in staged]
            cells = await in_one_instant(self._reader, seen, outside)
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

    async def stage(
        self,
        transaction_id: TransactionId,
        operation_id: str,
        writes: Mapping[Key, CheckedValue],
        planned_on: Mapping[Key, Seen],
    ) -> None:
        log = await self._keeper.remembered(transaction_id)
        while operation_id not in log.operations:
            if log.sealed:
                raise _sealed(transaction_id)
            place = log.length + 1
            objection = log.outdated(transaction_id, planned_on) or _noted_otherwise(log, planned_on)
            if objection is not None:
                # What is remembered may be old: this very operation may have been staged through another process.
                if await self._keeper.look_on(transaction_id, log, place - 1):
                    continue
                raise objection
            reads = {key: seen.revision for key, seen in planned_on.items() if not seen.staged and key not in log.seen}
            unknown = [key for key in writes if key not in reads and log.base(key) is None]
            bases = await self._bases(transaction_id, log, reads, unknown)
            checks.check_cell_count(log.count_with([*writes, *reads]), self._access.settings)
            checks.check_total(log.size_with({key: value.size for key, value in writes.items()}), self._access.settings)
            values = {key: checked.value for key, checked in writes.items()}
            # Whether the log has grown elsewhere shows when we append: then what stands there is folded, and once more.
            await self._keeper.append(log, self._entry(transaction_id, place, operation_id, values, bases, reads=reads))

    async def _bases(
        self, transaction_id: TransactionId, log: StagingLog, reads: Mapping[Key, int], unknown: Sequence[Key]
    ) -> dict[Key, int]:
        """The revisions that cells not seen before are based on; and the record is looked at, in the same round.

        A blind write shows nothing to anyone, so under serializable isolation its base needs no cut: whatever else
        was read, in this call (`reads`) or before, is validated at the commit. Under snapshot isolation it is not, so
        there all of it must be of one instant before it is noted.
        """
        bases: dict[Key, int] = {}

        async def check_open() -> None:
            log.isolation = (await live_record(self._access, transaction_id, State.OPEN)).document.isolation

        async def find_base(key: Key) -> None:
            bases[key] = (await self._reader.cut([key]))[key].revision

        if (reads or (log.seen and unknown)) and log.isolation is not Isolation.SERIALIZABLE:
            noted = dict(log.seen)
            await check_open()
            if log.isolation is Isolation.SNAPSHOT:
                cells = await in_one_instant(self._reader, noted, [*reads, *unknown])
                check_unmoved(reads, cells)
                return {key: cells[key].revision for key in unknown}
        await self._access.tasks.all([check_open(), *(find_base(key) for key in unknown)])
        return bases

    async def seal(self, transaction_id: TransactionId, answer: Value) -> Transaction:
        anything_but_aborted = [state for state in State if state is not State.ABORTED]
        record = (await live_record(self._access, transaction_id, *anything_but_aborted)).document
        if record.state.final:
            # Decided already: the caller commits again to hear the answer again.
            decided = record.public()
            return Transaction(record.id, record.request_hash, decided.writes, decided.reads, answer, sealed=True)
        log = await self._keeper.refreshed(transaction_id)
        while not log.sealed:
            await self._keeper.append(log, self._entry(transaction_id, log.length + 1, sealed=True))
        return plan_of(transaction_id, record.request_hash, log, record.isolation, answer, sealed=True)

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
            version = await live_record(self._access, transaction_id, State.OPEN, State.PREPARED)
            record = version.document
            longest_s = self._access.settings.prepared_s if record.state is State.PREPARED else ttl_s
            wanted_ms = max(record.expires_ms or 0, self._access.now_ms() + int(min(ttl_s, longest_s) * 1000))
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
            version = await found_record(self._access, transaction_id)
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


def _noted_otherwise(log: StagingLog, planned_on: Mapping[Key, Seen]) -> LakepactError | None:
    """What to say if one of these cells was noted at another revision than it was shown at: two instants."""
    for key, seen in planned_on.items():
        noted = log.seen.get(key, seen.revision)
        if not seen.staged and noted != seen.revision:
            return too_old(key, min(noted, seen.revision), max(noted, seen.revision))
    return None


def _sealed(transaction_id: TransactionId) -> WrongState:
    return WrongState(
        f"transaction {transaction_id} is sealed for its commit and takes no more changes; begin a new transaction"
    )

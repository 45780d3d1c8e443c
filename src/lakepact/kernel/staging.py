"""Open transactions on a document store: a record that says "open", and a log of what was staged.

Each staging call appends one entry to the log by creating the document of the next sequence number, so the
thousandth call costs what the first did, and a call that is sent twice is recognised by its operation id. `seal`
appends the entry that ends the log: create-if-absent orders it against every staging call, so all that was
acknowledged is in the plan, and nothing is acknowledged afterwards.

Reads are of one instant. A document store keeps no history, so each new cell is read in one cut with all that were
seen before; if one of those has moved, the instant cannot be shown any more and the read is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakepact.errors import SnapshotTooOld, TransactionNotFound, WrongState
from lakepact.kernel import checks, decide
from lakepact.kernel.access import Access, RecordVersion, Remembered
from lakepact.kernel.documents import StagedEntry, id_of_record_name, name_prefix_of_staged
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Isolation, Read, State, Transaction, TransactionRecord, Value, Write
from lakepact.kernel.protocol import closed
from lakepact.kernel.reader import Reader


@dataclass(slots=True)
class StagingLog:
    """The fold of a transaction's log up to `length`. Grows in place: folding one more entry is constant work."""

    length: int = 0
    sealed: bool = False
    seen: dict[Key, int] = field(default_factory=dict)
    bases: dict[Key, int] = field(default_factory=dict)
    staged: dict[Key, Value | None] = field(default_factory=dict)
    operations: set[str] = field(default_factory=set)

    def fold(self, entry: StagedEntry) -> None:
        """Take in the next entry. An operation that was staged already counts once."""
        if entry.sequence != self.length + 1:
            return
        self.length = entry.sequence
        if self.sealed or entry.operation in self.operations:
            return
        self.operations.add(entry.operation)
        self.sealed = entry.sealed
        for key, revision in entry.reads.items():
            self.seen.setdefault(key, revision)
        for key, revision in entry.bases.items():
            self.bases.setdefault(key, revision)
        self.staged.update(entry.writes)

    def base(self, key: Key) -> int | None:
        """The revision a write of this cell is based on: what was read, else what it was when first written."""
        return self.seen.get(key, self.bases.get(key))

    def copy(self) -> StagingLog:
        """As it is now: the log itself is shared by all calls of the process and grows while they wait."""
        return StagingLog(
            self.length, self.sealed, dict(self.seen), dict(self.bases), dict(self.staged), set(self.operations)
        )

    @property
    def cell_count(self) -> int:
        return len(self.seen.keys() | self.staged.keys())


StagingLogs = Remembered[TransactionId, StagingLog]


class Staging:
    def __init__(self, access: Access, logs: StagingLogs) -> None:
        self._access = access
        self._logs = logs
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
            # What was seen before is taken down once: while the cut is read, another call may read cells of its own.
            # Then the place in the log is taken, and the cut is read again together with those.
            log = (await self._refreshed(transaction_id)).copy()
            outside = [key for key in keys if key not in log.staged]
            cells = await self._as_of_this_transaction(log, outside)
            new_reads = {key: cells[key].revision for key in outside if key not in log.seen}
            if not new_reads or await self._record_reads(transaction_id, log, new_reads):
                break
        for key in keys:
            if key in log.staged:
                cells[key] = Cell(key, (log.base(key) or 0) + 1, log.staged[key], transaction_id)
        return {key: cells[key] for key in keys}

    async def _record_reads(self, transaction_id: TransactionId, log: StagingLog, reads: Mapping[Key, int]) -> bool:
        """Append what was seen, if nothing has been appended since the log was taken down."""
        checks.check_cell_count(log.cell_count + len(reads), self._access.settings)
        if log.sealed:
            raise _sealed(transaction_id)
        entry = StagedEntry(transaction_id, log.length + 1, self._access.fresh_owner(), reads=reads)
        appended = await self._access.append_staged(entry)
        if appended:
            (await self._remembered(transaction_id)).fold(entry)
        return appended

    async def stage(self, transaction_id: TransactionId, operation_id: str, writes: Mapping[Key, Value | None]) -> None:
        log = await self._remembered(transaction_id)
        unknown = [key for key in writes if log.base(key) is None]
        checks.check_cell_count(log.cell_count + len(unknown), self._access.settings)
        # A blind write shows nothing to anyone, so its base needs no cut: a moved cell is a conflict at commit.
        # The record and the bases are read side by side. Whether the log has grown elsewhere shows when we append.
        bases: dict[Key, int] = {}

        async def find_base(key: Key) -> None:
            bases[key] = (await self._reader.cut([key]))[key].revision

        async def check_open() -> None:
            await self._live_record(transaction_id, State.OPEN)

        await self._access.tasks.all([check_open(), *(find_base(key) for key in unknown)])
        await self._append(transaction_id, log, operation=operation_id, writes=writes, bases=bases)

    async def seal(self, transaction_id: TransactionId, answer: Value) -> Transaction:
        record = (await self._record(transaction_id)).document
        if record.state in (State.COMMITTED, State.FAILED):
            # Decided already: the caller commits again to hear the answer again.
            decided = record.public()
            return Transaction(record.id, record.request_hash, decided.writes, decided.reads, answer, sealed=True)
        await self._live_record(transaction_id, State.OPEN, State.PREPARING, State.PREPARED, State.RETRYABLE)
        log = await self._refreshed(transaction_id)
        if not log.sealed:
            await self._append(transaction_id, log, operation=self._access.fresh_owner(), sealed=True)
        reads = log.seen if record.isolation is Isolation.SERIALIZABLE else {}
        return Transaction(
            id=transaction_id,
            request_hash=record.request_hash,
            writes=tuple(Write(key, log.base(key) or 0, value) for key, value in log.staged.items()),
            reads=tuple(Read(key, revision) for key, revision in reads.items() if key not in log.staged),
            answer=answer,
            sealed=True,
        )

    async def renew(self, transaction_id: TransactionId, ttl_s: float) -> TransactionRecord:
        while True:
            version = await self._live_record(transaction_id, State.OPEN, State.PREPARED)
            record = version.document
            wanted_ms = max(record.expires_ms or 0, self._access.now_ms() + int(ttl_s * 1000))
            if record.expires_ms == wanted_ms:
                return record.public()
            renewed = await self._access.swap_record_once(version, decide.renewed(record, wanted_ms))
            if renewed is not None:
                return renewed.document.public()

    async def abort(self, transaction_id: TransactionId) -> RecordVersion:
        while True:
            version = await self._record(transaction_id)
            match version.document.state:
                case State.ABORTED:
                    return version
                case State.OPEN | State.PREPARED | State.RETRYABLE:
                    given_up = decide.aborted(version.document, self._access.now_ms())
                    await self._access.swap_record_once(version, given_up)
                case State.PREPARING:
                    raise WrongState(
                        f"transaction {transaction_id} is being committed right now and cannot be aborted; "
                        f"look it up to learn how it ended"
                    )
                case _:
                    raise closed(version.document)

    # --- the log ---

    async def _remembered(self, transaction_id: TransactionId) -> StagingLog:
        """The log as this process knows it, read from the start if it does not. Others may have appended since."""
        log = self._logs.get(transaction_id)
        if log is None:
            log = StagingLog()
            await self._load(transaction_id, log)
            self._logs.put(transaction_id, log)
        return log

    async def _refreshed(self, transaction_id: TransactionId) -> StagingLog:
        """The log up to now: what is remembered, and whatever any process has appended since."""
        log = await self._remembered(transaction_id)
        while not log.sealed:
            entry = await self._access.staged_entry(transaction_id, log.length + 1)
            if entry is None:
                break
            log.fold(entry)
        return log

    async def _load(self, transaction_id: TransactionId, log: StagingLog) -> None:
        """Read a log from the start: the listing says how long it is, and its entries are read side by side."""
        after: str | None = None
        page = self._access.settings.max_page
        while True:
            entries = await self._access.list(name_prefix_of_staged(transaction_id), after, page)
            sequences = [int(id_of_record_name(entry.name)) for entry in entries]
            found = await self._access.tasks.all(
                [self._access.staged_entry(transaction_id, sequence) for sequence in sequences]
            )
            for entry in found:
                if entry is not None:
                    log.fold(entry)
            if len(entries) < page:
                return
            after = entries[-1].name

    async def _append(
        self,
        transaction_id: TransactionId,
        log: StagingLog,
        *,
        operation: str,
        writes: Mapping[Key, Value | None] | None = None,
        bases: Mapping[Key, int] | None = None,
        sealed: bool = False,
    ) -> None:
        """Append this operation, unless it is in the log already."""
        while operation not in log.operations:
            if log.sealed:
                if sealed:
                    return
                raise _sealed(transaction_id)
            entry = StagedEntry(transaction_id, log.length + 1, operation, writes or {}, bases or {}, sealed=sealed)
            if await self._access.append_staged(entry):
                log.fold(entry)
            else:
                log = await self._refreshed(transaction_id)

    # --- reading at one instant ---

    async def _as_of_this_transaction(self, log: StagingLog, keys: Sequence[Key]) -> dict[Key, Cell]:
        """These cells as of the one instant all reads of this transaction share.

        Cells seen before are the same as long as their revision is. A new one must be read in one cut with them.
        """
        new = [key for key in keys if key not in log.seen]
        wanted = list(dict.fromkeys([*log.seen, *keys])) if new else list(keys)
        cells = await self._reader.cut(wanted)
        for key, cell in cells.items():
            if key in log.seen and log.seen[key] != cell.revision:
                raise SnapshotTooOld(
                    f"cell {key!r} was read at revision {log.seen[key]} and is now at {cell.revision}; this store "
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
        while True:
            version = await self._record(transaction_id)
            record = version.document
            if record.state.final:
                raise closed(record)
            if decide.expired(record, self._access.now_ms()):
                await self._access.swap_record_once(version, decide.aborted(record, self._access.now_ms()))
            elif record.state in allowed:
                return version
            else:
                raise WrongState(
                    f"transaction {record.id} is {record.state.value}; this step needs it to be "
                    f"{' or '.join(state.value for state in allowed)}. Look it up to learn how it ends"
                )


def _sealed(transaction_id: TransactionId) -> WrongState:
    return WrongState(
        f"transaction {transaction_id} is sealed for its commit and takes no more changes; begin a new transaction"
    )

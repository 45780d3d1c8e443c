"""Reading and swapping the protocol's documents: typed, remembered, bounded by the caller's deadline.

One `Access` serves one call. What a process remembers between calls is in `Memory`: cells with their version tokens,
which save the first read of a commit, and decided records, which never change their verdict. A remembered cell may
be stale: it is used to *try* a swap, or as a first reading that a second one must confirm, and never by itself to
answer a reader or to judge a conflict.

Unknown answers are settled here, by reading back: a caller sees "written" or "not written", or an error that says the
store did not answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from lakepact.errors import OutcomeUnknown, StoreUnavailable, Unreadable
from lakepact.kernel.decide import Identity, Settled, settle_lock, settle_record
from lakepact.kernel.documents import (
    CellDocument,
    RecordDocument,
    StagedEntry,
    decode_cell,
    decode_record,
    decode_staged,
    encode_cell,
    encode_record,
    encode_staged,
    name_of_record,
    name_of_staged,
)
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, name_of_cell
from lakepact.kernel.ports import Applied, Clock, DocumentEntry, DocumentStore, Refused, Rng, Tasks, WriteOutcome
from lakepact.kernel.settings import KernelSettings

_OVERHEAD = 1_000
"""What a remembered document costs beyond its bytes, roughly."""

D = TypeVar("D", CellDocument, RecordDocument)
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Version(Generic[D]):
    """A document as it was read or written, with the token that stands for exactly these bytes.

    A cell that has no document yet is a version with no token; writing over it creates it.
    """

    document: D
    token: str | None


CellVersion = Version[CellDocument]
RecordVersion = Version[RecordDocument]


class DeadlinePassed(StoreUnavailable):
    """The call has used up its time; nothing more is sent on its behalf."""


class Remembered(Generic[K, V]):
    """A map that forgets what was least recently used, once it weighs more than its limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._weight = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: K, value: V, weight: int = 1) -> None:
        self.forget(key)
        self._entries[key] = (value, weight)
        self._weight += weight
        while self._weight > self._limit and self._entries:
            _, (_, lightened) = self._entries.popitem(last=False)
            self._weight -= lightened

    def forget(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._weight -= entry[1]

    def __len__(self) -> int:
        return len(self._entries)


class Memory:
    """What one process remembers between calls. Bounded, and never trusted for an answer."""

    def __init__(self, settings: KernelSettings) -> None:
        self.cells: Remembered[str, CellVersion] = Remembered(settings.cached_bytes)
        self.decided: Remembered[TransactionId, RecordDocument] = Remembered(settings.cached_bytes)


@dataclass(frozen=True, slots=True)
class Ports:
    documents: DocumentStore
    clock: Clock
    rng: Rng
    tasks: Tasks
    settings: KernelSettings


class Access:
    """One call's way to the store."""

    def __init__(self, ports: Ports, memory: Memory) -> None:
        self._ports = ports
        self.settings = ports.settings
        self.tasks = ports.tasks
        self.clock = ports.clock
        self._documents = ports.documents
        self._rng = ports.rng
        self._memory = memory
        self._deadline_s = ports.clock.monotonic_s() + ports.settings.deadline_s

    def anew(self) -> Access:
        """A way to the store with a deadline of its own, for work that goes on after the answer."""
        return Access(self._ports, self._memory)

    # --- time and identity ---

    def now_ms(self) -> int:
        return self.clock.now_ms()

    def confirmed_ms(self) -> int:
        """The time by which ages are judged before anything is deleted."""
        return self.clock.confirmed_ms()

    def remaining_s(self) -> float:
        return self._deadline_s - self.clock.monotonic_s()

    def check_deadline(self) -> None:
        """Called before every send: a process that has been stalled must not go on as if it had not."""
        if self.remaining_s() <= 0:
            raise DeadlinePassed(
                f"the call took longer than {self.settings.deadline_s} s (deadline_s) and was given up"
            )

    def identity(self, owner: str) -> Identity:
        now_ms = self.now_ms()
        return Identity(owner, now_ms, now_ms + int(self.settings.lease_s * 1000))

    def fresh_owner(self) -> str:
        return f"{self._rng.bits(96):024x}"

    async def pause(self, attempt: int) -> None:
        """Wait before the next attempt: doubling, jittered, bounded."""
        longest = min(self.settings.max_backoff_s, self.settings.backoff_s * 2.0 ** min(attempt, 16))
        await self.clock.sleep(longest * (0.5 + self._rng.uniform() / 2))

    # --- cells ---

    def remembered_cell(self, key: Key) -> CellVersion | None:
        return self._memory.cells.get(name_of_cell(key))

    async def cell(self, key: Key) -> CellVersion:
        """The cell's document as it is now."""
        name = name_of_cell(key)
        version = await self._cell_named(name)
        if version is None:
            version = Version(CellDocument(key, format=self.settings.write_format), None)
            self._memory.cells.put(name, version, _OVERHEAD)
        if version.document.key != key:
            raise Unreadable(f"document {name} holds cell {version.document.key!r} instead of {key!r}; restore it")
        return version

    async def cell_listed(self, entry: DocumentEntry) -> CellVersion | None:
        """The cell behind a listed name: the remembered version if the listing shows its token, else a fresh read."""
        remembered = self._memory.cells.get(entry.name)
        if remembered is not None and entry.token is not None and remembered.token == entry.token:
            return remembered
        return await self._cell_named(entry.name)

    async def _cell_named(self, name: str) -> CellVersion | None:
        self.check_deadline()
        found = await self._documents.get(name)
        if found is None:
            return None
        remembered = self._memory.cells.get(name)
        if remembered is not None and remembered.token == found.token:
            return remembered
        version = Version(decode_cell(name, found.data), found.token)
        self._memory.cells.put(name, version, len(found.data) + _OVERHEAD)
        return version

    async def write_cell(self, over: CellVersion, document: CellDocument) -> CellVersion | None:
        """Replace this version of a cell once. The new version, or None if it was refused or nobody can say."""
        document = self._in_write_format(document)
        data = encode_cell(document)
        outcome = await self._send(name_of_cell(document.key), over.token, data)
        return self._written(document, outcome.token, len(data)) if isinstance(outcome, Applied) else None

    async def lock_cell(self, over: CellVersion, document: CellDocument) -> CellVersion | None:
        """Replace this version of a cell by one that carries our lock. None: certainly not held by this write."""
        lock = document.lock
        assert lock is not None
        document = self._in_write_format(document)
        data = encode_cell(document)
        sent_before = False
        for _ in range(self.settings.resends + 1):
            outcome = await self._send(name_of_cell(document.key), over.token, data)
            if isinstance(outcome, Applied):
                return self._written(document, outcome.token, len(data))
            if isinstance(outcome, Refused) and not sent_before:
                return None
            # Unknown, or a refusal that may be of our own earlier copy: only the cell itself can tell.
            sent_before = True
            found = await self.cell(document.key)
            match settle_lock(lock, found.document, unchanged=found.token == over.token):
                case Settled.APPLIED:
                    return found
                case Settled.LOST:
                    return None
                case Settled.NOT_YET:
                    continue
        raise StoreUnavailable(f"the store did not say whether cell {document.key!r} was locked; nothing was applied")

    def _written(self, document: CellDocument, token: str, size: int) -> CellVersion:
        version = Version(document, token)
        self._memory.cells.put(name_of_cell(document.key), version, size + _OVERHEAD)
        return version

    # --- records ---

    async def record(self, transaction_id: TransactionId) -> RecordVersion | None:
        """The record as it is now, or None if there is none."""
        self.check_deadline()
        name = name_of_record(transaction_id)
        found = await self._documents.get(name)
        if found is None:
            return None
        version = Version(decode_record(name, found.data), found.token)
        self._remember_decided(version.document, len(found.data))
        return version

    async def record_of_lock(self, transaction_id: TransactionId) -> RecordDocument | None:
        """The record to resolve a lock with. A remembered one will do if it is decided, since that never changes."""
        decided = self._memory.decided.get(transaction_id)
        if decided is not None:
            return decided
        version = await self.record(transaction_id)
        return version.document if version is not None else None

    async def write_record(self, over: RecordVersion | None, document: RecordDocument) -> RecordVersion | None:
        """Create the record (`over` is None) or replace this version of it.

        The new version, or None: certainly not written by us. Raises `StoreUnavailable` if nobody can say.
        """
        document = self._in_write_format(document)
        data = encode_record(document)
        token = over.token if over is not None else None
        sent_before = False
        for _ in range(self.settings.resends + 1):
            outcome = await self._send(name_of_record(document.id), token, data)
            if isinstance(outcome, Applied):
                self._remember_decided(document, len(data))
                return Version(document, outcome.token)
            if isinstance(outcome, Refused) and not sent_before:
                return None
            sent_before = True
            found = await self.record(document.id)
            found_token = found.token if found is not None else None
            match settle_record(document, found.document if found else None, unchanged=found_token == token):
                case Settled.APPLIED:
                    return found
                case Settled.LOST:
                    return None
                case Settled.NOT_YET:
                    continue
        raise StoreUnavailable(f"the store did not say whether the record of transaction {document.id} was written")

    async def swap_record_once(self, over: RecordVersion, document: RecordDocument) -> RecordVersion | None:
        """Replace this version of the record, for steps that are the same whoever takes them.

        None if it was refused or nobody can say: the caller reads the record again and decides anew.
        """
        document = self._in_write_format(document)
        data = encode_record(document)
        outcome = await self._send(name_of_record(document.id), over.token, data)
        if not isinstance(outcome, Applied):
            return None
        self._remember_decided(document, len(data))
        return Version(document, outcome.token)

    def _remember_decided(self, document: RecordDocument, size: int) -> None:
        if document.state.final:
            self._memory.decided.put(document.id, document, size + _OVERHEAD)

    # --- staged entries, listings, deletion ---

    async def staged_entry(self, transaction_id: TransactionId, sequence: int) -> StagedEntry | None:
        self.check_deadline()
        name = name_of_staged(transaction_id, sequence)
        found = await self._documents.get(name)
        return decode_staged(name, found.data) if found is not None else None

    async def append_staged(self, entry: StagedEntry) -> StagedEntry:
        """Write the entry at its place in the log. What stands there now: this entry, or the one that came first."""
        data = encode_staged(entry)
        name = name_of_staged(entry.transaction, entry.sequence)
        try:
            for _ in range(self.settings.resends + 1):
                outcome = await self._send(name, None, data)
                if isinstance(outcome, Applied):
                    return entry
                found = await self.staged_entry(entry.transaction, entry.sequence)
                if found is not None:
                    return found
        except StoreUnavailable as error:
            raise OutcomeUnknown(entry.transaction, str(error), attempted="staged into") from error
        raise OutcomeUnknown(entry.transaction, "the store did not answer", attempted="staged into")

    async def delete(self, name: str) -> None:
        self.check_deadline()
        await self._documents.delete(name)

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        self.check_deadline()
        return await self._documents.list(prefix, after, limit)

    def _in_write_format(self, document: D) -> D:
        """Documents are raised to the format this process writes, and never lowered."""
        if document.format >= self.settings.write_format:
            return document
        return replace(document, format=self.settings.write_format)

    async def _send(self, name: str, token: str | None, data: bytes) -> WriteOutcome:
        self.check_deadline()
        if token is None:
            return await self._documents.create(name, data)
        return await self._documents.swap(name, token, data)

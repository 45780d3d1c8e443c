"""What the kernel asks of the world, as contracts in prose.

`CellStore` is what callers use: atomic commits over cells. SQL stores implement it directly, in one database
transaction. Stores that can only swap one document at a time implement `DocumentStore`, and the protocol in this
package makes a `CellStore` of them. `Clock`, `Rng` and `Tasks` are ports so that a simulator can own time, chance
and the order of everything.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import (
    Cell,
    CellPage,
    Collection,
    CommitResult,
    Committed,
    Failed,
    Isolation,
    PrepareResult,
    Recovery,
    State,
    Transaction,
    TransactionPage,
    TransactionRecord,
    Value,
)

T = TypeVar("T")


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970. Clocks of two processes may disagree; nothing safe depends on it."""
        ...

    def confirmed_ms(self) -> int:
        """The time by which ages are judged before anything is deleted: at most the true time, as far as is known.

        Zero while this machine's clock is not confirmed by other evidence (`kernel/trusted_time.py`): then nothing is
        old enough.
        """
        ...

    def monotonic_s(self) -> float:
        """Seconds that never run backwards, for deadlines inside one process."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Rng(Protocol):
    def uniform(self) -> float:
        """A number in [0, 1)."""
        ...

    def bits(self, count: int) -> int:
        """`count` random bits. For ids and owner nonces these must not repeat across processes."""
        ...


class Tasks(Protocol):
    async def all(self, steps: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run the steps side by side; return their results in order when every one has ended.

        If some raise, the first in order is raised, but only after all have ended: a round leaves nothing running.
        """
        ...

    def background(self, step: Coroutine[Any, Any, None]) -> None:
        """Run the step after the caller has its answer. It may be lost in a crash; nothing may depend on it."""
        ...

    async def drain(self) -> None:
        """Wait until all background steps have ended: a clean shutdown leaves no work to others."""
        ...


# --- documents: stores that can swap one document at a time ---


@dataclass(frozen=True, slots=True)
class Document:
    """The bytes of a document and the token that stands for exactly this version of it."""

    data: bytes
    token: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The write took effect; this is the token of what it wrote."""

    token: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The condition did not hold: certainly nothing was written."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No clean answer: written or not, perhaps later still. Never treated as refused."""

    reason: str


WriteOutcome: TypeAlias = Applied | Refused | Unknown


@dataclass(frozen=True, slots=True)
class DocumentEntry:
    name: str
    token: str | None
    """The version token if the listing gives it, else None."""


@dataclass(frozen=True, slots=True)
class StoreTime:
    """What time it is according to a store."""

    ms: int
    independent: bool
    """Whether the store has a clock of its own, rather than the clock of the machine that asks."""


class DocumentStore(Protocol):
    """Small documents under names, replaced only by compare-and-swap.

    Names are made of `[a-z0-9_%~./-]`, at most 900 bytes. Every method raises `StoreUnavailable` if a *read* could not
    be answered. A conditional write never raises for a transport fault: it returns `Unknown`. The implementation
    must not retry a write by itself, since a retry that meets its own first attempt looks like a refusal.
    An applied write is durable, and visible to every later `get` and `list` of any process.
    """

    async def get(self, name: str) -> Document | None:
        """The current version, or None if there is no such document. Never stale."""
        ...

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        """Write the document if the name is free."""
        ...

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        """Replace the version with this token by new bytes. A missing document is refused."""
        ...

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        """Up to `limit` names that begin with `prefix` and sort after `after` (bytewise), in order.

        Fewer than `limit` means that there are no more.
        """
        ...

    async def delete(self, name: str) -> None:
        """Remove the document if it is there. Only the collector deletes, and only by age."""
        ...

    async def time(self) -> StoreTime | None:
        """The store's time, read from it now. None if the store does not say one. Raises `StoreUnavailable`."""
        ...

    async def close(self) -> None: ...


# --- cells: what callers use ---


class CellStore(Protocol):
    """Atomic commits over cells. The ten promises of `docs/protocol.md` hold for every implementation.

    Bad input raises a subclass of `InvalidRequest` before anything is written.
    """

    async def read(self, keys: Iterable[Key]) -> Mapping[Key, Cell]:
        """One consistent cut: all these cells as they were at one instant after the call began.

        A key that never existed is a `Cell` with revision 0. Values may be shared with whoever else reads them, and are
        not to be changed. Raises `Contended` if no cut could be had in time.
        """
        ...

    async def scan(self, prefix: str, after: str | None = None, limit: int = 100) -> CellPage:
        """A page of live cells whose keys lie below `prefix` (whole segments; "" is everything). Not a cut.

        Tombstones are left out, locks are resolved. The order is the store's own; `after` is the cursor of the
        page before, or the key of a cell to go on behind. A page may be short, even empty, and still have a cursor.
        """
        ...

    async def commit(self, transaction: Transaction, *, settle_conflict: bool = True) -> CommitResult:
        """Make all writes visible at one instant, if every written and read cell is at its planned revision.

        Idempotent by id: the same id and request hash get the stored answer; another hash raises `KeyReused`.
        A transaction without writes is allowed and is still recorded.
        `Conflict` is final and stored, unless `settle_conflict` is false: then the transaction is `retryable`, and
        the caller commits it again with a new plan or calls `fail`. `Busy` means nothing was applied.
        Raises `OutcomeUnknown` only if the outcome really is unknown: the store did not say, or another attempt under
        the same id has not ended in time.
        The plan of an open transaction comes from `seal` (then `sealed` is set). A prepared one is committed as it
        was prepared, with the answer given here: another plan raises `PreparedOtherwise` and changes nothing, since
        what is answered and what is `beside` was made for that plan. Its record says what was prepared.
        What is `beside` takes effect with the cells or not at all: never on a replay, a conflict or a refusal. It is
        given to `commit`, also for a sealed or prepared transaction; `prepare` does not keep it. If the companion
        refuses it, nothing is applied. A store that keeps documents raises `KeepsNoRows`.
        """
        ...

    async def fail(self, transaction_id: TransactionId, request_hash: str, answer: Value) -> Committed | Failed:
        """Store a deterministic refusal as the answer of this id. If it is committed already, that is the answer.

        Allowed for an id never used, and for open and retryable transactions. Raises `Contended` while an
        attempt under this id is alive.
        """
        ...

    async def lookup(self, transaction_id: TransactionId) -> TransactionRecord | None:
        """The transaction as it stands now: this settles unknown outcomes. None if there is no record."""
        ...

    # Open transactions: staged over several calls, reading at one instant.

    async def begin(
        self,
        transaction_id: TransactionId,
        *,
        request_hash: str = "",
        ttl_s: float | None = None,
        isolation: Isolation = Isolation.SERIALIZABLE,
        properties: Mapping[str, str] | None = None,
    ) -> TransactionRecord:
        """Open a transaction. Idempotent by id and hash."""
        ...

    async def read_in(
        self, transaction_id: TransactionId, keys: Iterable[Key], *, note: bool = True
    ) -> Mapping[Key, Cell]:
        """Read inside an open transaction: staged values first, everything else as of one instant.

        A staged cell is shown at its base revision plus one, with this transaction as writer. What is read
        becomes part of the read set. Raises `SnapshotTooOld` where the store cannot show that instant any more.

        With `note` false the cells are shown the same, but do not become part of the read set: the caller may hand
        those it depends on to `stage` as `seen`. Nothing is written, and a transaction that is sealed or prepared may
        still be read this way. A store that keeps no history shows them as of one instant with everything noted, but
        does not pin them: another such read may show a later one.
        """
        ...

    async def scan_in(
        self, transaction_id: TransactionId, prefix: str, after: str | None = None, limit: int = 100
    ) -> CellPage:
        """A page of live cells below `prefix`, as seen from inside an open, sealed or prepared transaction.

        Staged cells first: what it creates is in, what it removes is out. Everything else is as of the transaction's
        instant where the store keeps history (SQL); a store that keeps none (documents) shows it as it is now, so
        there two pages may be of two instants. Raises `SnapshotTooOld` if a cell of the page has been noted and has
        moved since. Nothing becomes part of the read set.
        Order, cursor and short pages are as for `scan`; a page may also be longer than `limit`, by what is staged.
        """
        ...

    async def stage(
        self,
        transaction_id: TransactionId,
        operation_id: str,
        writes: Mapping[Key, Value | None],
        *,
        seen: Mapping[Key, Cell] | None = None,
    ) -> None:
        """Stage these values; the last one staged for a cell wins. The same operation id is staged once.

        The base revision of a cell is the one this transaction has read; a cell not read before is based on
        what the transaction would read now. Costs the same however much is staged already.

        `seen` are cells as `read_in` of this transaction has shown them, unchanged, and what these writes were planned
        on. In the same atomic step they are compared and noted. Raises `StagedMeanwhile`, with nothing staged, if one
        of them has been staged (or staged again, to another value) since it was shown. Those that were not staged
        become part of the read set at the revision shown, which is also the base of a write to them.
        An operation id that is staged already is acknowledged before any of this.
        All reads stay of one instant: a store with history raises `InvalidRequest` for a revision that this
        transaction cannot have been shown; one without raises `SnapshotTooOld` if the cell was noted at another
        revision before, and whatever else has moved is found at the commit.
        """
        ...

    async def contents(self, transaction_id: TransactionId) -> Transaction:
        """What the transaction holds by now: its writes with their base revisions, its read set. Changes nothing.

        Of an open one this is the plan that `seal` would make at this moment (`sealed` tells whether it has been
        sealed: only then can it be committed); of any other it is what its record says. Under snapshot isolation
        there are no reads. Raises `TransactionNotFound` if there is no record.
        """
        ...

    async def seal(self, transaction_id: TransactionId, answer: Value | None = None) -> Transaction:
        """End staging and return the plan, ready for `commit` or `prepare`. Idempotent.

        Once it is committed or failed its plan is still returned, and `commit` replays its answer; an aborted
        transaction raises.
        Every staging call that was acknowledged is in the plan; none is acknowledged afterwards. Under snapshot
        isolation the plan has no reads.
        """
        ...

    async def prepare(self, transaction: Transaction, *, settle_conflict: bool = True) -> PrepareResult:
        """Take all locks, read cells too, and hold them until the transaction expires. Idempotent."""
        ...

    async def renew(self, transaction_id: TransactionId, ttl_s: float | None = None) -> TransactionRecord:
        """Move the expiry of an open or prepared transaction to now plus `ttl_s`; never earlier than it was."""
        ...

    async def abort(self, transaction_id: TransactionId) -> TransactionRecord:
        """Give up an open, prepared or retryable transaction. Aborting twice is fine; a committed one raises."""
        ...

    async def transactions(
        self,
        states: Iterable[State] = (),
        *,
        created_before_ms: int | None = None,
        made_since_ms: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> TransactionPage:
        """Transactions by state (all if none is named) and age, in the order of their ids, oldest first.

        `made_since_ms` says where the first page begins: at ids made then. Later pages go on behind the id `after`,
        whether or not there is such a transaction. A page may be short, even empty, and still have a successor.
        """
        ...

    # Upkeep: by anyone, any number of times.

    async def recover(self, limit: int = 1_000) -> Recovery:
        """Finish what is decided, end what has expired. Converges, whoever runs it and how often."""
        ...

    async def collect(self, limit: int = 1_000) -> Collection:
        """Trim finished records and delete stubs beyond the horizon, under the rule of `docs/protocol.md`.

        Ages are judged by `Clock.confirmed_ms`.
        """
        ...

    async def time(self) -> StoreTime | None:
        """The store's time, read from it now. None if the store does not say one. Raises `StoreUnavailable`."""
        ...

    async def watermark(self) -> Value | None:
        """The watermark of `kernel/trusted_time.py`, as it was put last. None if there is none.

        It is no cell: it has no revision and no record, and a backup does not contain it.
        """
        ...

    async def put_watermark(self, value: Value, was: Value | None) -> bool:
        """Put it in the place of `was`. False: something else is there, or it is not known whether it was written."""
        ...

    async def close(self) -> None: ...


# --- blobs: immutable files ---


@dataclass(frozen=True, slots=True)
class BlobEntry:
    name: str
    size: int
    modified_ms: int


class BlobStore(Protocol):
    """Files under names (`/` separates folders): metadata, receipts, logs. Never overwritten, but for the few names
    that stand for whatever is newest (`replace`)."""

    async def put(self, name: str, data: bytes) -> bool:
        """Write the blob if the name is free; durable on return. True if written now or already there with equal
        bytes; False if other bytes are there. May be retried: putting the same bytes twice is one put."""
        ...

    async def put_all(self, blobs: Mapping[str, bytes]) -> None:
        """Put many, all durable on return; what is there already stays as it is. An error says nothing of any of them:
        put them again. Cheaper than one by one, where blobs of one folder become durable together."""
        ...

    async def replace(self, name: str, data: bytes, was: bytes | None) -> bool:
        """Write these bytes in the place of those: if the blob holds exactly `was` (None: if there is no blob).

        Readers see the old bytes or the new ones, whole. True if written now or already there with equal bytes; False
        if something else is there, and nothing was written. Durable on return. May be retried: whoever builds on what
        it has read can never undo what somebody else has written since.
        """
        ...

    async def get(self, name: str) -> bytes | None: ...

    async def exists(self, name: str) -> bool:
        """Whether the blob is there now: for files that others may have taken away."""
        ...

    async def make_folder(self, name: str) -> None:
        """Make the folder, for engines that write into it themselves. Nothing to do where folders are only names."""
        ...

    async def list(self, prefix: str, after: str | None = None, limit: int = 1_000) -> Sequence[BlobEntry]:
        """Up to `limit` entries whose names begin with `prefix` and sort after `after`, in order."""
        ...

    async def delete(self, name: str) -> None:
        """Remove the blob if it is there."""
        ...

    async def close(self) -> None: ...

"""The kernel's nouns, as frozen values.

A cell is a small document under a key. A transaction is a set of cell writes, and of cell reads it depends on, that
takes effect at one instant. These values say nothing about where they are stored; the stores share them, and so do
the callers. Nothing here does IO, reads a clock or knows what a table is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key

Value: TypeAlias = Mapping[str, Any]
"""What a cell holds: a JSON object. Treat it as immutable; stores may hand out the same object twice."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What a reader sees of one key at one instant.

    `revision` grows by exactly one with every change of the value and goes on through tombstones, so a
    revision names one value for ever. Revision 0 is a cell that never was.
    """

    key: Key
    revision: int = 0
    value: Value | None = None
    writer: TransactionId | None = None

    @property
    def exists(self) -> bool:
        return self.value is not None


@dataclass(frozen=True, slots=True)
class Write:
    """Replace the cell, planned on this revision, by this value. `None` leaves a tombstone."""

    key: Key
    revision: int
    value: Value | None


@dataclass(frozen=True, slots=True)
class Read:
    """The transaction depends on this cell still being at this revision when it commits."""

    key: Key
    revision: int


class Isolation(StrEnum):
    SERIALIZABLE = "serializable"
    """Nothing the transaction wrote or read may have moved."""

    SNAPSHOT = "snapshot"
    """Only what it wrote must not have moved; write skew is possible."""


class State(StrEnum):
    """The life of a transaction. `docs/protocol.md` has the picture."""

    OPEN = "open"
    """Staging. Holds nothing."""

    PREPARING = "preparing"
    """A coordinator is taking locks. Nothing is visible."""

    PREPARED = "prepared"
    """All locks are held until `expires_ms`. Two-phase clients only."""

    COMMITTED = "committed"
    """Visible, all of it. Final."""

    ABORTED = "aborted"
    """Given up or expired; nothing was applied. Final."""

    FAILED = "failed"
    """A deterministic refusal whose answer is replayed; nothing was applied. Final."""

    RETRYABLE = "retryable"
    """Nothing was applied and no lock counts; the same id may try again."""

    @property
    def final(self) -> bool:
        return self in (State.COMMITTED, State.ABORTED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Transaction:
    """What `commit` is asked to do.

    `id` is the caller's idempotency key, or a fresh UUIDv7. `request_hash` tells two requests under one id apart.
    `answer` is kept with the outcome and given back to whoever asks again. `sealed` is set by `seal`, which is the
    only way to get the plan of an open transaction.

    `beside` is a document for the store's companion, which acts on it in the very database transaction that commits
    the cells, and only there. The kernel passes it on unread; it is no part of the plan, and a replay ignores it.
    """

    id: TransactionId
    request_hash: str
    writes: tuple[Write, ...] = ()
    reads: tuple[Read, ...] = ()
    answer: Value = field(default_factory=dict)
    sealed: bool = False
    beside: Value | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """One cell that was not at the revision it was planned on."""

    key: Key
    expected: int
    actual: int


@dataclass(frozen=True, slots=True)
class Committed:
    """It happened, it is durable, and every reader from now on sees all of it."""

    id: TransactionId
    answer: Value
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """All locks are held, reads included; `commit` or `abort` before `expires_ms`."""

    id: TransactionId
    expires_ms: int


@dataclass(frozen=True, slots=True)
class Conflict:
    """It did not happen: these cells had moved.

    `final` tells whether the refusal is the transaction's stored answer. If not (the caller asked not to settle
    it), the same id may be committed again with a new plan, or be failed.
    """

    id: TransactionId
    moved: tuple[Moved, ...]
    final: bool = True
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not happen: the caller recorded this refusal as the answer of this id."""

    id: TransactionId
    answer: Value
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Busy:
    """It did not happen yet: another transaction is in the way. The same id may try again."""

    id: TransactionId
    owner: TransactionId | None
    retry_after_s: float


CommitResult: TypeAlias = Committed | Conflict | Failed | Busy
PrepareResult: TypeAlias = Prepared | Committed | Conflict | Failed | Busy


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """What can be said of a transaction from outside, whatever store keeps it."""

    id: TransactionId
    state: State
    request_hash: str
    created_ms: int
    writes: tuple[Write, ...] = ()
    reads: tuple[Read, ...] = ()
    answer: Value | None = None
    moved: tuple[Moved, ...] = ()
    expires_ms: int | None = None
    decided_ms: int | None = None
    isolation: Isolation = Isolation.SERIALIZABLE
    properties: Mapping[str, str] = field(default_factory=dict)
    finalized: bool = False
    lease_ms: int | None = None
    """While it is being committed: when whoever is at it counts as gone, and anybody may carry on."""

    sealed: bool = field(default=False, compare=False)
    """On stores that say so in the record: an open transaction that takes no more changes, because its commit or its
    prepare has begun. It did not get through, and may be sent again."""

    @property
    def expired(self) -> bool:
        """Whether it was aborted because its time was over."""
        if self.state is not State.ABORTED or self.expires_ms is None or self.decided_ms is None:
            return False
        return self.decided_ms >= self.expires_ms


@dataclass(frozen=True, slots=True)
class CellPage:
    """A page of live cells. `after` continues the scan; `None` means there is no more."""

    cells: tuple[Cell, ...]
    after: str | None


@dataclass(frozen=True, slots=True)
class TransactionPage:
    """A page of transactions. `after` is the id that the listing goes on behind; `None` means there is no more."""

    transactions: tuple[TransactionRecord, ...]
    after: TransactionId | None


@dataclass(frozen=True, slots=True)
class Recovery:
    """What one pass of `recover` did."""

    finished: int = 0
    """Committed or failed transactions whose cells were still to be written or unlocked."""

    given_up: int = 0
    """Transactions whose coordinator had gone: their locks no longer count."""

    expired: int = 0
    """Open, prepared or retryable transactions past their time, now aborted."""

    left: int = 0
    """Unfinished work that could not be settled in this pass."""

    more: bool = False
    """Whether the pass ended at its limit; the next one goes on where it stopped."""


@dataclass(frozen=True, slots=True)
class Collection:
    """What one pass of `collect` did."""

    trimmed: int = 0
    """Records reduced to a stub that still prevents a second execution."""

    deleted: int = 0
    """Stubs removed, beyond the horizon."""

    more: bool = False
    """Whether the pass ended at its limit; the next one goes on where it stopped."""

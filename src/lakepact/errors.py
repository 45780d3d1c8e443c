"""Every error Lakepact raises, in one tree.

    LakepactError
    ├── InvalidRequest            the caller must change something; nothing was written
    │   ├── IllegalKey
    │   ├── ValueTooLarge
    │   ├── TooManyCells
    │   ├── DuplicateCell
    │   ├── InvalidTransactionId
    │   ├── InvalidSetting
    │   ├── KeepsNoRows
    │   └── FileNotLive
    ├── TransactionError          this transaction cannot take this step; nothing was written
    │   ├── TransactionNotFound
    │   ├── KeyReused
    │   ├── WrongState
    │   │   ├── TransactionClosed
    │   │   └── PreparedOtherwise
    │   ├── SnapshotTooOld
    │   ├── StagedMeanwhile
    │   └── RowsGone
    ├── Contended                 somebody else is in the way; nothing was applied, try again
    ├── StoreUnavailable          the store did not answer; nothing was applied, try again
    │   └── OutOfMemory           the server has too little memory for it now
    ├── OutcomeUnknown            it may or may not have happened; look the transaction up
    ├── Damaged                   fail closed: a person must look
    │   ├── MissingRecord
    │   ├── Unreadable
    │   └── FormatTooNew
    └── StoreUnsuitable           this store cannot keep the promises; refused at start-up

Each class has a stable `type`, the word used on the wire, in logs and in metrics. A message says what happened,
to what, and what to do next.
"""

from __future__ import annotations

from typing import ClassVar, Final

_MESSAGE_CHARACTERS: Final = 16_384


class LakepactError(Exception):
    """The root: catch this to catch everything Lakepact raises on purpose."""

    type: ClassVar[str] = "lakepact-error"


class InvalidRequest(LakepactError):
    """The request is wrong in itself. Nothing was written; change it and send it again."""

    type: ClassVar[str] = "invalid-request"


class IllegalKey(InvalidRequest):
    """A cell key is empty, too long, or not in canonical form."""

    type: ClassVar[str] = "illegal-key"


class ValueTooLarge(InvalidRequest):
    """A value, or a whole transaction, is larger than the configured limit."""

    type: ClassVar[str] = "value-too-large"


class TooManyCells(InvalidRequest):
    """A transaction names more cells than the configured limit."""

    type: ClassVar[str] = "too-many-cells"


class DuplicateCell(InvalidRequest):
    """A transaction names the same cell twice."""

    type: ClassVar[str] = "duplicate-cell"


class InvalidTransactionId(InvalidRequest):
    """A transaction id is not a UUIDv7, or its date lies outside the key horizon."""

    type: ClassVar[str] = "invalid-transaction-id"


class InvalidSetting(InvalidRequest):
    """A setting or a store URL cannot be understood."""

    type: ClassVar[str] = "invalid-setting"


class KeepsNoRows(InvalidRequest):
    """The transaction has something beside its cells, and the store keeps documents: only SQL stores keep rows."""

    type: ClassVar[str] = "keeps-no-rows"


class FileNotLive(InvalidRequest):
    """A change of a Delta table removes a file that does not belong to the version it is based on."""

    type: ClassVar[str] = "file-not-live"


class TransactionError(LakepactError):
    """This transaction cannot take this step. Nothing was written by this call."""

    type: ClassVar[str] = "transaction-error"


class TransactionNotFound(TransactionError):
    """No transaction has this id (or its record is older than the key horizon)."""

    type: ClassVar[str] = "transaction-not-found"


class KeyReused(TransactionError):
    """The same transaction id was used before for a different request."""

    type: ClassVar[str] = "key-reused"


class WrongState(TransactionError):
    """The transaction is in a state that does not allow this step."""

    type: ClassVar[str] = "wrong-state"


class TransactionClosed(WrongState):
    """The transaction has ended; the message says how, and how to begin again."""

    type: ClassVar[str] = "transaction-closed"


class PreparedOtherwise(WrongState):
    """The transaction is prepared, with another plan than this one. Look its record up, and commit what it says."""

    type: ClassVar[str] = "prepared-otherwise"


class SnapshotTooOld(TransactionError):
    """A cell this open transaction depends on has moved, and the store keeps no older state."""

    type: ClassVar[str] = "snapshot-too-old"


class StagedMeanwhile(TransactionError):
    """Another call has staged one of the cells this one was planned on. Read again and plan again."""

    type: ClassVar[str] = "staged-meanwhile"


class RowsGone(TransactionError):
    """The rows this transaction would publish are not there, or no longer. Write them again and commit again."""

    type: ClassVar[str] = "rows-gone"


class Contended(LakepactError):
    """Another transaction is in the way and did not finish in time. Nothing was applied; try again."""

    type: ClassVar[str] = "contended"

    def __init__(self, message: str, *, owner: str | None = None, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.owner = owner
        self.retry_after_s = retry_after_s


class StoreUnavailable(LakepactError):
    """The store did not answer a read, or refused to serve. Nothing was applied; try again."""

    type: ClassVar[str] = "store-unavailable"


class OutOfMemory(StoreUnavailable):
    """The server has not enough free memory for this now. Nothing was applied, nothing is damaged; try again."""

    type: ClassVar[str] = "out-of-memory"


class OutcomeUnknown(LakepactError):
    """The step may or may not have happened. `lookup`, or the same step again with the same id, settles it."""

    type: ClassVar[str] = "outcome-unknown"

    def __init__(self, transaction_id: str, reason: str, attempted: str = "committed") -> None:
        super().__init__(
            f"transaction {transaction_id}: it is not known whether it was {attempted} ({reason}). Look the "
            f"transaction up, or send the same request with the same id again: it takes effect once"
        )
        self.transaction_id = transaction_id


class Damaged(LakepactError):
    """Stored state contradicts itself. Lakepact stops here rather than guess."""

    type: ClassVar[str] = "damaged"


class MissingRecord(Damaged):
    """A cell is locked by a transaction whose record is not there."""

    type: ClassVar[str] = "missing-record"


class Unreadable(Damaged):
    """A stored document is not what its place says it is."""

    type: ClassVar[str] = "unreadable"


class FormatTooNew(Damaged):
    """A stored document was written by a newer release; this one leaves it alone."""

    type: ClassVar[str] = "format-too-new"


class StoreUnsuitable(LakepactError):
    """The store does not honour conditional writes, so no promise could be kept on it."""

    type: ClassVar[str] = "store-unsuitable"


def short_message(text: str) -> str:
    """An error's text, cut to what a response may carry. It may quote what a client sent, however long that is."""
    if len(text) <= _MESSAGE_CHARACTERS:
        return text
    return f"{text[:_MESSAGE_CHARACTERS]}... ({len(text):,} characters)"


def json_kind(value: object) -> str:
    """What was found where something else was expected, in the words of an error."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the string {value[:60]!r}"
        case list():
            return "an array"
        case dict():
            return "an object"
        case _:
            return type(value).__name__

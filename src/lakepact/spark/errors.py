"""What only Spark's users meet; everything else is the client's.

    LakepactError
    ├── TransactionUnfit          a statement in it failed, so nothing of it is published: run it again
    └── InvalidRequest
        └── UnsupportedFormat     tables of this format cannot be written in a transaction

An error of Spark itself is left as it is, with two exceptions. If somebody else was faster, it is the client's
`Conflict`, and if the server did not answer, it is the client's `Unavailable`: `lake.run` and programs know both by one
name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

from lakepact.client import Conflict, Unavailable, Unknown
from lakepact.client.errors import conflict_of
from lakepact.errors import InvalidRequest, LakepactError

_DEEPEST: Final = 20
_OUTAGES: Final = ("java.net.ConnectException", "java.net.SocketException", "java.net.SocketTimeoutException")
CLIENT_OUTAGES: Final = (
    "ConnectionClosedException",
    "ConnectTimeoutException",
    "HttpHostConnectException",
    "NoHttpResponseException",
    "CommitStateUnknownException",
    "ServiceUnavailableException",
)
"""Classes of the HTTP client inside Iceberg's runtime, which has packages of its own, and of Iceberg."""
_COMMIT_FAILED: Final = "org.apache.iceberg.exceptions.CommitFailedException"
_ALREADY_EXISTS: Final = "org.apache.iceberg.exceptions.AlreadyExistsException"
# A read that is refused because the table has moved arrives under the name that Iceberg has for any 409.
_TOO_OLD: Final = ("keeps no older state", "no longer holds what transaction")


class TransactionUnfit(LakepactError):
    """A statement of the transaction failed. What is staged may be half of something, so it is never published."""

    type: ClassVar[str] = "transaction-unfit"

    def __init__(self, transaction_id: str, statement: str) -> None:
        super().__init__(
            f"transaction {transaction_id} cannot go on: a statement in it failed ({statement}), and what is staged "
            f"may be half of something. Nothing of it will be visible; mend the statement and run all of it again"
        )
        self.transaction_id = transaction_id
        self.statement = statement


class UnsupportedFormat(InvalidRequest):
    """Tables of this format cannot be written in a transaction."""

    type: ClassVar[str] = "unsupported-format"


def conflict_in(error: BaseException) -> Conflict | None:
    """The conflict that this error is, or was caused by."""
    seen: BaseException | None = error
    for _ in range(_DEEPEST):
        if seen is None:
            return None
        found = conflict_of(seen) or _of_spark(seen)
        if found is not None:
            return found
        seen = seen.__cause__
    return None


def is_outage(error: BaseException) -> bool:
    """Whether this error is, or was caused by, a server that did not answer: connection refused, reset or closed."""
    seen: BaseException | None = error
    for _ in range(_DEEPEST):
        if seen is None:
            return False
        if isinstance(seen, Unavailable | Unknown) or any(_is_outage(thrown) for thrown in java_exceptions(seen)):
            return True
        seen = seen.__cause__
    return False


def root_message(error: BaseException) -> str:
    """What is wrong, in one line: the innermost cause that Java or Python names."""
    innermost, kind = str(error), type(error).__name__
    for thrown in java_exceptions(error):
        message = str(thrown.getMessage() or "").strip()
        if message:
            innermost, kind = message, str(thrown.getClass().getSimpleName())
    lines = [line.strip() for line in innermost.splitlines() if line.strip()]
    if not lines:
        return kind
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        # What a Python function of the user's has raised: the last line of its traceback says so.
        python = [line for line in lines if not line.startswith(("at ", "SQLSTATE"))]
        return python[-1]
    return f"{kind}: {lines[0]}"


def _is_outage(thrown: Any) -> bool:
    kind = str(thrown.getClass().getName())
    return kind in _OUTAGES or kind.rpartition(".")[2] in CLIENT_OUTAGES


def _of_spark(error: BaseException) -> Conflict | None:
    for thrown in java_exceptions(error):
        kind, message = str(thrown.getClass().getName()), str(thrown.getMessage() or "")
        too_old = any(word in message for word in _TOO_OLD)
        if kind == _COMMIT_FAILED or (kind == _ALREADY_EXISTS and too_old):
            word = "SnapshotTooOldException" if too_old else "CommitFailedException"
            return Conflict(message, status=409, server_type=word)
    return None


def java_exceptions(error: BaseException) -> Iterator[Any]:
    """What Java threw, and what caused it. PySpark keeps it in one of two places."""
    thrown = getattr(error, "java_exception", getattr(error, "_origin", None))
    for _ in range(_DEEPEST):
        if thrown is None:
            return
        yield thrown
        thrown = thrown.getCause()

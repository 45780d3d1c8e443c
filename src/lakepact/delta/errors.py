"""What this package raises, hung into the project's tree.

    LakepactError
    ├── InvalidRequest
    │   └── DeltaError              the Delta content of a request or of a log is wrong; nothing was written
    │       ├── BadAction           an action is malformed, or does not fit the table
    │       ├── BadSchema           a schema, or a change of one, that a table cannot have
    │       ├── UnsupportedFeature  the table needs something this release cannot carry
    │       ├── BadLog              files of a log contradict each other, or some are missing
    │       └── LimitExceeded       a transaction is larger than its configuration allows
    └── TransactionError
        └── VersionConflict         a table is at another version than was expected; nothing was written

A change that may not go on past other versions is not an error here but a value, `conflicts.Conflict`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from lakepact.errors import InvalidRequest, TransactionError


class DeltaError(InvalidRequest):
    """The Delta content of a request or of a log is wrong in itself. Nothing was written."""

    type: ClassVar[str] = "invalid-delta"


class BadAction(DeltaError):
    """An action is malformed, or does not fit the table it is meant for."""

    type: ClassVar[str] = "bad-delta-action"


class BadSchema(DeltaError):
    """A Delta table cannot have this schema, or cannot change to it."""

    type: ClassVar[str] = "bad-delta-schema"


class UnsupportedFeature(DeltaError):
    """A Delta table uses features that this release cannot carry."""

    type: ClassVar[str] = "unsupported-delta-feature"

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(self.problems))


class BadLog(DeltaError):
    """A Delta log cannot be read: files are missing, or say what they must not."""

    type: ClassVar[str] = "bad-delta-log"


class LimitExceeded(DeltaError):
    """A transaction over Delta tables is larger than its configuration allows."""

    type: ClassVar[str] = "delta-limit-exceeded"

    def __init__(self, message: str, *, setting: str, limit: int, found: int) -> None:
        super().__init__(message)
        self.setting = setting
        self.limit = limit
        self.found = found


class VersionConflict(TransactionError):
    """A table is at another version than was expected. Nothing was written, for no table of the transaction."""

    type: ClassVar[str] = "delta-version-conflict"

    def __init__(self, table_id: str, expected: int, actual: int, reason: str | None = None) -> None:
        why = "" if reason is None else f": {reason}"
        super().__init__(
            f"Delta table {table_id}: expected version {expected}, it is at version {actual}{why}. No table of the "
            f"transaction was changed; read the table at version {actual} and try again"
        )
        self.table_id = table_id
        self.expected = expected
        self.actual = actual
        self.reason = reason

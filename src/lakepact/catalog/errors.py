"""What the catalog refuses, and in which words.

    LakepactError
    ├── Refusal                  deterministic: nothing was applied, and the same request gets the same answer again
    │   ├── BadRequest           400
    │   ├── IllegalArgument      400  the content of a view is wrong
    │   ├── NoSuchNamespace      404
    │   ├── NoSuchTable          404
    │   ├── NoSuchView           404
    │   ├── Unsupported          406
    │   ├── AlreadyExists        409
    │   ├── NamespaceNotEmpty    409
    │   ├── CommitFailed         409
    │   ├── Protected            409  a table that is protected from being dropped
    │   └── Unprocessable        422
    ├── Forbidden                403: whoever asks may not; nothing happened, and it may be granted later
    ├── NotFound                 404: a file that a request names is not there; nothing happened, and it may come
    │   └── MissingFile          500: a file that the catalog refers to is not in the warehouse, a fault of the storage
    └── AnswerLost               504: the change has happened, and only the answer about it cannot be made

`type` and `code` are Iceberg's own: clients compare them literally, and decide by them whether to delete their files.
A refusal can be stored as the answer of a transaction and raised again from there, so it is made of plain values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from lakepact.errors import LakepactError, short_message


class Refusal(LakepactError):
    """The catalog will not do this. Nothing was applied."""

    type: ClassVar[str] = "RESTException"
    code: ClassVar[int] = 400

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        message = short_message(message)
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})
        """Fields that an answer carries beside message, type and code."""

    def to_json(self) -> dict[str, Any]:
        return {"message": self.message, "type": self.type, "code": self.code, **self.details}


class BadRequest(Refusal):
    """The request is wrong in itself: change it and send it again."""

    type: ClassVar[str] = "BadRequestException"
    code: ClassVar[int] = 400


class IllegalArgument(Refusal):
    """What a view is made of does not fit. Iceberg's client tells this 400 from others by its type."""

    type: ClassVar[str] = "IllegalArgumentException"
    code: ClassVar[int] = 400


class NoSuchNamespace(Refusal):
    type: ClassVar[str] = "NoSuchNamespaceException"
    code: ClassVar[int] = 404

    @classmethod
    def named(cls, namespace: Sequence[str]) -> NoSuchNamespace:
        return cls(f"Namespace does not exist: {'.'.join(namespace)}")


class NoSuchTable(Refusal):
    type: ClassVar[str] = "NoSuchTableException"
    code: ClassVar[int] = 404


class NoSuchView(Refusal):
    type: ClassVar[str] = "NoSuchViewException"
    code: ClassVar[int] = 404


class Unsupported(Refusal):
    type: ClassVar[str] = "UnsupportedOperationException"
    code: ClassVar[int] = 406


class AlreadyExists(Refusal):
    type: ClassVar[str] = "AlreadyExistsException"
    code: ClassVar[int] = 409


class NamespaceNotEmpty(Refusal):
    type: ClassVar[str] = "NamespaceNotEmptyException"
    code: ClassVar[int] = 409


class CommitFailed(Refusal):
    """A requirement does not hold. The client may refresh and try again."""

    type: ClassVar[str] = "CommitFailedException"
    code: ClassVar[int] = 409


class Protected(Refusal):
    """Somebody has said that this table is not to be dropped."""

    type: ClassVar[str] = "ProtectedException"
    code: ClassVar[int] = 409


class Unprocessable(Refusal):
    type: ClassVar[str] = "UnprocessableEntityException"
    code: ClassVar[int] = 422


class NotFound(LakepactError):
    """A file that a request names is not there. Nothing was applied.

    No `Refusal`: the file may come, or come back. The answer is never stored under the request's key.
    """

    type: ClassVar[str] = "NotFoundException"
    code: ClassVar[int] = 404


class MissingFile(NotFound):
    """A file that the catalog itself refers to is not in the warehouse. Nothing was applied.

    This is a fault of the storage. A client that gets a 4xx gives up its change for good, so this is a 5xx.
    """

    type: ClassVar[str] = "missing-file"
    code: ClassVar[int] = 500

    @classmethod
    def at(cls, location: str) -> MissingFile:
        return cls(
            f"Failed to open input stream for file: {location}. The catalog refers to it, and it is not in the "
            f"warehouse. Nothing was changed. Restore the file from a backup, or register an older version"
        )


class Forbidden(LakepactError):
    """Whoever asks may not do this. Nothing was applied.

    No `Refusal`: it is not the request that is wrong, so it is never stored as the answer to its key.
    """

    type: ClassVar[str] = "ForbiddenException"


class AnswerLost(LakepactError):
    """The change has happened. What it led to cannot be read now, so whoever asked must look for themselves."""

    type: ClassVar[str] = "CommitStateUnknownException"

    def __init__(self, transaction_id: str, reason: Exception) -> None:
        super().__init__(
            f"transaction {transaction_id} is committed, but its answer cannot be made: {reason}. Delete nothing; load "
            f"the table again"
        )
        self.transaction_id = transaction_id


class StillInUse(AnswerLost):
    """Snapshots are removed, and a transaction that began at the same moment still looks at them."""

    def __init__(self, transaction_id: str, table: str, snapshot_id: int, owner: str) -> None:
        LakepactError.__init__(
            self,
            f"transaction {transaction_id} is committed, and open transaction {owner}, which began at the same moment, "
            f"still looks at snapshot {snapshot_id} of {table}. Delete none of its files: the search for orphans takes "
            f"them later",
        )
        self.transaction_id = transaction_id


_BY_TYPE = {kind.type: kind for kind in Refusal.__subclasses__()}


def refusal_of(stored: Mapping[str, Any]) -> Refusal:
    """The refusal that was stored as a transaction's answer."""
    known = {"message", "type", "code"}
    kind = _BY_TYPE.get(stored["type"], BadRequest)
    return kind(stored["message"], {name: value for name, value in stored.items() if name not in known})

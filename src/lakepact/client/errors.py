"""Everything the client raises. There are three outcomes, and an error says which one it was.

    LakepactError
    ├── Refused                   nothing happened, and the same request would be refused again
    │   ├── BadRequest            the request is wrong in itself
    │   │   └── TransactionClosed the transaction has ended; the error says how
    │   ├── Unauthorized          who are you? Send a token, or a newer one
    │   ├── Forbidden             you may not do this
    │   ├── NotFound              no such table, namespace, view, document, transaction or warehouse
    │   ├── AlreadyExists         the name is taken
    │   ├── NotEmpty              a namespace with something in it cannot be dropped
    │   ├── Unsupported           this server does not do that
    │   └── Conflict              somebody else was faster: read again and do it again, or use `lake.run`
    ├── Unavailable               nothing happened, because nobody answered: try again later
    └── Unknown                   it may or may not have happened: ask about `transaction_id`, delete nothing

What the server said is kept: its own word (`server_type`), the HTTP status and every field of the error document.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final

from lakepact.client.names import Identifier, identifier_of, shown
from lakepact.errors import LakepactError


class Refused(LakepactError):
    """The server will not do this. Nothing happened."""

    type: ClassVar[str] = "refused"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        server_type: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.server_type = server_type
        self.details: Mapping[str, Any] = dict(details or {})


class BadRequest(Refused):
    """The request is wrong in itself: change it and send it again."""

    type: ClassVar[str] = "bad-request"


class TransactionClosed(BadRequest):
    """The transaction has ended, and takes no more of anything. `state` says how it ended."""

    type: ClassVar[str] = "transaction-ended"

    def __init__(self, message: str, *, transaction_id: str, state: str, **said: Any) -> None:
        super().__init__(message, **said)
        self.transaction_id = transaction_id
        self.state = state


class Unauthorized(Refused):
    """The server does not know who is asking, or no longer."""

    type: ClassVar[str] = "unauthorized"


class Forbidden(Refused):
    """The server knows who is asking, and they may not do this."""

    type: ClassVar[str] = "forbidden"


class NotFound(Refused):
    """There is nothing of this name."""

    type: ClassVar[str] = "not-found"


class AlreadyExists(Refused):
    """There is something of this name already."""

    type: ClassVar[str] = "already-exists"


class NotEmpty(Refused):
    """The namespace still has something in it."""

    type: ClassVar[str] = "not-empty"


class Unsupported(Refused):
    """This server does not do that."""

    type: ClassVar[str] = "unsupported"


class Conflict(Refused):
    """Somebody else changed what this was computed from. Nothing happened; read again and do it again.

    `tables` names the tables that had moved, as far as the server says.
    """

    type: ClassVar[str] = "conflict"

    @property
    def tables(self) -> tuple[Identifier, ...]:
        words = ("conflicts", "failed-requirements", "version-conflicts")
        named = [one for word in words for one in self.details.get(word, ())]
        found = (one.get("identifier") for one in named if isinstance(one, Mapping))
        return tuple(dict.fromkeys(identifier_of(one) for one in found if one is not None))


class Unavailable(LakepactError):
    """Nobody answered, or nobody could. Nothing happened; try again later."""

    type: ClassVar[str] = "unavailable"


class Unknown(LakepactError):
    """It may or may not have happened, and the client could not find out in time.

    `lake.transactions.get(transaction_id)` settles it once the server answers: `committed` means that all of it
    happened, `failed`, `aborted` or `NotFound` that nothing did. Until then delete nothing and do not do it again
    under another id.
    """

    type: ClassVar[str] = "unknown"

    def __init__(self, what: str, reason: str, transaction_id: str | None) -> None:
        settle = (
            "load what it was to change, and look"
            if transaction_id is None
            else f"ask with lake.transactions.get({transaction_id!r}) or `lakepact tx show {transaction_id}`"
        )
        super().__init__(
            f"{what}: it is not known whether it happened ({reason}). Delete nothing and do not repeat it under "
            f"another id; {settle}"
        )
        self.transaction_id = transaction_id


_BY_SERVER_TYPE: Final[Mapping[str, type[Refused]]] = {
    "CommitFailedException": Conflict,
    "SnapshotTooOldException": Conflict,
    "AlreadyExistsException": AlreadyExists,
    "NamespaceNotEmptyException": NotEmpty,
}

_BY_STATUS: Final[Mapping[int, type[Refused]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    406: Unsupported,
    413: BadRequest,
    419: Unauthorized,
    422: BadRequest,
    501: Unsupported,
}


def refused(status: int, error: Mapping[str, Any]) -> Refused:
    """The exception for an error document, as an answer or a transaction's record carries it."""
    server_type = str(error.get("type") or "")
    kind = _BY_SERVER_TYPE.get(server_type) or _BY_STATUS.get(status, Refused)
    known = {"message", "type", "code"}
    return kind(
        str(error.get("message") or f"the server answered {status} without a word"),
        status=status,
        server_type=server_type or None,
        details={name: value for name, value in error.items() if name not in known},
    )


def conflict_of(error: BaseException) -> Conflict | None:
    """The conflict that this error is, if it is one: the client's own, or one that PyIceberg met.

    PyIceberg need not be installed for this. It is known by name and by the first word of its messages, which is the
    server's own word.
    """
    if isinstance(error, Conflict):
        return error
    if not any(kind.__module__ == "pyiceberg.exceptions" for kind in type(error).__mro__):
        return None
    word = str(error).partition(":")[0]
    if type(error).__name__ == "CommitFailedException" or _BY_SERVER_TYPE.get(word) is Conflict:
        return Conflict(str(error), status=409, server_type=word)
    return None


def listed(tables: Iterable[Identifier]) -> str:
    return ", ".join(shown(table) for table in tables)

"""What this package raises, hung into the project's tree.

    LakepactError
    ├── InvalidRequest
    │   └── InvalidIceberg        the Iceberg content of a request is wrong; nothing was written
    │       ├── Malformed         a field is missing, or is not of its type
    │       ├── UnknownNames      actions or requirements this release does not know
    │       ├── InvalidUpdate     the update does not fit the table or view
    │       └── InvalidMetadata   a file that was to be registered is not table or view metadata
    └── StaleUpdate               the update was computed on an older table; refresh and try again

A requirement that does not hold is not an error here but a value, `requirements.Failure`: all of them are collected,
over all tables, before anybody is told. Stored metadata that cannot be read is `lakepact.errors.Unreadable`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from lakepact.errors import InvalidRequest, LakepactError


class InvalidIceberg(InvalidRequest):
    """The Iceberg content of a request is wrong in itself. Nothing was written; change it and send it again."""

    type: ClassVar[str] = "invalid-iceberg"


class Malformed(InvalidIceberg):
    """A field of a request is missing, or is not of the type the specification gives it."""

    type: ClassVar[str] = "malformed"


class UnknownNames(InvalidIceberg):
    """A request names update actions or requirement types that this release does not know."""

    type: ClassVar[str] = "unknown-names"

    def __init__(self, names: Iterable[str], known: Iterable[str]) -> None:
        self.names = tuple(dict.fromkeys(names))
        shown = [name[:80] for name in self.names[:20]]
        super().__init__(
            f"unknown or not allowed here: {', '.join(shown)}. Nothing was done. Known are {', '.join(sorted(known))}"
        )


class InvalidUpdate(InvalidIceberg):
    """An update does not fit the table or view it is applied to."""

    type: ClassVar[str] = "invalid-update"


class InvalidMetadata(InvalidIceberg):
    """A file that was to be registered is not valid table or view metadata."""

    type: ClassVar[str] = "invalid-metadata"


class StaleUpdate(LakepactError):
    """An update was computed on an older state of the table. Nothing was applied; refresh and try again."""

    type: ClassVar[str] = "stale-update"

    def __init__(self, message: str, *, field: str, sent: int, actual: int) -> None:
        super().__init__(message)
        self.field = field
        self.sent = sent
        self.actual = actual

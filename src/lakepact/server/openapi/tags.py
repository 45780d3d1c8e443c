"""The groups of operations, and what is said of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class Tag(StrEnum):
    CONFIGURATION = "Configuration"
    NAMESPACES = "Namespaces"
    TABLES = "Tables"
    TRANSACTIONS = "Transactions"
    VIEWS = "Views"
    DELTA = "Delta tables"
    ACCESS = "Access"
    RIGHTS = "Rights and governance"
    SERVER = "Server"
    PAGES = "Pages"


TAGS: Final[Mapping[Tag, str]] = {
    Tag.CONFIGURATION: "The first request of every client.",
    Tag.NAMESPACES: "Namespaces nest; in a path their levels are joined by the separator that the configuration names.",
    Tag.TABLES: "Tables, their versions, and commits to one of them.",
    Tag.TRANSACTIONS: "Commits to several tables at once, and what became of any change.",
    Tag.VIEWS: "Views share their names with tables: one name, one thing.",
    Tag.DELTA: "Tables in Delta's format: their metadata is in the store, their names and transactions are shared. "
    "Clients of Iceberg do not see them.",
    Tag.ACCESS: "Who is asking. These paths have no warehouse.",
    Tag.RIGHTS: "Who may do what, and what people say about a table. See docs/access.md.",
    Tag.PAGES: "The web page at `/ui`, for people: HTML, errors too. Not for programs to read.",
    Tag.SERVER: "For those who run the server. Not part of the catalog, and without a warehouse.",
}


@dataclass(frozen=True, slots=True)
class Operation:
    tag: Tag
    summary: str
    text: str
    answers: Mapping[int, str | None]
    """What it answers if all goes well: status and the schema of the body, if it has one."""

    refusals: tuple[int, ...] = ()
    """What it may answer beside what every operation of its kind may."""

    body: str | None = None
    example: Any = None
    parameters: tuple[str, ...] = ()
    changes: bool = False
    """Whether it changes the catalog: then it takes an Idempotency-Key and is recorded as a transaction."""

    takes_key: bool = True
    """Not if it can be repeated anyway: what it changes is named in the path, and it changes that once."""

    body_required: bool = True
    headers: tuple[str, ...] = ()
    """Of a good answer, beside the transaction's id."""

    media: str = "application/json"
    body_media: str = "application/json"
    form_errors: bool = False
    """Whether its errors are OAuth's, and not Iceberg's."""

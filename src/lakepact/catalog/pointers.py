"""Pointers: the cells that say which metadata file is a table or a view now.

Everything a pointer repeats from the metadata is derived from it here, never written by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from lakepact.access.rules import Scope
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier
from lakepact.iceberg.summary import summarize_table, summarize_view
from lakepact.kernel.model import Cell, Value

ICEBERG: Final = "iceberg"
DELTA: Final = "delta"
DIGEST: Final = "metadata-sha256"
"""In a pointer, and in the result of whoever made it: the SHA-256 of the JSON in its metadata file."""

_MOST_REFS: Final = 100
"""A pointer is a small document. A table with more branches and tags than this has them in its metadata alone."""


_OF_A_NOTE: Final = frozenset({"dropped-ms", "purge", "purging", "released-ms", "namespace-ids", "staged"})


class Kind(StrEnum):
    TABLE = "table"
    VIEW = "view"
    DELTA = "delta"
    """A Delta table: a table of its own kind, which clients of Iceberg do not see."""


FAMILIES: Final = {Kind.TABLE: "tables", Kind.VIEW: "views", Kind.DELTA: "delta"}
"""The family of the cells that are pointers of a kind, which also names what a grant is on."""


class Change(StrEnum):
    """How a pointer came to be what it is. Receipts say it."""

    CREATE = "create"
    COMMIT = "commit"
    REGISTER = "register"
    RENAME = "rename"
    DROP = "drop"
    UNDROP = "undrop"


def identifier_json(identifier: Identifier) -> JsonObject:
    return {"namespace": list(identifier.namespace), "name": identifier.name}


@dataclass(frozen=True, slots=True)
class Pointer:
    kind: Kind
    id: str
    identifier: Identifier
    metadata_location: str
    previous_metadata_location: str | None
    change: Change
    summary: JsonObject
    """What the metadata says: uuid, location, schema, snapshot, refs."""

    @classmethod
    def to(
        cls,
        kind: Kind,
        identifier: Identifier,
        metadata: JsonObject,
        location: str,
        change: Change,
        previous: str | None = None,
        *,
        digest: str | None = None,
    ) -> Self:
        """The pointer to this metadata at this location, in a file with this digest."""
        summary = (summarize_table(metadata) if kind is Kind.TABLE else summarize_view(metadata)).to_json()
        if len(summary.get("refs") or ()) > _MOST_REFS:
            del summary["refs"]
        if digest is not None:
            summary[DIGEST] = digest
        return cls(kind, summary["uuid"], identifier, location, previous, change, summary)

    @classmethod
    def to_delta(cls, identifier: Identifier, summary: JsonObject, change: Change, previous: str | None = None) -> Self:
        """The pointer to a version of a Delta table: its metadata is the file of its log, which follows later."""
        location = f"{summary['location']}/_delta_log/{summary['version']:020}.json"
        return cls(Kind.DELTA, summary["uuid"], identifier, location, previous, change, summary)

    @classmethod
    def of(cls, cell: Cell) -> Self | None:
        """What this cell points to, or None if there is nothing (any more)."""
        return None if cell.value is None else cls.from_json(cell.value)

    @classmethod
    def from_json(cls, value: Value) -> Self:
        # Of a dropped or a staged table too: that is its pointer, and a little more.
        fields: dict[str, Any] = {name: field for name, field in value.items() if name not in _OF_A_NOTE}
        return cls(
            kind=Kind(fields.pop("kind")),
            id=fields["uuid"],
            identifier=Identifier(tuple(fields.pop("namespace")), fields.pop("name")),
            metadata_location=fields.pop("metadata-location"),
            previous_metadata_location=fields.pop("previous-metadata-location"),
            change=Change(fields.pop("change")),
            summary={name: field for name, field in fields.items() if name != "format"},
        )

    def to_json(self) -> Value:
        return {
            "kind": self.kind,
            "format": DELTA if self.kind is Kind.DELTA else ICEBERG,
            "namespace": list(self.identifier.namespace),
            "name": self.identifier.name,
            "metadata-location": self.metadata_location,
            "previous-metadata-location": self.previous_metadata_location,
            "change": self.change,
            **self.summary,
        }

    @property
    def location(self) -> str:
        """The folder of the table or view."""
        location: str = self.summary["location"]
        return location

    @property
    def digest(self) -> str | None:
        """What the metadata file is known by, wherever it is read. None: an older release has made this pointer."""
        return self.summary.get(DIGEST)


def scope_of(pointer: Pointer) -> Scope:
    """What a grant on this table or view is held on."""
    return Scope.thing(FAMILIES[pointer.kind], pointer.id)


def shown(identifier: Identifier) -> str:
    """`namespace.name`, as Iceberg's messages write it."""
    return ".".join((*identifier.namespace, identifier.name))

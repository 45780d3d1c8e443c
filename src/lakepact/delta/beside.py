"""What a commit does to the rows of Delta tables, as the document that moves beside its cells.

    {"delta": {"warehouse": "main",
               "create":   [{"table_id", "namespace", "name", "location", "base_version"}],
               "rename":   [{"table_id", "namespace", "name"}],
               "drop":     ["<table id>"],
               "undrop":   [{"table_id", "namespace", "name"}],
               "mirrors":  [{"table_id", "engines": ["delta_log"]}],
               "versions": [{"table_id", "version", "ict_ms", "operation", "operation_params", "commit_info",
                             "adds", "removes", "digest", "tombstones"}],
               "outbox":   {"ict_ms", "tables": "{\\"<table id>\\": 7}"} or null}}

The actions themselves are not in it: they are rows already (`ports.DeltaRows.put`), and become visible by this. JSON
that is kept byte for byte is a string inside the document. The kernel passes the document on unread; the stores carry
it out, in the database transaction that commits the cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from lakepact.delta.actions import JsonObject

KEY: Final = "delta"
"""Under which the document stands in `Transaction.beside`."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that begins to be. Its first version is usually in the same document."""

    table_id: str
    namespace: str
    name: str
    location: str
    base_version: int = -1
    """The first version will be the one after. An imported log may begin at a checkpoint."""


@dataclass(frozen=True, slots=True)
class Renamed:
    table_id: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NewVersion:
    """One version of one table, whose rows were put under this very version and transaction."""

    table_id: str
    version: int
    ict_ms: int
    """The in-commit timestamp: later than that of the version before, and the same for all tables of a commit."""

    operation: str
    adds: int = 0
    removes: int = 0
    operation_params: JsonObject = field(default_factory=dict)
    commit_info: JsonObject = field(default_factory=dict)
    """What `CommitInfo.more` holds: everything else that is said of the commit."""

    digest: str = ""
    """Of the file in the log that the version was imported from; empty for one that was made here."""

    tombstones: bool = False
    """Whether removes may name files that are not there: the first version of an import, made of a checkpoint."""


@dataclass(frozen=True, slots=True)
class DeltaChanges:
    """All that one commit does to Delta tables of one warehouse.

    Several versions of one table must follow each other without a gap. Every table whose version moves must have its
    cell written in the same transaction: the cell is what others compare, and the rows rely on it.
    """

    warehouse: str
    create: tuple[NewTable, ...] = ()
    rename: tuple[Renamed, ...] = ()
    drop: tuple[str, ...] = ()
    undrop: tuple[Renamed, ...] = ()
    """Dropped tables that come back, under these names."""

    versions: tuple[NewVersion, ...] = ()
    mirrors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Engines that shall follow a table from now on. Those that do already are left as they are."""

    outbox: bool = True
    """Whether mirrors are to hear of this commit: false if no table of it has any."""

    def document(self) -> dict[str, Any]:
        """The value of `Transaction.beside`."""
        return {
            KEY: {
                "warehouse": self.warehouse,
                "create": [
                    {
                        "table_id": one.table_id,
                        "namespace": one.namespace,
                        "name": one.name,
                        "location": one.location,
                        "base_version": one.base_version,
                    }
                    for one in self.create
                ],
                "rename": [_named(one) for one in self.rename],
                "drop": list(self.drop),
                "undrop": [_named(one) for one in self.undrop],
                "mirrors": [
                    {"table_id": table_id, "engines": list(engines)} for table_id, engines in self.mirrors.items()
                ],
                "versions": [
                    _version(one) for one in sorted(self.versions, key=lambda one: (one.table_id, one.version))
                ],
                "outbox": self._outgoing() if self.outbox else None,
            }
        }

    def _outgoing(self) -> dict[str, Any] | None:
        reached: dict[str, int | None] = {one.table_id: None for one in (*self.rename, *self.undrop)}
        for version in self.versions:
            reached[version.table_id] = max(version.version, reached.get(version.table_id) or 0)
        reached.update((table_id, None) for table_id in self.drop)
        if not reached and not self.create:
            return None
        for table in self.create:
            reached.setdefault(table.table_id, None)
        return {
            "ict_ms": max((one.ict_ms for one in self.versions), default=None),
            "tables": _json(dict(sorted(reached.items()))),
        }


def _named(one: Renamed) -> dict[str, Any]:
    return {"table_id": one.table_id, "namespace": one.namespace, "name": one.name}


def _version(one: NewVersion) -> dict[str, Any]:
    return {
        "table_id": one.table_id,
        "version": one.version,
        "ict_ms": one.ict_ms,
        "operation": one.operation,
        "operation_params": _json(one.operation_params),
        "commit_info": _json(one.commit_info),
        "adds": one.adds,
        "removes": one.removes,
        "digest": one.digest,
        "tombstones": one.tombstones,
    }


def _json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(dict(value)).decode()

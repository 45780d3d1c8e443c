"""How far the word of whoever commits can be trusted about what was read.

A pipeline runs on somebody's machine, and what it says of its inputs anybody could say who may write its tables. What a
serializable transaction has loaded, on the other hand, the server has noted itself, for the transaction depends on it.
So inputs are verified if each of them is a table that was loaded in that very transaction, under the name and with the
snapshot that it had there; all else is declared. What was made of what was loaded, nobody here can see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lakepact.catalog.delta_steps import DELTA_CELLS
from lakepact.catalog.errors import NotFound
from lakepact.catalog.keys import family_of
from lakepact.catalog.operations import Parts
from lakepact.catalog.pointers import Kind, Pointer, shown
from lakepact.errors import SnapshotTooOld, TransactionError, Unreadable
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Isolation, Transaction, TransactionRecord

VERIFIED: Final = "verified"
DECLARED: Final = "declared-unverified"
NONE: Final = "none"

LINEAGE: Final = "lineage"
"""Where a source holds the server's own word about the rest of it."""

_PIPELINE: Final = "pipeline"
_REST: Final = "rest"
_TABLES: Final = ("tables", DELTA_CELLS)
_MOST_INPUTS: Final = 1_000


def lineage_of(source: Mapping[str, Any]) -> str:
    """One word for the receipts."""
    if source.get(LINEAGE) == VERIFIED:
        return VERIFIED
    return DECLARED if source.get("kind") in (_PIPELINE, _REST) or source.get("inputs") else NONE


async def witnessed(parts: Parts, record: TransactionRecord, source: JsonObject) -> JsonObject:
    """What the committer says, with the server's own word about it if there is something to say."""
    said = {name: value for name, value in source.items() if name != LINEAGE}
    if said.get("kind") != _PIPELINE and not said.get("inputs"):
        return said
    try:
        seen = record.isolation is Isolation.SERIALIZABLE and await _was_loaded(parts, record, said.get("inputs") or [])
    except (TransactionError, SnapshotTooOld, NotFound, Unreadable):
        # It has ended meanwhile, or cannot be read any more: the commit says so, and not this.
        seen = False
    return {**said, LINEAGE: VERIFIED} if seen else said


async def _was_loaded(parts: Parts, record: TransactionRecord, inputs: Any) -> bool:
    contents = await parts.store.contents(record.id)
    keys = _tables(contents)
    if not isinstance(inputs, list) or len(inputs) > _MOST_INPUTS:
        return False
    if not inputs:
        # That nothing was read can be said if nothing was loaded but what is written.
        return set(keys.values()) <= {write.key for write in contents.writes}
    named = [keys.get(str(one.get("table-uuid")).lower()) if isinstance(one, dict) else None for one in inputs]
    wanted = [key for key in named if key is not None]
    if len(wanted) < len(inputs):
        return False
    cells = await parts.store.read_in(record.id, list(dict.fromkeys(wanted)), note=False)
    for one, key in zip(inputs, wanted, strict=True):
        pointer = Pointer.of(cells[key])
        if pointer is None or not _is_called(pointer, one.get("table")) or not await _had(parts, pointer, one):
            return False
    return True


def _tables(contents: Transaction) -> dict[str, Key]:
    """The cells of the tables that a transaction has met, by their ids."""
    met = (one.key for some in (contents.reads, contents.writes) for one in some)
    return {segments_of(key)[-1]: key for key in met if family_of(key) in _TABLES}


def _is_called(pointer: Pointer, name: object) -> bool:
    levels = (*pointer.identifier.namespace, pointer.identifier.name)
    # Clients quote a level that has a dot in it.
    return name in (shown(pointer.identifier), ".".join(f'"{one}"' if "." in one else one for one in levels))


async def _had(parts: Parts, pointer: Pointer, one: Mapping[str, Any]) -> bool:
    """Whether the table had the snapshot, or the version, that is said to have been read."""
    if pointer.kind is Kind.DELTA:
        version = one.get("version")
        return version is None or (isinstance(version, int) and 0 <= version <= pointer.summary["version"])
    asked = one.get("snapshot-id")
    if asked is None or str(asked) == str(pointer.summary.get("current-snapshot-id")):
        return True
    document = (await parts.files.table(pointer.metadata_location)).document
    return any(str(asked) == str(snapshot["snapshot-id"]) for snapshot in document.get("snapshots") or ())

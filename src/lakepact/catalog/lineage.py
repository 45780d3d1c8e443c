"""How far the word of whoever commits can be trusted about what was read.

A pipeline runs on somebody's machine, and what it says of its inputs anybody could say who may write its tables. So the
server holds it against what it knows: inputs are verified if the transaction has seen each of these tables under this
name and with this snapshot, and whoever commits may see them; all else is declared. What a serializable transaction has
loaded the server has noted itself, for the transaction depends on it, and there each input must be among that. What was
made of it, nobody here can see.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final

from lakepact.catalog.cells import a_look_each
from lakepact.catalog.delta_steps import DELTA_CELLS
from lakepact.catalog.errors import NotFound
from lakepact.catalog.keys import family_of, last_segment
from lakepact.catalog.operations import Parts
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer, shown
from lakepact.catalog.work import Judge
from lakepact.errors import TransactionError, Unreadable
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Isolation, Transaction, TransactionRecord

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


async def witnessed(parts: Parts, record: TransactionRecord, source: JsonObject, judge: Judge | None) -> JsonObject:
    """What the committer says, with the server's own word about it if there is something to say."""
    said = {name: value for name, value in source.items() if name != LINEAGE}
    if said.get("kind") != _PIPELINE and not said.get("inputs"):
        return said
    try:
        seen = await _was_seen(parts, record, said.get("inputs") or [], judge)
    except (TransactionError, NotFound, Unreadable):
        # It has ended meanwhile, or cannot be read any more: the commit says so, and not this.
        seen = False
    return {**said, LINEAGE: VERIFIED} if seen else said


async def _was_seen(parts: Parts, record: TransactionRecord, inputs: Any, judge: Judge | None) -> bool:
    if not isinstance(inputs, list) or len(inputs) > _MOST_INPUTS or not all(isinstance(one, dict) for one in inputs):
        return False
    loaded = None
    if record.isolation is Isolation.SERIALIZABLE:
        contents = await parts.store.contents(record.id)
        loaded = _tables(contents)
        if not inputs:
            # That nothing was read can be said if nothing was loaded but what is written.
            written = {last_segment(write.key) for write in contents.writes if family_of(write.key) in _TABLES}
            return {last_segment(key) for key in loaded} <= written
    ids = [str(one.get("table-uuid")).lower() for one in inputs]
    if not ids or not all(map(is_table_id, ids)):
        return False
    keys = {id: parts.keys.of_any_kind(id) for id in ids}
    wanted = [keys[id][family] for id in keys for family in _TABLES]
    cells: dict[Key, Cell] = {}
    for some in a_look_each(wanted):
        cells |= await parts.store.read_in(record.id, some, note=False)
    for id, one in zip(ids, inputs, strict=True):
        found = (Pointer.of(cells[keys[id][family]]) for family in _TABLES)
        pointer = next((one for one in found if one is not None), None)
        if pointer is None or (loaded is not None and keys[id][FAMILIES[pointer.kind]] not in loaded):
            return False
        if not _is_called(pointer, one.get("table")) or not await _had(parts, pointer, one):
            return False
        if judge is not None and not judge.sees(pointer):
            return False
    return True


def is_table_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _tables(contents: Transaction) -> set[Key]:
    """The cells of the tables that a transaction has met."""
    met = (one.key for some in (contents.reads, contents.writes) for one in some)
    return {key for key in met if family_of(key) in _TABLES}


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

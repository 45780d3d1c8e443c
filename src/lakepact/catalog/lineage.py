"""How far the word of whoever commits can be trusted about what was read.

A pipeline runs on somebody's machine, and what it says of its inputs anybody could say who may write its tables. So the
server holds it against what it knows: inputs are verified if the transaction has seen each of these tables under this
name and with this snapshot, and whoever commits may see them; all else is declared. What a serializable transaction has
loaded the server has noted itself, for the transaction depends on it, and there each input must be among that. What was
made of it, nobody here can see.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
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
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Isolation, Transaction, TransactionRecord

VERIFIED: Final = "verified"
DECLARED: Final = "declared-unverified"
LOADED: Final = "loaded"
"""The committer names no inputs, and these tables were loaded in its transaction: which of its tables was made of which
of them is not known."""

NONE: Final = "none"
"""Not recorded."""

NOT_CHECKED: Final = "not-checked"

LINEAGE: Final = "lineage"
"""Where a source holds the server's own word about the rest of it."""

_USED_BY: Final = "used-by"
"""Of an input: the stages that have read it. Of a check of a view: the tables that were made of the view."""

_PIPELINE: Final = "pipeline"
_REST: Final = "rest"
_TABLES: Final = ("tables", DELTA_CELLS)
_MOST_INPUTS: Final = 1_000


def inputs_of_table(source: Mapping[str, Any], identifier: Identifier | None) -> list[Any]:
    """Those of the inputs that a table was made of: an input names the stages that have read it, and a stage has the
    name of its table. An input that names none was read by the run as a whole, and may be of any table."""
    inputs = source.get("inputs")
    if not isinstance(inputs, list) or identifier is None:
        return inputs if isinstance(inputs, list) else []
    names = written_names(identifier)
    found = []
    for one in inputs:
        users = one.get(_USED_BY) if isinstance(one, dict) else None
        if not isinstance(users, list) or not users:
            found.append(one)
        elif own := [user for user in users if isinstance(user, str) and user in names]:
            # The other stages are none of this table's readers' business: they may be hidden.
            found.append({**one, _USED_BY: own})
    return found


def checks_of_table(source: Mapping[str, Any], identifier: Identifier | None) -> list[Any]:
    """Those of the checks that are of a table, or of a view that it was made of, with their positions among all."""
    checks = source.get("checks")
    if not isinstance(checks, list) or identifier is None:
        return checks if isinstance(checks, list) else []
    names = written_names(identifier)
    return [
        {**{field: value for field, value in one.items() if field != _USED_BY}, "position": position}
        for position, one in enumerate(checks)
        if isinstance(one, dict) and (one.get("table") in names or _is_used_by(one, names))
    ]


def _is_used_by(check: Mapping[str, Any], names: frozenset[str]) -> bool:
    users = check.get(_USED_BY)
    return isinstance(users, list) and any(isinstance(user, str) and user in names for user in users)


def quality_of_table(source: Mapping[str, Any], checks: Sequence[Any]) -> str:
    """One word for the checks of a table. Where the committer names no checks at all, it is the committer's word."""
    if not isinstance(source.get("checks"), list) or not source["checks"]:
        return str(source.get("quality", NOT_CHECKED))
    found = {str(one.get("status")) for one in checks if isinstance(one, dict)}
    if not found:
        return NOT_CHECKED
    if "failed" in found:
        return "failed"
    return "passed" if found == {"passed"} else "warned"


def written_names(identifier: Identifier) -> frozenset[str]:
    """How a table is called in a source: with dots, and clients quote a level that has a dot in it."""
    levels = (*identifier.namespace, identifier.name)
    return frozenset((shown(identifier), ".".join(f'"{one}"' if "." in one else one for one in levels)))


def lineage_of(source: Mapping[str, Any]) -> str:
    """One word for the receipts."""
    if source.get(LINEAGE) in (VERIFIED, LOADED):
        return str(source[LINEAGE])
    named = "inputs" in source if source.get("kind") == _PIPELINE else source.get("kind") == _REST
    return DECLARED if named or source.get("inputs") else NONE


async def witnessed(parts: Parts, record: TransactionRecord, source: JsonObject, judge: Judge | None) -> JsonObject:
    """What the committer says, with the server's own word about it if there is something to say."""
    said = {name: value for name, value in source.items() if name != LINEAGE}
    if "inputs" not in said:
        return await _with_loaded_tables(parts, record, said, judge)
    if said.get("kind") != _PIPELINE and not said.get("inputs"):
        return said
    try:
        seen = await _was_seen(parts, record, said.get("inputs") or [], judge)
    except (TransactionError, NotFound, Unreadable):
        # It has ended meanwhile, or cannot be read any more: the commit says so, and not this.
        seen = False
    return {**said, LINEAGE: VERIFIED} if seen else said


async def _with_loaded_tables(
    parts: Parts, record: TransactionRecord, said: JsonObject, judge: Judge | None
) -> JsonObject:
    """The source with the tables that a serializable transaction has loaded and does not write. Of a transaction with
    snapshot isolation nobody has noted them."""
    if record.isolation is not Isolation.SERIALIZABLE:
        return said
    try:
        contents = await parts.store.contents(record.id)
        written = {last_segment(write.key) for write in contents.writes}
        loaded = sorted(
            key
            for key in (read.key for read in contents.reads)
            if family_of(key) in _TABLES and last_segment(key) not in written
        )[:_MOST_INPUTS]
        cells: dict[Key, Cell] = {}
        for some in a_look_each(loaded):
            cells |= await parts.store.read_in(record.id, some, note=False)
    except (TransactionError, NotFound, Unreadable):
        # It has ended meanwhile: the commit says so, and not this.
        return said
    pointers = [pointer for key in loaded if (pointer := Pointer.of(cells[key])) is not None]
    visible = [one for one in pointers if judge is None or judge.sees(one)]
    if not visible:
        return said
    return {**said, "inputs": [_loaded_input(one) for one in visible], LINEAGE: LOADED}


def _loaded_input(pointer: Pointer) -> JsonObject:
    snapshot_id = pointer.summary.get("current-snapshot-id")
    at = {"version": pointer.summary["version"]} if pointer.kind is Kind.DELTA else {}
    return {
        "table": shown(pointer.identifier),
        "table-uuid": pointer.id,
        "used-by": [],
        **at,
        **({} if snapshot_id is None or at else {"snapshot-id": str(snapshot_id)}),
    }


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
    return name in written_names(pointer.identifier)


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

"""Changes of many tables that are staged together, each as updates or as a whole new metadata document.

They are staged once in a transaction: the same ones again change nothing, and other ones are refused. What was staged
is remembered inside the transaction as a digest, and beside it as a record of its own, which outlives the staging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from lakepact.catalog.errors import BadRequest, CommitFailed, NoSuchTable
from lakepact.catalog.keys import Keys
from lakepact.catalog.names import Names
from lakepact.catalog.pointers import Kind, Pointer, identifier_json, shown
from lakepact.catalog.tables import Tables
from lakepact.catalog.work import Draft
from lakepact.errors import KeyReused
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Commit, Identifier
from lakepact.kernel.identity import TransactionId, derived_id
from lakepact.kernel.model import TransactionRecord

_GUARDS: Final = "guards"
_PLACE: Final = "edits"
"""Where the digest is, among the answers of the transaction."""


@dataclass(frozen=True, slots=True)
class NewDocument:
    """The bytes of a whole metadata document."""

    text: bytes


@dataclass(frozen=True, slots=True)
class DocumentAt:
    """A whole metadata document that is in the warehouse already."""

    location: str


@dataclass(frozen=True, slots=True)
class TableEdit:
    target: Identifier | str
    """The table by its name or by its id."""

    payload: Commit | NewDocument | DocumentAt
    expected_version: int | None = None
    """The revision of the table's cell; 0 if it must not be there."""


@dataclass(frozen=True, slots=True)
class _Resolved:
    edit: TableEdit
    identifier: Identifier
    pointer: Pointer | None


Digest: TypeAlias = str


class Edits:
    def __init__(self, keys: Keys, names: Names, tables: Tables) -> None:
        self._keys = keys
        self._names = names
        self._tables = tables

    async def stage(self, draft: Draft, edits: Sequence[TableEdit], digest: Digest) -> JsonObject:
        """The plan. All tables or none; every table that is not at its version is named."""
        place = self._keys.answers(_PLACE)
        [earlier] = await draft.read(place)
        if earlier.value is not None:
            if earlier.value["hash"] != digest:
                raise other_changes(draft.transaction_id)
            staged: JsonObject = earlier.value["result"]
            return staged
        resolved = [await self._resolved(draft, edit) for edit in edits]
        _refuse_duplicates(resolved)
        await self._check_versions(draft, resolved)
        commits = [
            replace(one.edit.payload, identifier=one.identifier)
            for one in resolved
            if isinstance(one.edit.payload, Commit)
        ]
        result = await self._tables.commit_all(draft, commits)
        for one in resolved:
            if not isinstance(one.edit.payload, Commit):
                result["results"].append(await self._document(draft, one))
        draft.write(place, {"hash": digest, "result": result})
        return result

    async def _resolved(self, draft: Draft, edit: TableEdit) -> _Resolved:
        if isinstance(edit.target, Identifier):
            pointer = await self._names.find(draft, edit.target)
            return _Resolved(edit, edit.target, pointer)
        [cell] = await draft.read(self._keys.table(edit.target))
        pointer = Pointer.of(cell)
        if pointer is None:
            raise NoSuchTable(f"Table does not exist: {edit.target}")
        return _Resolved(edit, pointer.identifier, pointer)

    async def _check_versions(self, draft: Draft, resolved: Sequence[_Resolved]) -> None:
        moved: list[JsonObject] = []
        for one in resolved:
            expected = one.edit.expected_version
            if expected is None or (actual := await self._version(draft, one.pointer)) == expected:
                continue
            key = self._keys.name(one.identifier) if one.pointer is None else self._names.pointer_key(one.pointer)
            named = {"cell": key, "identifier": identifier_json(one.identifier), "access": "write"}
            moved.append({**named, "expected": expected, "actual": actual})
        if moved:
            tables = ", ".join(".".join((*one["identifier"]["namespace"], one["identifier"]["name"])) for one in moved)
            raise CommitFailed(
                f"{tables}: at version {moved[0]['actual']}, not {moved[0]['expected']} as expected. Nothing was "
                f"applied; look again and begin anew",
                {"conflicts": moved},
            )

    async def _version(self, draft: Draft, pointer: Pointer | None) -> int:
        """What the table's cell is at outside, as the transaction sees it."""
        if pointer is None:
            return 0
        [cell] = await draft.read(self._names.pointer_key(pointer))
        return cell.revision - (cell.writer == draft.transaction_id)

    async def _document(self, draft: Draft, one: _Resolved) -> JsonObject:
        if one.pointer is None or one.pointer.kind is not Kind.TABLE:
            raise NoSuchTable(
                f"Table does not exist: {shown(one.identifier)}. A metadata document follows an earlier one; create "
                f"the table with updates"
            )
        match one.edit.payload:
            case NewDocument(text):
                location = await self._tables.replace(draft, one.pointer, text=text)
            case DocumentAt(location):
                location = await self._tables.replace(draft, one.pointer, location=location)
            case Commit():
                raise AssertionError("commits are staged together")
        return {"identifier": identifier_json(one.identifier), "metadata-location": location}


def guard_id(transaction_id: TransactionId) -> TransactionId:
    """The id of the record that remembers what was staged in this transaction, after the transaction itself forgot."""
    return derived_id(transaction_id, "edits")


def guard_answer(transaction_id: TransactionId, operation: str, warehouse: str) -> JsonObject:
    return {"operation": operation, "warehouse": warehouse, _GUARDS: transaction_id}


def is_guard(record: TransactionRecord) -> bool:
    """Whether this is such a record, which nobody needs to see."""
    return _GUARDS in (record.answer or {})


def other_changes(transaction_id: TransactionId) -> KeyReused:
    return KeyReused(
        f"transaction {transaction_id} was prepared with other changes; commit or abort it, and begin another one for "
        f"these"
    )


def _refuse_duplicates(resolved: Sequence[_Resolved]) -> None:
    seen: set[Identifier] = set()
    for number, one in enumerate(resolved):
        if one.identifier in seen:
            raise BadRequest(
                f"changes[{number}]: table {shown(one.identifier)} is named twice; put all its updates into one change"
            )
        seen.add(one.identifier)

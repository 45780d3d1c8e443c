"""Whether a commit took effect before and only its answer was lost: told by what it has left in a table.

Refusing such a one would make the client delete files that are live. So its table is looked for under its id too: it
may have been renamed or dropped since.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from lakepact.catalog.errors import NotFound
from lakepact.catalog.files import MetadataFiles
from lakepact.catalog.ids import cells_of
from lakepact.catalog.keys import Keys
from lakepact.catalog.names import Names
from lakepact.catalog.pointers import Kind, Pointer
from lakepact.catalog.work import Draft
from lakepact.iceberg import names as words
from lakepact.iceberg.intent import adds_snapshots, has_snapshots
from lakepact.iceberg.parse import Requirement, Update
from lakepact.iceberg.requests import Commit, Identifier
from lakepact.iceberg.requirements import is_creation
from lakepact.kernel.model import Cell

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Earlier:
    def __init__(self, keys: Keys, names: Names, files: MetadataFiles) -> None:
        self._keys = keys
        self._names = names
        self._files = files

    async def table_of(self, draft: Draft, commit: Commit) -> Pointer | None:
        """The table that shows that this very commit was made to it, as it is now. None: no table does."""
        if not leaves_traces(commit):
            return None
        by_name = pointer = await self._names.find_kind(draft, named(commit), Kind.TABLE)
        if is_creation(commit.requirements):
            uuid = assigned_uuid(commit.updates)
            assert uuid is not None, "a creation without one leaves no traces"
            if pointer is None or pointer.id.lower() != uuid:
                # All that whoever creates it asks for a moment later: one look for both.
                await draft.read(*cells_of(self._keys, uuid))
                pointer = await self._by_id(draft, uuid)
            elif not adds_snapshots(commit.updates):
                return pointer
            # Two may commit what was staged once: whose snapshots are not in the table has not created it.
        else:
            uuid = _required_uuid(commit.requirements)
            if uuid is not None and (pointer is None or pointer.id.lower() != uuid):
                pointer = await self._by_id(draft, uuid)
        if pointer is None or not has_snapshots((await self._files.of(pointer)).document, commit.updates):
            return None
        if pointer is not by_name:
            draft.found_by_id.append(pointer)
        return pointer

    async def _by_id(self, draft: Draft, uuid: str) -> Pointer | None:
        """The table with this id, whatever its name is, or the last version of a dropped one."""
        [cell, note] = await draft.read(self._keys.table(uuid), self._keys.dropped(uuid))
        return Pointer.of(cell) or await self._dropped(note)

    async def _dropped(self, note: Cell) -> Pointer | None:
        """It is there only as long as its file is."""
        pointer = Pointer.of(note)
        if pointer is None or pointer.kind is not Kind.TABLE:
            return None
        with suppress(NotFound):
            await self._files.of(pointer)
            return pointer
        return None


def named(commit: Commit) -> Identifier:
    assert commit.identifier is not None, "whoever parses a commit fills it in from the path"
    return commit.identifier


def leaves_traces(commit: Commit) -> bool:
    """Whether a table shows that this very commit was made to it: by random ids of snapshots, or by its own id."""
    if is_creation(commit.requirements):
        return assigned_uuid(commit.updates) is not None
    return bool(adds_snapshots(commit.updates))


def assigned_uuid(updates: Iterable[Update]) -> str | None:
    return next((str(update.body["uuid"]).lower() for update in updates if update.action == words.ASSIGN_UUID), None)


def _required_uuid(requirements: Iterable[Requirement]) -> str | None:
    uuid = next((str(one.body["uuid"]).lower() for one in requirements if one.type == words.ASSERT_TABLE_UUID), "")
    # What no table can have as its id cannot be part of a key either.
    return uuid if _UUID.fullmatch(uuid) else None

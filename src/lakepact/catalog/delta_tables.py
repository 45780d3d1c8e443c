"""Delta tables: created, changed, read at a version. Renaming and dropping is the same as for other tables.

A pointer says which version a table has; what is in the version are rows of the SQL store (`delta_steps`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from lakepact.catalog.cells import Cells
from lakepact.catalog.delta_conflicts import all_of, check_may_go_on, version_conflict
from lakepact.catalog.delta_steps import DeltaStep, StagedDelta, needed, staged_steps, version_of
from lakepact.catalog.errors import BadRequest, CommitFailed, NoSuchTable
from lakepact.catalog.keys import Keys
from lakepact.catalog.names import Names, missing
from lakepact.catalog.namespaces import Namespaces
from lakepact.catalog.pointers import Change, Kind, Pointer, identifier_json, shown
from lakepact.catalog.staged import STAGED
from lakepact.catalog.tables import Tables
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.work import Draft
from lakepact.delta import schema as schemas
from lakepact.delta.actions import Action, Add, Metadata, Protocol, Remove
from lakepact.delta.checks import check_change
from lakepact.delta.conflicts import supposed_reads
from lakepact.delta.ports import DeltaRows, TableContents, VersionRow
from lakepact.delta.protocol import MANAGED_CONFIGURATION, is_managed, managed_protocol
from lakepact.delta.state import Replay, TableState
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.locations import without_trailing_slash
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import TransactionId

SHAPE: Final = "shape-version"
"""In a pointer: the version that brought the protocol and the metadata that the table has. None: nobody has looked."""

RECOVERING: Final = "recovering"
"""In the pointer of a table that is being recovered from its log, until all of it is there: nobody changes it yet."""

_MOST_SHAPES: Final = 10_000
_Shape: TypeAlias = tuple[Protocol, Metadata]


@dataclass(frozen=True, slots=True)
class CreateDelta:
    """A table to be made."""

    name: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    location: str | None = None
    description: str | None = None
    mirrors: tuple[str, ...] | None = None
    """Engines that follow it; None: those of the warehouse."""


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """A change of one table."""

    table: Identifier | str
    """By its name, or by its id."""

    actions: tuple[Action, ...]
    expected_version: int | None = None
    """The version that the table must have."""

    read_version: int | None = None
    """The version that the change was computed on; it may go on past others that do not concern it."""

    statements: int | None = None
    """How many statements of this transaction the change was computed on: they do not move the version."""

    operation: str = "WRITE"
    parameters: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeltaTable:
    """A table at one version, as readers get it."""

    pointer: Pointer
    state: TableState
    timestamp_ms: int
    statements: int = 0
    """How many statements of the transaction it is seen from have changed it."""


class DeltaTables:
    """Plans for the Delta tables of one warehouse."""

    def __init__(
        self,
        keys: Keys,
        warehouse: Warehouse,
        names: Names,
        namespaces: Namespaces,
        tables: Tables,
        rows: DeltaRows | None,
        *,
        mirrors: Sequence[str] = (),
        max_files: int = 100_000,
    ) -> None:
        self._keys = keys
        self._warehouse = warehouse
        self._names = names
        self._namespaces = namespaces
        self._tables = tables
        self._rows = rows
        self._mirrors = tuple(mirrors)
        self._max_files = max_files
        self._shapes: OrderedDict[tuple[str, int], _Shape] = OrderedDict()

    # --- creating ---

    async def create(self, draft: Draft, namespace: tuple[str, ...], request: CreateDelta) -> JsonObject:
        needed(self._rows)
        identifier = Identifier(namespace, request.name)
        properties = await self._namespaces.enter(draft, namespace)
        await self._tables.refuse_taken(draft, identifier)
        schema = await draft.compute(schemas.parse, request.schema_string)
        await draft.compute(schemas.check_new, schema, request.partition_columns)
        uuid = draft.new_uuid()
        location = without_trailing_slash(
            request.location or self._warehouse.new_location(identifier, uuid, properties)
        )
        self._warehouse.check_location(location)
        metadata = Metadata(
            uuid,
            request.schema_string,
            request.partition_columns,
            {**request.configuration, **MANAGED_CONFIGURATION},
            request.name,
            request.description,
            draft.now_ms,
        )
        protocol = managed_protocol(schema)
        await draft.compute(check_change, (), protocol, metadata)
        summary = {"uuid": uuid, "location": location, "version": 0, "ict-ms": draft.now_ms, SHAPE: 0}
        pointer = Pointer.to_delta(identifier, summary, Change.CREATE)
        await self._tables.claim(draft, pointer)
        parameters = {"partitionBy": list(request.partition_columns), "description": request.description}
        engines = request.mirrors if request.mirrors is not None else self._mirrors
        draft.delta[uuid] = DeltaStep((protocol, metadata), "CREATE TABLE", parameters, engines)
        return self._result(pointer)

    # --- changing ---

    async def commit_all(self, draft: Draft, commits: Sequence[DeltaCommit]) -> JsonObject:
        """Each of these tables gets one more version, all with the same timestamp."""
        found = [(commit, await self._target(draft, commit)) for commit in commits]
        _refuse_duplicates(pointer for _, pointer in found)
        ict_ms = max(draft.now_ms, *(pointer.summary["ict-ms"] + 1 for _, pointer in found))
        changed: list[Pointer] = []
        refused: list[CommitFailed] = []
        for commit, pointer in found:
            try:
                changed.append(await self._change(draft, commit, pointer, ict_ms))
            except CommitFailed as conflict:
                refused.append(conflict)
        if refused:
            raise all_of(refused)
        return {"results": [self._result(pointer) for pointer in changed]}

    async def _target(self, draft: Draft, commit: DeltaCommit) -> Pointer:
        if isinstance(commit.table, Identifier):
            pointer = await self._names.find_kind(draft, commit.table, Kind.DELTA)
            if pointer is None:
                raise missing(commit.table, Kind.DELTA)
            return pointer
        [cell] = await draft.read(self._keys.delta(commit.table))
        pointer = Pointer.of(cell)
        if pointer is None:
            raise NoSuchTable(f"there is no Delta table with id {commit.table}")
        return pointer

    async def _change(self, draft: Draft, commit: DeltaCommit, pointer: Pointer, ict_ms: int) -> Pointer:
        rows = needed(self._rows)
        self._check_size(commit, pointer)
        key = self._names.pointer_key(pointer)
        [cell] = await draft.read(key)
        version = version_of(pointer)
        if commit.expected_version is not None and commit.expected_version != version:
            raise version_conflict(pointer, commit.expected_version, "it has moved on")
        note = StagedDelta.of(cell, draft.transaction_id)
        if commit.statements is not None and commit.statements != len(note.statements):
            raise version_conflict(pointer, version, "another statement of this transaction has changed it meanwhile")
        if commit.read_version is not None and commit.read_version != version:
            # `base_version` is the newest that is committed, as the change sees it.
            if commit.read_version > note.base_version:
                raise version_conflict(pointer, commit.read_version, "that version does not exist yet")
            await check_may_go_on(rows, pointer, commit.actions, commit.read_version, note.base_version)
        staged = await self._staged(draft, pointer)
        protocol, metadata = await self._shape(rows, pointer, staged)
        if RECOVERING in pointer.summary:
            raise BadRequest(
                f"{shown(pointer.identifier)} is being recovered from its log, and not all of it is there; run "
                f"`lakepact delta import {pointer.location} {shown(pointer.identifier)} --recover` again to end it"
            )
        if not is_managed(protocol):
            raise BadRequest(f"{shown(pointer.identifier)} was imported read-only; take it over to change it")
        await draft.compute(check_change, commit.actions, protocol, metadata)
        if note.statements:
            # Changed in this transaction before: all its statements are one version.
            await self._check_removed_are_there(rows, pointer, staged, commit.actions)
        else:
            version += 1
        summary = {**pointer.summary, "version": version, "ict-ms": ict_ms}
        if any(isinstance(action, Metadata | Protocol) for action in commit.actions):
            summary[SHAPE] = version
        previous = pointer.metadata_location if version_of(pointer) != version else pointer.previous_metadata_location
        new = Pointer.to_delta(pointer.identifier, summary, Change.COMMIT, previous)
        draft.write(key, new.to_json())
        # Somebody who names a version, or counts statements, has looked.
        looked = commit.expected_version is not None or commit.statements is not None
        blind = not looked and supposed_reads(commit.actions).is_blind
        draft.delta[pointer.id] = DeltaStep(commit.actions, commit.operation, commit.parameters, blind=blind)
        return new

    async def _check_removed_are_there(
        self, rows: DeltaRows, pointer: Pointer, staged: DeltaStep | None, actions: Iterable[Action]
    ) -> None:
        removed = [action for action in actions if isinstance(action, Remove)]
        if not removed:
            return
        live = (await self._state(rows, pointer, staged)).files
        for one in removed:
            if one.key not in live:
                raise BadRequest(
                    f"{shown(pointer.identifier)} has no file {one.path} to remove, as this transaction sees it"
                )

    def _check_size(self, commit: DeltaCommit, pointer: Pointer) -> None:
        files = sum(isinstance(action, Add | Remove) for action in commit.actions)
        if files > self._max_files:
            raise BadRequest(
                f"{files} files for {shown(pointer.identifier)} in one commit; the limit is {self._max_files} "
                f"(max_delta_files)"
            )

    # --- reading ---

    async def find(self, cells: Cells, identifier: Identifier) -> Pointer:
        pointer = await self._names.find_kind(cells, identifier, Kind.DELTA)
        if pointer is None:
            raise missing(identifier, Kind.DELTA)
        return pointer

    async def load(
        self,
        pointer: Pointer,
        staged: DeltaStep | None,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        files: bool = True,
        statements: int = 0,
    ) -> DeltaTable:
        """The table as its pointer says, or as it was at a version or a time."""
        rows = needed(self._rows)
        if version is None and timestamp_ms is None:
            state = await self._state(rows, pointer, staged, files=files)
            return DeltaTable(pointer, state, pointer.summary["ict-ms"], statements)
        committed = version_of(pointer) - (1 if staged is not None else 0)
        if timestamp_ms is not None:
            found = await rows.version_at(pointer.id, timestamp_ms)
            # A transaction does not see what came after it began.
            version = None if found is None else min(found, committed)
        if version is None or version > committed:
            now = f"it is at version {committed}" + (", and what is staged has none yet" if staged is not None else "")
            at = f"no version at {timestamp_ms} ms" if timestamp_ms is not None else f"no version {version}"
            raise NoSuchTable(f"{shown(pointer.identifier)} has {at}; {now}")
        newest = await rows.versions(pointer.id, version + 1, 1)
        if not newest or newest[0].version != version:
            raise NoSuchTable(f"{shown(pointer.identifier)} no longer has version {version}")
        state = await self._committed(rows, pointer.id, version, files=files)
        return DeltaTable(pointer, state, newest[0].info.timestamp_ms)

    async def history(self, pointer: Pointer, before: int | None, limit: int) -> Sequence[VersionRow]:
        newest = version_of(pointer) + 1
        return await needed(self._rows).versions(pointer.id, newest if before is None else min(before, newest), limit)

    async def staged_in(
        self, transaction_id: TransactionId, pointer: Pointer, note: StagedDelta | None
    ) -> DeltaStep | None:
        """What an open transaction has staged for this table."""
        if note is None:
            return None
        return (await staged_steps(needed(self._rows), transaction_id, {pointer.id: note})).get(pointer.id)

    async def _staged(self, draft: Draft, pointer: Pointer) -> DeltaStep | None:
        [cell] = await draft.read(self._names.pointer_key(pointer))
        if cell.writer != draft.transaction_id or cell.value is None or STAGED not in cell.value:
            return None
        return await self.staged_in(draft.transaction_id, pointer, StagedDelta.from_json(cell.value[STAGED]))

    async def _shape(self, rows: DeltaRows, pointer: Pointer, staged: DeltaStep | None) -> _Shape:
        """Protocol and metadata. They seldom change, and what they are at a version never does: they are remembered."""
        changed_at: int | None = pointer.summary.get(SHAPE)
        if changed_at is None or staged is not None:
            state = await self._state(rows, pointer, staged, files=False)
            return state.protocol, state.metadata
        known = self._shapes.get((pointer.id, changed_at))
        if known is None:
            state = await self._committed(rows, pointer.id, version_of(pointer), files=False)
            known = self._shapes[pointer.id, changed_at] = state.protocol, state.metadata
            if len(self._shapes) > _MOST_SHAPES:
                self._shapes.popitem(last=False)
        return known

    async def _state(
        self, rows: DeltaRows, pointer: Pointer, staged: DeltaStep | None, *, files: bool = True
    ) -> TableState:
        version = version_of(pointer)
        if staged is None:
            return await self._committed(rows, pointer.id, version, files=files)
        base = None if version == 0 else await self._committed(rows, pointer.id, version - 1, files=files)
        replay = Replay(base)
        replay.apply(version, staged.actions)
        return replay.state()

    async def _committed(self, rows: DeltaRows, table_id: str, version: int, *, files: bool) -> TableState:
        contents = await rows.contents(table_id, version)
        live = {one.key: one for one in await rows.files(table_id, version)} if files else {}
        return _as_state(contents, live)

    def _result(self, pointer: Pointer) -> JsonObject:
        return {
            "identifier": identifier_json(pointer.identifier),
            "table-id": pointer.id,
            "version": version_of(pointer),
            "timestamp-ms": pointer.summary["ict-ms"],
            "metadata-location": pointer.metadata_location,
        }


def _as_state(contents: TableContents, files: Mapping[tuple[str, str], Add]) -> TableState:
    assert contents.protocol is not None and contents.metadata is not None, "version 0 has both"
    return TableState(
        contents.version, contents.protocol, contents.metadata, files, {}, contents.txns, contents.domains
    )


def _refuse_duplicates(pointers: Iterable[Pointer]) -> None:
    seen: set[str] = set()
    for pointer in pointers:
        if pointer.id in seen:
            raise BadRequest(f"table {shown(pointer.identifier)} is named twice; put all its actions into one change")
        seen.add(pointer.id)

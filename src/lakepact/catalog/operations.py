"""Everything a catalog can be asked, over some cells and some way to change them.

The same operations serve the catalog itself and an open transaction: what differs is which cells are read, and whether
a change is committed or staged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lakepact.access.rules import Role
from lakepact.catalog import governance
from lakepact.catalog.cells import Cells
from lakepact.catalog.delta_conflicts import log_conflicts
from lakepact.catalog.delta_steps import DeltaStep
from lakepact.catalog.delta_tables import CreateDelta, DeltaCommit, DeltaTable, DeltaTables
from lakepact.catalog.errors import AnswerLost, BadRequest, CommitFailed, Refusal, Unsupported
from lakepact.catalog.files import MetadataFile, MetadataFiles, check_digest
from lakepact.catalog.grants import Grants
from lakepact.catalog.keys import Keys
from lakepact.catalog.listing import Listing, Page, Visible
from lakepact.catalog.names import Names, Reads, TableAt, all_there, missing
from lakepact.catalog.namespaces import Namespaces, check_namespace
from lakepact.catalog.overlaps import Folders, overlapping
from lakepact.catalog.pointers import DIGEST, Kind, Pointer
from lakepact.catalog.tables import Tables
from lakepact.catalog.views import Views
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.watch import Watch
from lakepact.catalog.work import Call, Done, Draft, Plan
from lakepact.delta.ports import DeltaRows, VersionRow
from lakepact.errors import LakepactError, OutcomeUnknown
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.intent import adds_snapshots
from lakepact.iceberg.requests import Commit, CreateTable, CreateView, Identifier
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell
from lakepact.kernel.ports import BlobStore, CellStore, Clock, Rng, Tasks
from lakepact.limits import BATCH_RESPONSE_BYTES

_FILES_AT_ONCE: Final = 16
"""Metadata files that one batch load reads side by side."""


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    max_tables: int = 100
    max_updates: int = 1_000
    max_batch: int = 400
    max_page: int = 1_000
    deadline_s: float = 30.0
    held_wait_s: float = 5.0
    """How long a change waits for a table that another transaction holds. The same on every store."""

    cache_bytes: int = 256 << 20
    max_metadata_bytes: int = 16 << 20
    multi_table: bool = True
    max_delta_files: int = 100_000
    mirrors: tuple[str, ...] = ()
    drop_retention_s: float = 604_800.0
    """For how long what was dropped keeps its location, and can come back for sure."""

    generation: int = 0
    """Which restore the store comes from; 0 if it was never restored."""

    restored_ms: int = 0
    """When that restore ended: what is dated earlier was written by the restore."""

    longest_transaction_s: float = 86_400.0
    """For how long an open transaction may live without being renewed: what it looks at is not taken before that."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a catalog is made of, shared by the catalog and its open transactions."""

    warehouse: Warehouse
    keys: Keys
    grants: Grants
    store: CellStore
    blobs: BlobStore
    files: MetadataFiles
    rows: DeltaRows | None
    clock: Clock
    rng: Rng
    tasks: Tasks
    settings: CatalogSettings
    watch: Watch

    def new_id(self) -> TransactionId:
        return uuid7(self.clock.now_ms(), self.rng.bits(74))

    async def measured(self, work: Awaitable[Done]) -> Done:
        """A commit, watched: how long it took if it changes several tables, and whether something had moved."""
        began_s = self.clock.monotonic_s()
        try:
            done = await work
        except CommitFailed as conflict:
            self.watch.conflicted(conflict.message)
            raise
        tables = len(done.result.get("results", ()))
        if tables > 1 and not done.replayed:
            self.watch.together(tables, (self.clock.monotonic_s() - began_s) * 1000)
        return done


class Loads(Protocol):
    """A way to a metadata file."""

    async def __call__(self, location: str, *, look: bool) -> MetadataFile: ...


class Performs(Protocol):
    """A way to make changes."""

    async def read(self, keys: Sequence[Key]) -> Mapping[Key, Cell]:
        """What a plan reads."""
        ...

    async def perform(self, call: Call, plan: Plan) -> Done: ...


class Operations:
    def __init__(self, parts: Parts, cells: Cells, worker: Performs) -> None:
        self.parts = parts
        self._cells = cells
        self._worker = worker
        self._names = Names(parts.keys)
        self._listing = Listing(parts.keys, cells, parts.settings.max_page)
        self._namespaces = Namespaces(parts.keys, parts.warehouse, cells)
        plans = (parts.keys, parts.warehouse, self._names, self._namespaces, parts.files, Folders(parts))
        self._tables = Tables(*plans)
        self._views = Views(*plans)
        self._delta = DeltaTables(
            parts.keys,
            parts.warehouse,
            self._names,
            self._namespaces,
            self._tables,
            parts.rows,
            mirrors=parts.settings.mirrors,
            max_files=parts.settings.max_delta_files,
        )

    @property
    def warehouse(self) -> Warehouse:
        return self.parts.warehouse

    @property
    def names(self) -> Names:
        return self._names

    @property
    def cells(self) -> Cells:
        return self._cells

    def now_ms(self) -> int:
        return self.parts.clock.now_ms()

    async def role_on(self, pointer: Pointer) -> Role | None:
        """What whoever asks may do with this table or view, at the most. None: it does not exist for them."""
        return Role.MANAGE

    @property
    def open_transaction(self) -> TransactionId | None:
        """Of which open transaction this is the inside; None: this is what everybody sees."""
        return None

    async def may_write(self, identifier: Identifier, table_id: str) -> bool:
        """Whether whoever asks may write the files of a table that they may see, or are about to make."""
        return True

    async def overlapping(self, location: str, table_id: str) -> str | None:
        """The location of another table that one at this place would share files with; None: there is none."""
        return await overlapping(self.parts, location, table_id)

    @property
    def settings(self) -> CatalogSettings:
        return self.parts.settings

    def new_id(self) -> TransactionId:
        return self.parts.new_id()

    # --- namespaces ---

    async def list_namespaces(
        self,
        parent: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        return await self._listing.namespaces(parent, token, size, visible)

    async def load_namespace(self, namespace: Sequence[str]) -> Mapping[str, str]:
        check_namespace(namespace)
        stored: Mapping[str, str] = (await self._names.namespace(self._cells, namespace))["properties"]
        return self._namespaces.effective(namespace, stored)

    async def create_namespace(self, call: Call, namespace: Sequence[str], properties: Mapping[str, str]) -> Done:
        return await self._worker.perform(call, lambda draft: self._namespaces.create(draft, namespace, properties))

    async def update_namespace(
        self, call: Call, namespace: Sequence[str], removals: Sequence[str], updates: Mapping[str, str]
    ) -> Done:
        check_namespace(namespace)
        return await self._worker.perform(
            call, lambda draft: self._namespaces.update_properties(draft, namespace, removals, updates)
        )

    async def drop_namespace(self, call: Call, namespace: Sequence[str]) -> Done:
        check_namespace(namespace)
        return await self._worker.perform(call, lambda draft: self._namespaces.drop(draft, namespace, None))

    # --- tables ---

    async def list_tables(
        self,
        namespace: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        check_namespace(namespace)
        return await self._listing.names(namespace, Kind.TABLE, token, size, visible)

    async def thing(self, identifier: Identifier) -> Pointer:
        """The table or view of this name, whatever kind it is of."""
        pointer = await self._names.find(self._cells, identifier)
        if pointer is None:
            raise missing(identifier, Kind.TABLE)
        return pointer

    async def table(self, identifier: Identifier) -> Pointer:
        return await self._names.table(self._cells, identifier)

    async def tables(self, identifiers: Sequence[Identifier]) -> list[MetadataFile]:
        """All these tables as of one instant, in this order."""
        found = all_there(identifiers, await self.cut(self._cells, identifiers))
        return await self.table_files(found)

    async def shows(self, draft: Draft, commit: Commit) -> bool:
        """Whether a table shows that this very commit took effect before."""
        return await self._tables.shows(draft, commit)

    async def cut(self, cells: Reads, identifiers: Sequence[Identifier]) -> list[TableAt | None]:
        """Where these tables are in one cut of these cells, as far as they are there."""
        limit = self.parts.settings.max_batch
        if len(identifiers) > limit:
            raise BadRequest(f"{len(identifiers)} tables asked for at once; the limit is {limit} (max_batch)")
        return await self._names.all_tables(cells, identifiers)

    async def table_files(self, tables: Sequence[TableAt]) -> list[MetadataFile]:
        """The metadata files of these tables, in this order. Together they must fit into one response."""
        loaded: dict[TableAt, MetadataFile] = {}
        size = 0
        # Cached files come first: they cost nothing, and may exceed the limit before any other one is read.
        cached = [one for one in dict.fromkeys(tables) if self.parts.files.holds(one.location)]
        others = [one for one in dict.fromkeys(tables) if not self.parts.files.holds(one.location)]
        for some in [cached, *(others[n : n + _FILES_AT_ONCE] for n in range(0, len(others), _FILES_AT_ONCE))]:
            files = await self.parts.tasks.all([self._file_at(one) for one in some])
            loaded |= zip(some, files, strict=True)
            size += sum(len(file.text) for file in files)
            if len(loaded) > 1:
                BATCH_RESPONSE_BYTES.check(size, f"the metadata of {len(loaded)} of {len(tables)} tables")
        return [loaded[one] for one in tables]

    async def _file_at(self, table: TableAt) -> MetadataFile:
        return await self.parts.files.known_by(table.location, table.digest)

    async def stage_table(self, namespace: tuple[str, ...], request: CreateTable) -> JsonObject:
        """The metadata of a table that is not there yet. The client writes into it, then commits its creation."""
        draft = Draft(self._worker.read, self.parts.new_id(), "staged", self.parts.clock.now_ms(), self.parts.rng)
        metadata = await self._tables.staged(draft, namespace, request)
        if request.location is not None:
            await self._tables.check_staged(draft, Identifier(namespace, request.name), metadata)
            await draft.run_last_checks()
        # Some engines write with plain file calls and expect the folders to be there.
        await self.parts.files.make_folders(*(f"{metadata['location']}/{folder}" for folder in ("metadata", "data")))
        return metadata

    async def create_table(self, call: Call, namespace: tuple[str, ...], request: CreateTable) -> Done:
        return await self._worker.perform(call, lambda draft: self._tables.create(draft, namespace, request))

    async def commit_table(self, call: Call, commit: Commit) -> Done:
        self._check_size(commit)
        return await self._worker.perform(call, lambda draft: self._tables.commit(draft, commit))

    async def commit_tables(self, call: Call, commits: Sequence[Commit]) -> Done:
        """Many tables in one commit."""
        self._check_many(len(commits), commits)
        return await self._worker.perform(call, lambda draft: self._tables.commit_all(draft, commits))

    async def register_table(self, call: Call, identifier: Identifier, location: str, *, overwrite: bool) -> Done:
        return await self._worker.perform(
            call, lambda draft: self._tables.register(draft, identifier, location, overwrite=overwrite)
        )

    async def rename(self, call: Call, source: Identifier, target: Identifier, kind: Kind) -> Done:
        return await self._worker.perform(call, lambda draft: self._tables.rename(draft, source, target, kind))

    async def drop(self, call: Call, identifier: Identifier, kind: Kind, *, purge: bool = False) -> Done:
        return await self._worker.perform(call, lambda draft: self._tables.drop(draft, identifier, kind, purge=purge))

    async def unregister_table(self, call: Call, identifier: Identifier) -> Done:
        return await self._worker.perform(call, lambda draft: self._tables.unregister(draft, identifier))

    # --- views ---

    async def list_views(
        self,
        namespace: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        check_namespace(namespace)
        return await self._listing.names(namespace, Kind.VIEW, token, size, visible)

    async def view(self, identifier: Identifier) -> Pointer:
        return await self._names.view(self._cells, identifier)

    async def create_view(self, call: Call, namespace: tuple[str, ...], request: CreateView) -> Done:
        return await self._worker.perform(call, lambda draft: self._views.create(draft, namespace, request))

    async def commit_view(self, call: Call, commit: Commit) -> Done:
        self._check_size(commit)
        return await self._worker.perform(call, lambda draft: self._views.commit(draft, commit))

    async def register_view(self, call: Call, identifier: Identifier, location: str) -> Done:
        return await self._worker.perform(call, lambda draft: self._views.register(draft, identifier, location))

    # --- Delta tables ---

    async def list_delta(
        self,
        namespace: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        check_namespace(namespace)
        return await self._listing.names(namespace, Kind.DELTA, token, size, visible)

    async def create_delta(self, call: Call, namespace: tuple[str, ...], request: CreateDelta) -> Done:
        return await self._worker.perform(call, lambda draft: self._delta.create(draft, namespace, request))

    async def commit_delta(self, call: Call, commits: Sequence[DeltaCommit], iceberg: Sequence[Commit] = ()) -> Done:
        """Many tables of both formats in one commit."""
        self._check_many(len(commits) + len(iceberg), iceberg)

        async def plan(draft: Draft) -> JsonObject:
            changed = await self._tables.commit_all(draft, iceberg) if iceberg else {"results": []}
            came_before = draft.changes_nothing and any(adds_snapshots(one.updates) for one in iceberg)
            try:
                delta = await self._delta.commit_all(draft, commits)
            except Refusal as error:
                if came_before:
                    # The snapshots of this very commit are in place, so it has happened, and this is its echo.
                    raise OutcomeUnknown(draft.transaction_id, f"its snapshots are in place; but {error}") from error
                raise
            if came_before:
                raise OutcomeUnknown(draft.transaction_id, "its snapshots are in place already; load the tables")
            return {"results": [*changed["results"], *delta["results"]]}

        try:
            return await self._worker.perform(call, plan)
        except CommitFailed as refusal:
            await log_conflicts(self.parts.rows, call.transaction_id, refusal, self.parts.clock.now_ms())
            raise

    async def load_delta(
        self,
        identifier: Identifier,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        files: bool = True,
    ) -> DeltaTable:
        pointer = await self._delta.find(self._cells, identifier)
        return await self.load_delta_of(pointer, version=version, timestamp_ms=timestamp_ms, files=files)

    async def load_delta_of(
        self, pointer: Pointer, *, version: int | None = None, timestamp_ms: int | None = None, files: bool = True
    ) -> DeltaTable:
        """The table that was found, whatever its name stands for by now."""
        staged, statements = await self._delta_staged(pointer)
        return await self._delta.load(
            pointer, staged, version=version, timestamp_ms=timestamp_ms, files=files, statements=statements
        )

    async def delta_exists(self, identifier: Identifier) -> None:
        await self._delta.find(self._cells, identifier)

    async def delta_history(self, identifier: Identifier, before: int | None, limit: int) -> Sequence[VersionRow]:
        return await self.delta_history_of(await self._delta.find(self._cells, identifier), before, limit)

    async def delta_history_of(self, pointer: Pointer, before: int | None, limit: int) -> Sequence[VersionRow]:
        return await self._delta.history(pointer, before, limit)

    async def _delta_staged(self, _pointer: Pointer) -> tuple[DeltaStep | None, int]:
        """What is staged for this table, and by how many statements; outside of a transaction nothing is."""
        return None, 0

    # --- small documents of users ---

    async def load_state(self, name: str) -> Cell:
        [cell] = await self._cells.read(self.parts.keys.state(name))
        return cell

    # --- what people say about a table or view ---

    async def load_governance(self, identifier: Identifier) -> JsonObject:
        return await self.governance_of(await self.thing(identifier))

    async def governance_of(self, pointer: Pointer) -> JsonObject:
        [cell] = await self._cells.read(self.parts.keys.governance(pointer.id))
        return governance.shown_of(cell)

    async def put_governance(self, call: Call, identifier: Identifier, given: Mapping[str, Any]) -> Done:
        """Set these fields and leave the others."""

        async def plan(draft: Draft) -> JsonObject:
            pointer = await self._names.find(draft, identifier)
            if pointer is None:
                raise missing(identifier, Kind.TABLE)
            [cell, _] = await draft.read(self.parts.keys.governance(pointer.id), self._names.pointer_key(pointer))
            # A table that goes at the same moment takes nothing with it.
            draft.depend_on(self._names.pointer_key(pointer))
            return governance.change(draft, self.parts.keys, pointer, cell, given)

        return await self._worker.perform(call, plan)

    # --- files ---

    async def file_of(self, pointer: Pointer) -> MetadataFile:
        """The metadata of a table or view that was found."""
        return await self.parts.files.of(pointer)

    async def table_file(self, location: str) -> MetadataFile:
        return await self.parts.files.table(location)

    async def table_after(self, done: Done) -> MetadataFile:
        """The version that a change has made."""
        return await _made_by(done, self.parts.files.table)

    async def view_after(self, done: Done) -> MetadataFile:
        return await _made_by(done, self.parts.files.view)

    def _check_many(self, tables: int, commits: Iterable[Commit]) -> None:
        if tables > 1 and not self.parts.settings.multi_table:
            raise Unsupported(
                "multi-table transactions are switched off here (multi_table_transactions); send one table"
            )
        limit = self.parts.settings.max_tables
        if tables > limit:
            raise BadRequest(f"the transaction names {tables} tables; the limit is {limit} (max_tables)")
        for commit in commits:
            self._check_size(commit)

    def _check_size(self, commit: Commit) -> None:
        limit = self.parts.settings.max_updates
        if len(commit.updates) > limit:
            raise BadRequest(f"{len(commit.updates)} updates for one table; the limit is {limit} (max_updates)")


async def _made_by(done: Done, load: Loads) -> MetadataFile:
    try:
        # What was written a moment ago need not be looked for.
        file = await load(done.result["metadata-location"], look=done.replayed)
        check_digest(file, done.result.get(DIGEST))
        return file
    except LakepactError as error:
        # Whatever it is, it must not sound as if nothing had happened: clients delete their files on that.
        raise AnswerLost(done.transaction_id, error) from error

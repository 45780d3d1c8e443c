"""The catalog of one warehouse: what the REST and gRPC APIs mean, said in cells.

Every change is a transaction of cells (`work`), so every one of them happens once and wholly, and can be asked about
afterwards. What the changes are is in `namespaces`, `tables` and `views`; here they are only put together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from lakepact.catalog.errors import AnswerLost, BadRequest, NamespaceNotEmpty, NoSuchNamespace, Unsupported
from lakepact.catalog.files import MetadataFile, MetadataFiles
from lakepact.catalog.keys import Keys
from lakepact.catalog.listing import Listing, Page
from lakepact.catalog.names import Names
from lakepact.catalog.namespaces import Namespaces, NotMarked, check_namespace
from lakepact.catalog.pointers import Kind, Pointer
from lakepact.catalog.tables import Tables
from lakepact.catalog.views import Views
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.watch import Watch
from lakepact.catalog.work import Call, Done, Draft, Worker
from lakepact.errors import Contended, LakepactError
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Commit, CreateTable, CreateView, Identifier
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, State, Transaction, TransactionRecord
from lakepact.kernel.ports import BlobStore, CellStore, Clock, Rng, Tasks

_DROP_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class CatalogSettings:
    max_tables: int = 100
    max_updates: int = 1_000
    max_page: int = 1_000
    deadline_s: float = 30.0
    cache_bytes: int = 256 << 20
    multi_table: bool = True


MARKING: Final = "markNamespace"
"""The operation of a step that changes nothing anybody sees. It leaves no receipt."""


class Now:
    """Cells as they are, for answers that depend on nothing else."""

    def __init__(self, store: CellStore) -> None:
        self._store = store

    async def read(self, *keys: Key) -> list[Cell]:
        found = await self._store.read(keys)
        return [found[key] for key in keys]

    read_again = read


class Catalog:
    def __init__(
        self,
        warehouse: Warehouse,
        store: CellStore,
        blobs: BlobStore,
        clock: Clock,
        rng: Rng,
        tasks: Tasks,
        settings: CatalogSettings,
        *,
        watch: Watch | None = None,
    ) -> None:
        self.warehouse = warehouse
        self.store = store
        self.blobs = blobs
        self.settings = settings
        self._clock = clock
        self._rng = rng
        self._tasks = tasks
        watch = watch or Watch()
        self.keys = Keys(warehouse.name)
        self.files = MetadataFiles(
            warehouse,
            blobs,
            settings.cache_bytes,
            look_every_time=warehouse.root.startswith("file:"),
            on_cache=watch.cache,
        )
        self._names = Names(self.keys)
        self._now = Now(store)
        self._listing = Listing(self.keys, store, settings.max_page)
        self._namespaces = Namespaces(self.keys, warehouse, store)
        parts = (self.keys, warehouse, self._names, self._namespaces, self.files)
        self._tables = Tables(*parts)
        self._views = Views(*parts)
        self._worker = Worker(
            store,
            self.files,
            clock,
            rng,
            tasks,
            deadline_s=settings.deadline_s,
            on_committed=self._after_commit,
            watch=watch,
        )
        self._watch = watch

    # --- namespaces ---

    async def list_namespaces(self, parent: Sequence[str], token: str | None = None, size: int | None = None) -> Page:
        return await self._listing.namespaces(parent, token, size)

    async def load_namespace(self, namespace: Sequence[str]) -> Mapping[str, str]:
        check_namespace(namespace)
        properties: Mapping[str, str] = (await self._names.namespace(self._now, namespace))["properties"]
        return properties

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
        mark = str(call.transaction_id)
        for attempt in range(_DROP_ATTEMPTS):
            try:
                return await self._worker.perform(call, lambda draft: self._namespaces.drop(draft, namespace, mark))
            except NotMarked:
                # If it has gone meanwhile, it may be this very request that dropped it, sent twice: its key knows.
                with suppress(NoSuchNamespace):
                    await self._worker.perform(
                        Call(self.new_id(), MARKING), lambda draft: self._namespaces.mark(draft, namespace, mark)
                    )
            except NamespaceNotEmpty:
                if attempt:
                    await self._worker.perform(
                        Call(self.new_id(), MARKING), lambda draft: self._namespaces.unmark(draft, namespace, mark)
                    )
                raise
        raise Contended(f"others keep creating in namespace {'.'.join(namespace)}; nothing was dropped, try again")

    # --- tables ---

    async def list_tables(self, namespace: Sequence[str], token: str | None = None, size: int | None = None) -> Page:
        check_namespace(namespace)
        return await self._listing.names(namespace, Kind.TABLE, token, size)

    async def table(self, identifier: Identifier) -> Pointer:
        return await self._names.table(self._now, identifier)

    async def stage_table(self, namespace: tuple[str, ...], request: CreateTable) -> JsonObject:
        """The metadata of a table that is not there yet. The client writes into it, then commits its creation."""
        draft = Draft(self.store, self.new_id(), 0, self._clock.now_ms())
        metadata = await self._tables.staged(draft, namespace, request)
        # Some engines write with plain file calls and expect the folders to be there.
        await self.files.make_folders(*(f"{metadata['location']}/{folder}" for folder in ("metadata", "data")))
        return metadata

    async def create_table(self, call: Call, namespace: tuple[str, ...], request: CreateTable) -> Done:
        return await self._worker.perform(call, lambda draft: self._tables.create(draft, namespace, request))

    async def commit_table(self, call: Call, commit: Commit) -> Done:
        self._check_size(commit)
        return await self._worker.perform(call, lambda draft: self._tables.commit(draft, commit))

    async def commit_tables(self, call: Call, commits: Sequence[Commit]) -> Done:
        """Many tables in one commit."""
        if len(commits) > 1 and not self.settings.multi_table:
            raise Unsupported(
                "multi-table transactions are switched off here (multi_table_transactions); send one table"
            )
        if len(commits) > self.settings.max_tables:
            raise BadRequest(
                f"the transaction names {len(commits)} tables; the limit is {self.settings.max_tables} (max_tables)"
            )
        for commit in commits:
            self._check_size(commit)
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

    async def list_views(self, namespace: Sequence[str], token: str | None = None, size: int | None = None) -> Page:
        check_namespace(namespace)
        return await self._listing.names(namespace, Kind.VIEW, token, size)

    async def view(self, identifier: Identifier) -> Pointer:
        return await self._names.view(self._now, identifier)

    async def create_view(self, call: Call, namespace: tuple[str, ...], request: CreateView) -> Done:
        return await self._worker.perform(call, lambda draft: self._views.create(draft, namespace, request))

    async def commit_view(self, call: Call, commit: Commit) -> Done:
        self._check_size(commit)
        return await self._worker.perform(call, lambda draft: self._views.commit(draft, commit))

    async def register_view(self, call: Call, identifier: Identifier, location: str) -> Done:
        return await self._worker.perform(call, lambda draft: self._views.register(draft, identifier, location))

    # --- files and transactions ---

    async def table_file(self, location: str) -> MetadataFile:
        return await self.files.table(location)

    async def view_file(self, location: str) -> MetadataFile:
        return await self.files.view(location)

    async def table_after(self, done: Done) -> MetadataFile:
        """The version that a change has made."""
        return await _made_by(done, self.files.table)

    async def view_after(self, done: Done) -> MetadataFile:
        return await _made_by(done, self.files.view)

    async def transaction(self, transaction_id: TransactionId) -> TransactionRecord | None:
        return await self.store.lookup(transaction_id)

    def new_id(self) -> TransactionId:
        return uuid7(self._clock.now_ms(), self._rng.bits(74))

    def _check_size(self, commit: Commit) -> None:
        if len(commit.updates) > self.settings.max_updates:
            raise BadRequest(
                f"{len(commit.updates)} updates for one table; the limit is {self.settings.max_updates} (max_updates)"
            )

    async def _after_commit(self, transaction: Transaction, draft: Draft) -> None:
        await self._watch.committed(transaction)
        if draft.dropped_files and not await self._has_open_transactions():
            for location in draft.dropped_files:
                await self.files.delete(location)

    async def _has_open_transactions(self) -> bool:
        """An open transaction may still read an old version: then files stay, and collection takes them later."""
        page = await self.store.transactions([State.OPEN, State.PREPARED], limit=1)
        return bool(page.transactions)


async def _made_by(done: Done, load: Callable[[str], Awaitable[MetadataFile]]) -> MetadataFile:
    try:
        return await load(done.result["metadata-location"])
    except LakepactError as error:
        # Whatever it is, it must not sound as if nothing had happened: clients delete their files on that.
        raise AnswerLost(done.transaction_id, error) from error

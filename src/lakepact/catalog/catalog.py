"""The catalog of one warehouse: what the REST and gRPC APIs mean, said in cells.

Every change is a transaction of cells (`work`), so every one of them happens once and wholly, and can be asked about
afterwards. What the operations are is in `operations`; here they are put together for everybody to see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from lakepact.catalog.cells import MainCells
from lakepact.catalog.delta_tables import DeltaCommit
from lakepact.catalog.dropped import Dropped
from lakepact.catalog.errors import NamespaceNotEmpty, NoSuchNamespace
from lakepact.catalog.files import MetadataFiles
from lakepact.catalog.keys import Keys
from lakepact.catalog.namespaces import NotMarked, check_namespace
from lakepact.catalog.operations import CatalogSettings, Operations, Parts
from lakepact.catalog.pins import check_nobody_came, in_use, refuse_removal_of_pinned, removes_snapshots
from lakepact.catalog.pointers import Kind, Pointer
from lakepact.catalog.reachable import ALIVE
from lakepact.catalog.transactions import Transactions
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.watch import Watch
from lakepact.catalog.work import Call, Done, Draft, Plan, Worker
from lakepact.delta.ports import DeltaRows
from lakepact.errors import Contended
from lakepact.iceberg.requests import Commit, Identifier
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.model import Transaction, TransactionRecord
from lakepact.kernel.ports import BlobStore, CellStore, Clock, Rng, Tasks

_DROP_ATTEMPTS: Final = 10

MARKING: Final = "markNamespace"
"""The operation of a step that changes nothing anybody sees. It leaves no receipt."""

COLLECTING: Final = "collect"
"""The operation of a step of collection: what it writes are notes about what was dropped before."""


class Catalog(Operations):
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
        rows: DeltaRows | None = None,
        watch: Watch | None = None,
    ) -> None:
        """`rows`: where Delta tables are kept, if the store can."""
        watch = watch or Watch()
        files = MetadataFiles(
            warehouse,
            blobs,
            settings.cache_bytes,
            look_every_time=warehouse.root.startswith("file:"),
            on_cache=watch.cache,
        )
        parts = Parts(warehouse, Keys(warehouse.name), store, blobs, files, rows, clock, rng, tasks, settings, watch)
        worker = Worker(
            store,
            files,
            rows,
            clock,
            rng,
            tasks,
            warehouse=warehouse.name,
            deadline_s=settings.deadline_s,
            on_committed=self._after_commit,
            watch=watch,
        )
        super().__init__(parts, MainCells(store), worker)
        self.transactions = Transactions(parts, mark=self._mark, on_committed=self._after_commit)
        self.dropped = Dropped(
            parts.keys, warehouse, self._names, self._namespaces, files, self._cells, settings.max_page
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
                    await self._mark(namespace, mark)
            except NamespaceNotEmpty:
                if attempt:
                    await self._worker.perform(
                        Call(self.new_id(), MARKING), lambda draft: self._namespaces.unmark(draft, namespace, mark)
                    )
                raise
        raise Contended(f"others keep creating in namespace {'.'.join(namespace)}; nothing was dropped, try again")

    async def undrop(
        self, call: Call, identifier: Identifier | None, table_id: str | None = None, target: Identifier | None = None
    ) -> Done:
        """Bring back a table or view: the one with this id, or the one dropped last under this name."""
        return await self._worker.perform(call, lambda draft: self.dropped.undrop(draft, identifier, table_id, target))

    async def collect_step(self, plan: Plan) -> Done:
        """A step of collection: it changes nothing anybody sees, and leaves no receipt."""
        return await self._worker.perform(Call(self.new_id(), COLLECTING), plan)

    async def expire_snapshots(self, call: Call, identifier: Identifier) -> Done:
        """Let go of the snapshots and refs that the table's own properties let go of. No file is deleted."""
        pointer = await self.table(identifier)
        pinned: set[int] = set()
        async for _, used in in_use(self.parts, self._names.pointer_key(pointer)):
            pinned |= used
        return await self._worker.perform(call, lambda draft: self._tables.expire(draft, identifier, pinned))

    async def commit_table(self, call: Call, commit: Commit) -> Done:
        return await self._sparing_pinned([commit], lambda: super(Catalog, self).commit_table(call, commit))

    async def commit_tables(self, call: Call, commits: Sequence[Commit]) -> Done:
        return await self._sparing_pinned(
            commits, lambda: self.parts.measured(super(Catalog, self).commit_tables(call, commits))
        )

    async def commit_delta(self, call: Call, commits: Sequence[DeltaCommit], iceberg: Sequence[Commit] = ()) -> Done:
        return await self._sparing_pinned(
            iceberg, lambda: self.parts.measured(super(Catalog, self).commit_delta(call, commits, iceberg))
        )

    async def _sparing_pinned(self, commits: Sequence[Commit], work: Callable[[], Awaitable[Done]]) -> Done:
        """Snapshots that an open transaction looks at are not removed. Looked at before, and once more after."""
        removals: list[tuple[Pointer, Commit]] = []
        for commit in commits:
            if commit.identifier is not None and removes_snapshots(commit):
                pointer = await self._names.find_kind(self._cells, commit.identifier, Kind.TABLE)
                if pointer is not None:
                    removals.append((pointer, commit))
        for pointer, commit in removals:
            await refuse_removal_of_pinned(self.parts, pointer, self._names.pointer_key(pointer), [commit])
        done = await work()
        for pointer, commit in removals:
            key = self._names.pointer_key(pointer)
            await check_nobody_came(self.parts, done.transaction_id, pointer, key, [commit])
        return done

    async def _mark(self, namespace: Sequence[str], mark: str) -> None:
        await self._worker.perform(
            Call(self.new_id(), MARKING), lambda draft: self._namespaces.mark(draft, namespace, mark)
        )

    async def transaction(self, transaction_id: TransactionId) -> TransactionRecord | None:
        return await self.parts.store.lookup(transaction_id)

    async def _after_commit(self, transaction: Transaction, draft: Draft) -> None:
        await self.parts.watch.committed(transaction)
        if draft.dropped_files and not await self._has_open_transactions():
            for location in draft.dropped_files:
                await self.parts.files.delete(location)

    async def _has_open_transactions(self) -> bool:
        """An open transaction may still read an old version: then files stay, and collection takes them later."""
        page = await self.parts.store.transactions(ALIVE, limit=1)
        return bool(page.transactions)

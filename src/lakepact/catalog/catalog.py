"""The catalog of one warehouse: what the REST and gRPC APIs mean, said in cells.

Every change is a transaction of cells (`work`), so every one of them happens once and wholly, and can be asked about
afterwards. What the operations are is in `operations`; here they are put together for everybody to see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeAlias

from lakepact.access import Principal, Role, Scope
from lakepact.catalog.audit import AuditPage, AuditReader, Position, Wanted
from lakepact.catalog.cells import MainCells, a_look_each
from lakepact.catalog.delta_import import DeltaImport, ImportDelta
from lakepact.catalog.delta_steps import needed
from lakepact.catalog.delta_tables import DeltaCommit
from lakepact.catalog.dropped import Dropped, DroppedPage
from lakepact.catalog.errors import NamespaceNotEmpty, NoSuchNamespace
from lakepact.catalog.files import MetadataFiles
from lakepact.catalog.grants import Grant, Grants, pointer_key
from lakepact.catalog.keys import Keys
from lakepact.catalog.names import Reads, missing
from lakepact.catalog.namespaces import NotMarked, check_namespace
from lakepact.catalog.operations import CatalogSettings, Operations, Parts
from lakepact.catalog.overlaps import Folders
from lakepact.catalog.overlay import MARKING
from lakepact.catalog.pins import Removals, SparingPinned, check_nobody_came, in_use, removes_snapshots
from lakepact.catalog.pointers import Kind, Pointer, scope_of
from lakepact.catalog.reachable import ALIVE, Reachable, ReachablePage
from lakepact.catalog.transactions import Transactions
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.watch import Watch
from lakepact.catalog.work import Call, Done, Draft, Plan, Worker
from lakepact.delta.ports import DeltaRows
from lakepact.errors import Contended
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Commit, Identifier
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Transaction, TransactionRecord
from lakepact.kernel.ports import BlobStore, CellStore, Clock, Rng, Tasks

_DROP_ATTEMPTS: Final = 10
_SWEPT_AT_ONCE: Final = 500
_UNDROP_MS: Final = 30 * 24 * 3600 * 1000
"""For how long what was granted on a dropped table is kept, should it come back."""

SWEEPING: Final = "sweepGrants"

GrantScope: TypeAlias = "Scope | Identifier | tuple[str, ...]"
"""What a grant is on: the account or the warehouse, a table or view by its name, or a namespace."""

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
            most_bytes=settings.max_metadata_bytes,
            look_every_time=warehouse.root.startswith("file:"),
            on_cache=watch.cache,
        )
        keys = Keys(warehouse.name)
        self.grants = Grants(warehouse.name, keys, store, warehouse.account)
        parts = Parts(warehouse, keys, self.grants, store, blobs, files, rows, clock, rng, tasks, settings, watch)
        worker = Worker(
            store,
            files,
            rows,
            clock,
            rng,
            tasks,
            warehouse=warehouse.name,
            deadline_s=settings.deadline_s,
            held_wait_s=settings.held_wait_s,
            on_committed=self._after_commit,
            watch=watch,
        )
        super().__init__(parts, MainCells(store), worker)
        self.transactions = Transactions(parts, mark=self._mark, on_committed=self._after_commit)
        self.dropped = Dropped(
            parts.keys,
            warehouse,
            self._names,
            self._namespaces,
            files,
            Folders(parts),
            self._cells,
            settings.max_page,
        )

    # --- who may do what: outside of all transactions ---

    async def list_grants(self) -> list[Grant]:
        """Every grant that counts in this warehouse."""
        return await self.grants.all()

    async def described_grants(self, grants: Sequence[Grant]) -> list[JsonObject]:
        """With the names that tables and views have now. Those that are gone have left theirs out."""
        keys = {one.scope: pointer_key(self.parts.keys, one.scope) for one in grants if one.scope.is_thing}
        found: dict[Key, Cell] = {}
        for some in a_look_each(list(keys.values())):
            found |= await self.parts.store.read(some)
        described = []
        for one in grants:
            pointer = Pointer.of(found[keys[one.scope]]) if one.scope in keys else None
            described.append(_described(one, pointer))
        return described

    async def role_of(self, principal: Principal, scope: GrantScope) -> Role | None:
        """What this one may do there, at the most."""
        rights = await self.grants.rights(principal)
        match scope:
            case Scope():
                return rights.on_account if scope == Scope.account() else rights.everywhere
            case Identifier():
                pointer = await self._names.find(self._cells, scope)
                if pointer is None:
                    raise missing(scope, Kind.TABLE)
                return rights.on_thing(scope.namespace, scope_of(pointer))
            case _:
                await self._names.namespace(self._cells, scope)
                return rights.on_namespace(scope)

    async def put_grant(self, call: Call, scope: GrantScope, holder: str, role: Role) -> Done:
        by = call.source.get("principal")

        async def plan(draft: Draft) -> JsonObject:
            found = await self.scope(draft, scope)
            if found.kind == "namespace":
                # If it is dropped at the same moment, nothing may be granted on the next one of its name.
                draft.depend_on(self.parts.keys.namespace(found.levels))
            return await self.grants.put(draft, Grant(found, holder, role, by))

        return await self._worker.perform(call, plan)

    async def remove_grant(self, call: Call, scope: GrantScope, holder: str) -> Done:
        async def plan(draft: Draft) -> JsonObject:
            return await self.grants.remove(draft, await self.scope(draft, scope), holder)

        return await self._worker.perform(call, plan)

    async def give(self, call: Call, scopes: Sequence[Scope], holder: str) -> Done:
        """Let somebody manage what they have made."""
        return await self._worker.perform(call, lambda draft: self.grants.give(draft, scopes, holder))

    async def sweep_grants(self) -> bool:
        """Forget grants on tables and views that are gone for good: whether there are more of them."""
        things = list(dict.fromkeys(one.scope for one in await self.grants.all() if one.scope.is_thing))
        gone: list[Scope] = []
        oldest_ms = self.parts.clock.confirmed_ms() - _UNDROP_MS
        for part in a_look_each(things, cells=2):
            pointers = {one: pointer_key(self.parts.keys, one) for one in part}
            notes = {one: self.parts.keys.dropped(one.id) for one in part}
            found = await self.parts.store.read([*pointers.values(), *notes.values()])
            gone += [
                one
                for one in part
                if not found[pointers[one]].exists and (found[notes[one]].value or {}).get("dropped-ms", 0) < oldest_ms
            ]
        if gone:
            call = Call(self.new_id(), SWEEPING, warehouse=self.warehouse.name)
            some = gone[:_SWEPT_AT_ONCE]
            await self._worker.perform(call, lambda draft: self.grants.clear(draft, some))
        return len(gone) > _SWEPT_AT_ONCE

    async def scope(self, cells: Reads, scope: GrantScope) -> Scope:
        """What is meant by these names, which must exist."""
        match scope:
            case Scope():
                return scope
            case Identifier():
                pointer = await self._names.find(cells, scope)
                if pointer is None:
                    raise missing(scope, Kind.TABLE)
                return scope_of(pointer)
            case _:
                check_namespace(scope)
                await self._names.namespace(cells, scope)
                return Scope.namespace(scope)

    # --- Delta tables that lie in the warehouse already ---

    async def import_delta(self, call: Call, request: ImportDelta) -> Done:
        return await DeltaImport(self.parts).run(call, request)

    async def verify_delta(self, identifier: Identifier) -> dict[str, Any]:
        needed(self.parts.rows)
        return await self.verify_delta_of(await self._delta.find(self._cells, identifier))

    async def verify_delta_of(self, pointer: Pointer) -> dict[str, Any]:
        return await DeltaImport(self.parts).verify(pointer)

    async def check_mirrors(self, table_ids: Sequence[str]) -> None:
        """Whether whoever asks may have the mirrors of these Delta tables brought up to date."""

    async def create_namespace(self, call: Call, namespace: Sequence[str], properties: Mapping[str, str]) -> Done:
        async def plan(draft: Draft) -> JsonObject:
            check_namespace(namespace)
            missing = await self._namespaces.missing_parents(draft, namespace)
            result = await self._namespaces.create(draft, namespace, properties)
            # One that was dropped inside a transaction may have left grants: they were not meant for the new one.
            for levels in (*missing, tuple(namespace)):
                await self.grants.forget(draft, Scope.namespace(levels))
            return result

        return await self._worker.perform(call, plan)

    async def drop_namespace(self, call: Call, namespace: Sequence[str]) -> Done:
        check_namespace(namespace)
        mark = str(call.transaction_id)
        for attempt in range(_DROP_ATTEMPTS):
            try:
                return await self._worker.perform(call, lambda draft: self._drop_namespace(draft, namespace, mark))
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

    async def dropped_page(self, token: str | None, size: int | None = None) -> DroppedPage:
        """What was dropped and may come back, a page of it."""
        return await self.dropped.page(token, size)

    async def reachable_page(self, token: str | None) -> ReachablePage:
        """What files may be reachable from, a page of it."""
        return await Reachable(self.parts).page(token)

    async def reachable_files(self, table_id: str, keep_ms: int) -> list[str]:
        return await Reachable(self.parts).delta_files(table_id, keep_ms)

    async def audit_page(self, before: Position | None, wanted: Wanted, limit: int) -> AuditPage:
        """The newest lines of the audit trail that are as wanted, a page of them."""
        reader = AuditReader(self.parts.blobs, self.parts.tasks, self.now_ms())
        return await reader.page(before, wanted, max(1, min(limit, self.settings.max_page)))

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

    async def _drop_namespace(self, draft: Draft, namespace: Sequence[str], mark: str) -> JsonObject:
        result = await self._namespaces.drop(draft, namespace, mark)
        await self.grants.forget(draft, Scope.namespace(namespace))
        return result

    async def commit_table(self, call: Call, commit: Commit) -> Done:
        return await self._sparing_pinned(call, [commit], lambda call: super(Catalog, self).commit_table(call, commit))

    async def commit_tables(self, call: Call, commits: Sequence[Commit]) -> Done:
        return await self._sparing_pinned(
            call, commits, lambda call: self.parts.measured(super(Catalog, self).commit_tables(call, commits))
        )

    async def commit_delta(self, call: Call, commits: Sequence[DeltaCommit], iceberg: Sequence[Commit] = ()) -> Done:
        return await self._sparing_pinned(
            call, iceberg, lambda call: self.parts.measured(super(Catalog, self).commit_delta(call, commits, iceberg))
        )

    async def _sparing_pinned(
        self, call: Call, commits: Sequence[Commit], work: Callable[[Call], Awaitable[Done]]
    ) -> Done:
        """Snapshots that an open transaction looks at are not removed. Looked at in the plan, and once more after."""
        removing = [commit for commit in commits if removes_snapshots(commit)]
        if not removing:
            return await work(call)
        # By name, for an answer that is given again: then nothing is planned.
        removals: Removals = {}
        for commit in removing:
            assert commit.identifier is not None, "whoever parses a commit fills it in from the path"
            pointer = await self._names.find_kind(self._cells, commit.identifier, Kind.TABLE)
            if pointer is not None:
                removals[self._names.pointer_key(pointer)] = pointer, [commit]
        sparing = SparingPinned(self.parts, call.guard)
        done = await work(replace(call, guard=sparing))
        for key, (pointer, asked) in (removals | sparing.removals).items():
            await check_nobody_came(self.parts, done.transaction_id, pointer, key, asked)
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


def _described(grant: Grant, pointer: Pointer | None) -> JsonObject:
    scope = grant.scope
    about: JsonObject = {"on": scope.kind}
    if scope.kind == "namespace":
        about |= {"namespace": scope.levels}
    elif scope.is_thing:
        about = {"on": "table", "id": scope.id}
        if pointer is not None:
            about |= {"namespace": pointer.identifier.namespace, "name": pointer.identifier.name, "kind": pointer.kind}
    return {**about, "holder": grant.holder, "role": grant.role.word, "by": grant.by, "at-ms": grant.at_ms}

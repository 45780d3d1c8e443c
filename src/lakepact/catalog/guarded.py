"""A catalog as one principal may see and change it: the same operations, each behind what it needs.

Whoever serves requests gets a catalog from `sight.seen_by`, and nothing else. An operation that has no rule here does
not work at all: this class has nothing of what the plain one is made of. A test holds that each has one.

    what may not be seen does not exist (404, in the words for what is not there)
    what may be seen and not done is forbidden (403), and nothing happens
    an answer that is given again is given only to who may still ask for it
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lakepact.access import Rights, Role, Scope
from lakepact.access.rules import ALL, RULES
from lakepact.catalog.delta_tables import CreateDelta, DeltaCommit, DeltaTable
from lakepact.catalog.errors import Forbidden, NoSuchNamespace
from lakepact.catalog.files import MetadataFile
from lakepact.catalog.guard import Guard
from lakepact.catalog.inside import Inside, sees_table
from lakepact.catalog.listing import Page, Visible
from lakepact.catalog.names import TableAt, all_there, missing
from lakepact.catalog.namespaces import check_namespace
from lakepact.catalog.needs import (
    Asking,
    InNamespace,
    MissingParents,
    Need,
    OnId,
    OnThing,
    OnWarehouse,
)
from lakepact.catalog.operations import CatalogSettings, Operations
from lakepact.catalog.overlay import EndedTransaction, Overlay
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer, scope_of
from lakepact.catalog.trail import Outcome
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.work import Call, Done
from lakepact.delta.ports import VersionRow
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Commit, CreateTable, CreateView, Identifier
from lakepact.iceberg.requirements import is_creation
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.model import Cell


class GuardedOperations(Operations):
    """Every operation, behind its rule. Deliberately not initialised as what it stands for: see above."""

    def __init__(self, inner: Operations, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard
        self._inside = Inside(inner, guard) if isinstance(inner, Overlay) else None
        self._judged: tuple[Rights, tuple[str, ...]] | None = None
        """By which rights the last table was seen, and in which namespace: one of these serves one request."""

    @property
    def warehouse(self) -> Warehouse:
        return self._inner.warehouse

    def new_id(self) -> TransactionId:
        return self._inner.new_id()

    def now_ms(self) -> int:
        return self._inner.now_ms()

    @property
    def settings(self) -> CatalogSettings:
        return self._inner.settings

    @property
    def open_transaction(self) -> TransactionId | None:
        return self._inner.open_transaction

    async def may_write(self, identifier: Identifier, table_id: str) -> bool:
        rights, namespace = self._judged or ((await self._guard.now(self._inner)).rights, identifier.namespace)
        role = rights.on_thing(namespace, Scope.thing(FAMILIES[Kind.TABLE], table_id))
        return role is not None and role >= Role.WRITE

    async def overlapping(self, location: str, table_id: str) -> str | None:
        """Whether there is one, but not which: it may be one that whoever asks may not know of."""
        return None if await self._inner.overlapping(location, table_id) is None else ""

    async def enter(self) -> None:
        """Before everything else: whether whoever asks may be here at all."""

    async def role_on(self, pointer: Pointer) -> Role | None:
        return await (await self._guard.now(self._inner)).role_on(pointer)

    # --- seeing ---

    async def _seen(self, identifier: Identifier, kind: Kind | None, operation: str) -> Pointer:
        """The table or view of this name, if it may be seen. Costs no look at the store beyond its own."""
        namespace = identifier.namespace
        if self._inside is not None:
            await self.enter()
            rights = await self._inside.rights()
            pointer, namespace = await self._inside.find(identifier, rights)
        elif self._guard.principal.admin:
            pointer, rights = await self._inner.names.find(self._inner.cells, identifier), ALL
        else:
            look = self._guard.look(self._inner)
            pointer = await self._inner.names.find(look, identifier)
            rights = look.rights_at_hand() or await look.rights()
        if (
            pointer is None
            or (kind is not None and pointer.kind is not kind)
            or (rights.on_namespace(namespace) is None and scope_of(pointer).text not in rights.things)
        ):
            raise missing(identifier, kind or Kind.TABLE)
        self._judged = rights, namespace
        self._guard.note_read(self._inner, operation, [identifier])
        return pointer

    async def _asking(self) -> Asking:
        await self.enter()
        return await self._guard.now(self._inner)

    async def _sees(self, asking: Asking, namespace: Sequence[str]) -> None:
        if not await asking.sees_namespace(tuple(namespace)):
            raise NoSuchNamespace.named(namespace)

    async def _change(
        self,
        call: Call,
        needs: Sequence[Need],
        perform: Callable[[Call], Awaitable[Done]],
        *,
        commits: Sequence[Commit] = (),
        delta: Sequence[DeltaCommit] = (),
        detail: JsonObject | None = None,
    ) -> Done:
        await self._entered(call, needs)
        return await self._guard.change(self._inner, call, needs, perform, commits=commits, delta=delta, detail=detail)

    async def _entered(self, call: Call, needs: Sequence[Need]) -> None:
        try:
            await self.enter()
        except Forbidden as error:
            self._guard.note(call, needs, Outcome.DENIED, str(error), within=self._inner.open_transaction)
            raise

    # --- namespaces ---

    async def list_namespaces(
        self,
        parent: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        asking = await self._asking()
        levels, rights = tuple(parent), asking.rights
        if rights.on_namespace(levels) is not None:
            return await self._inner.list_namespaces(parent, token, size, visible=visible)
        if parent:
            await self._sees(asking, parent)
        on_the_way = {one[: len(levels) + 1] for one in (*rights.namespaces, *await asking.namespaces_of_things())}
        return await self._inner.list_namespaces(
            parent, token, size, visible=lambda value: tuple(value["namespace"]) in on_the_way
        )

    async def load_namespace(self, namespace: Sequence[str]) -> Mapping[str, str]:
        check_namespace(namespace)
        await self._sees(await self._asking(), namespace)
        return await self._inner.load_namespace(namespace)

    async def create_namespace(self, call: Call, namespace: Sequence[str], properties: Mapping[str, str]) -> Done:
        check_namespace(namespace)
        needs: list[Need] = [InNamespace(tuple(namespace[:-1]), RULES["createNamespace"].needed)]
        if len(namespace) > 1:
            needs.append(MissingParents(tuple(namespace), RULES["createNamespace"].needed))
        if "location" in properties:
            needs.append(OnWarehouse(Role.MANAGE))
        detail = {"namespace": ".".join(namespace)}
        return await self._change(
            call, needs, lambda call: self._inner.create_namespace(call, namespace, properties), detail=detail
        )

    async def update_namespace(
        self, call: Call, namespace: Sequence[str], removals: Sequence[str], updates: Mapping[str, str]
    ) -> Done:
        check_namespace(namespace)
        needs: list[Need] = [InNamespace(tuple(namespace), RULES["updateProperties"].needed)]
        if "location" in (*updates, *removals):
            needs.append(OnWarehouse(Role.MANAGE))
        return await self._change(
            call, needs, lambda call: self._inner.update_namespace(call, namespace, removals, updates)
        )

    async def drop_namespace(self, call: Call, namespace: Sequence[str]) -> Done:
        check_namespace(namespace)
        needs = [InNamespace(tuple(namespace), RULES["dropNamespace"].needed)]
        return await self._change(call, needs, lambda call: self._inner.drop_namespace(call, namespace))

    # --- lists ---

    async def _list(
        self, kind: Kind, namespace: Sequence[str], token: str | None, size: int | None, visible: Visible | None
    ) -> Page:
        check_namespace(namespace)
        asking = await self._asking()
        inner = {
            Kind.TABLE: self._inner.list_tables,
            Kind.VIEW: self._inner.list_views,
            Kind.DELTA: self._inner.list_delta,
        }[kind]
        if self._inside is not None and asking.rights.everywhere is None:
            # Before all else: the transaction would depend on the namespace from then on.
            await self._sees(asking, namespace)
            try:
                seen = await self._inside.listed(namespace, asking)
            except EndedTransaction:
                return Page(())
            return await inner(namespace, token, size, visible=lambda value: value["id"] in seen)
        if asking.rights.on_namespace(namespace) is not None:
            return await inner(namespace, token, size, visible=visible)
        things, family = asking.rights.things, FAMILIES[kind]
        if not things:
            await self._sees(asking, namespace)
        page = await inner(
            namespace, token, size, visible=lambda value: Scope.thing(family, value["id"]).text in things
        )
        if not page.names:
            # Nothing to see here. Whether there is anything here at all is not for everybody to know.
            await self._sees(asking, namespace)
        return page

    async def list_tables(
        self,
        namespace: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        return await self._list(Kind.TABLE, namespace, token, size, visible)

    async def list_views(
        self,
        namespace: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        return await self._list(Kind.VIEW, namespace, token, size, visible)

    async def list_delta(
        self,
        namespace: Sequence[str],
        token: str | None = None,
        size: int | None = None,
        *,
        visible: Visible | None = None,
    ) -> Page:
        return await self._list(Kind.DELTA, namespace, token, size, visible)

    # --- tables ---

    async def thing(self, identifier: Identifier) -> Pointer:
        return await self._seen(identifier, None, "showTable")

    async def table(self, identifier: Identifier) -> Pointer:
        return await self._seen(identifier, Kind.TABLE, "loadTable")

    async def tables(self, identifiers: Sequence[Identifier]) -> list[MetadataFile]:
        await self.enter()
        seen = all_there(identifiers, await self._cut(identifiers))
        self._guard.note_read(self._inner, "batchLoadTables", identifiers)
        return await self._inner.table_files(seen)

    async def _cut(self, identifiers: Sequence[Identifier]) -> list[TableAt | None]:
        """Where those of these tables are that may be seen."""
        if self._inside is not None:
            return await self._inside.cut(identifiers, await self._inside.rights())
        look = self._guard.look(self._inner)
        found = await self._inner.cut(look, identifiers)
        rights = await look.rights()
        return [
            one if one is not None and sees_table(rights, identifier.namespace, one.id) else None
            for identifier, one in zip(identifiers, found, strict=True)
        ]

    async def stage_table(self, namespace: tuple[str, ...], request: CreateTable) -> JsonObject:
        await self.enter()
        await self._guard.needs(self._inner, _creating(namespace, request.location))
        return await self._inner.stage_table(namespace, request)

    async def create_table(self, call: Call, namespace: tuple[str, ...], request: CreateTable) -> Done:
        needs = _creating(namespace, request.location)
        detail = {"name": request.name}
        return await self._change(
            call, needs, lambda call: self._inner.create_table(call, namespace, request), detail=detail
        )

    async def commit_table(self, call: Call, commit: Commit) -> Done:
        needs = [_of_commit(commit)]
        return await self._change(
            call, needs, lambda call: self._inner.commit_table(call, commit), commits=[commit], detail=_new([commit])
        )

    async def commit_tables(self, call: Call, commits: Sequence[Commit]) -> Done:
        needs = [_of_commit(commit) for commit in commits]
        return await self._change(
            call, needs, lambda call: self._inner.commit_tables(call, commits), commits=commits, detail=_new(commits)
        )

    async def register_table(self, call: Call, identifier: Identifier, location: str, *, overwrite: bool) -> Done:
        needs = registering(identifier)
        detail = {"name": identifier.name, "metadata-location": location}
        return await self._change(
            call,
            needs,
            lambda call: self._inner.register_table(call, identifier, location, overwrite=overwrite),
            detail=detail,
        )

    async def rename(self, call: Call, source: Identifier, target: Identifier, kind: Kind) -> Done:
        needs: list[Need] = [OnThing(source, kind, Role.MANAGE), InNamespace(target.namespace, Role.CREATE)]
        detail = {"to": ".".join((*target.namespace, target.name))}
        return await self._change(
            call, needs, lambda call: self._inner.rename(call, source, target, kind), detail=detail
        )

    async def drop(self, call: Call, identifier: Identifier, kind: Kind, *, purge: bool = False) -> Done:
        needs = [OnThing(identifier, kind, Role.MANAGE)]
        return await self._change(
            call, needs, lambda call: self._inner.drop(call, identifier, kind, purge=purge), detail={"purge": purge}
        )

    async def unregister_table(self, call: Call, identifier: Identifier) -> Done:
        needs = [OnThing(identifier, Kind.TABLE, RULES["unregisterTable"].needed)]
        return await self._change(call, needs, lambda call: self._inner.unregister_table(call, identifier))

    # --- views ---

    async def view(self, identifier: Identifier) -> Pointer:
        return await self._seen(identifier, Kind.VIEW, "loadView")

    async def create_view(self, call: Call, namespace: tuple[str, ...], request: CreateView) -> Done:
        needs = _creating(namespace, request.location)
        detail = {"name": request.name}
        return await self._change(
            call, needs, lambda call: self._inner.create_view(call, namespace, request), detail=detail
        )

    async def commit_view(self, call: Call, commit: Commit) -> Done:
        needs = [OnThing(_identifier(commit), Kind.VIEW, RULES["replaceView"].needed)]
        return await self._change(call, needs, lambda call: self._inner.commit_view(call, commit), commits=[commit])

    async def register_view(self, call: Call, identifier: Identifier, location: str) -> Done:
        needs = registering(identifier)
        detail = {"name": identifier.name, "metadata-location": location}
        return await self._change(
            call, needs, lambda call: self._inner.register_view(call, identifier, location), detail=detail
        )

    # --- Delta tables ---

    async def create_delta(self, call: Call, namespace: tuple[str, ...], request: CreateDelta) -> Done:
        needs = _creating(namespace, request.location)
        detail = {"name": request.name}
        return await self._change(
            call, needs, lambda call: self._inner.create_delta(call, namespace, request), detail=detail
        )

    async def commit_delta(self, call: Call, commits: Sequence[DeltaCommit], iceberg: Sequence[Commit] = ()) -> Done:
        role = RULES["commitDeltaTable"].needed
        of_delta: list[Need] = [
            OnThing(one.table, Kind.DELTA, role)
            if isinstance(one.table, Identifier)
            else OnId(Kind.DELTA, one.table, role)
            for one in commits
        ]
        return await self._change(
            call,
            [*of_delta, *(_of_commit(commit) for commit in iceberg)],
            lambda call: self._inner.commit_delta(call, commits, iceberg),
            commits=iceberg,
            delta=commits,
            detail=_new(iceberg),
        )

    async def load_delta(
        self,
        identifier: Identifier,
        *,
        version: int | None = None,
        timestamp_ms: int | None = None,
        files: bool = True,
    ) -> DeltaTable:
        # The very one that was seen, here and below: its name may have come to stand for another one meanwhile.
        pointer = await self._seen(identifier, Kind.DELTA, "loadDeltaTable")
        return await self._inner.load_delta_of(pointer, version=version, timestamp_ms=timestamp_ms, files=files)

    async def delta_exists(self, identifier: Identifier) -> None:
        await self._seen(identifier, Kind.DELTA, "deltaTableExists")

    async def delta_history(self, identifier: Identifier, before: int | None, limit: int) -> Sequence[VersionRow]:
        pointer = await self._seen(identifier, Kind.DELTA, "loadDeltaHistory")
        return await self._inner.delta_history_of(pointer, before, limit)

    # --- small documents of users ---

    async def load_state(self, name: str) -> Cell:
        rights = (await self._asking()).rights
        if rights.everywhere is not None:
            return await self._inner.load_state(name)
        cells = self._inner.cells if self._inside is None else self._inside.quietly
        [cell] = await cells.read(self._inner.parts.keys.state(name))
        if self._inside is not None and not self._is_others(cell):
            # Also if there is none: the transaction depends on that.
            cell = await self._inner.load_state(name)
        return replace(cell, value=None, revision=0) if self._is_others(cell) else cell

    def _is_others(self, document: Cell) -> bool:
        return document.value is not None and document.value.get("principal") != self._guard.principal.name

    # --- what people say about a table or view ---

    async def load_governance(self, identifier: Identifier) -> JsonObject:
        return await self._inner.governance_of(await self._seen(identifier, None, "loadGovernance"))

    async def put_governance(self, call: Call, identifier: Identifier, given: Mapping[str, Any]) -> Done:
        needs = [OnThing(identifier, Kind.TABLE, RULES["putGovernance"].needed)]
        return await self._change(
            call, needs, lambda call: self._inner.put_governance(call, identifier, given), detail=dict(given)
        )

    # --- files, of what was seen or changed just now ---

    async def file_of(self, pointer: Pointer) -> MetadataFile:
        return await self._inner.file_of(pointer)

    async def table_file(self, location: str) -> MetadataFile:
        return await self._inner.table_file(location)

    async def table_after(self, done: Done) -> MetadataFile:
        return await self._inner.table_after(done)

    async def view_after(self, done: Done) -> MetadataFile:
        return await self._inner.view_after(done)


def _creating(namespace: tuple[str, ...], location: str | None) -> list[Need]:
    """Something new, at the catalog's choice or at this place."""
    needs: list[Need] = [InNamespace(namespace, RULES["createTable"].needed)]
    return needs if location is None else [*needs, OnWarehouse(Role.MANAGE)]


def _of_commit(commit: Commit) -> Need:
    identifier = _identifier(commit)
    if is_creation(commit.requirements):
        return InNamespace(identifier.namespace, Role.CREATE)
    return OnThing(identifier, Kind.TABLE, Role.WRITE)


def _new(commits: Sequence[Commit]) -> JsonObject | None:
    """The names that are not among the needs, for the audit trail."""
    new = [_identifier(one) for one in commits if is_creation(one.requirements)]
    return {"new": ",".join(".".join((*one.namespace, one.name)) for one in new)} if new else None


def _identifier(commit: Commit) -> Identifier:
    assert commit.identifier is not None, "whoever parses a commit fills it in from the path"
    return commit.identifier


def registering(identifier: Identifier) -> list[Need]:
    """The file that is registered may be anybody's."""
    return [InNamespace(identifier.namespace, Role.CREATE), OnWarehouse(RULES["registerTable"].needed)]

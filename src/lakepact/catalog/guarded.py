"""A catalog as one principal may see and change it: the same operations, each behind what it needs.

Whoever serves requests gets a catalog from `sight.seen_by`, and nothing else. An operation that has no rule here does
not work at all: this class has nothing of what the plain one is made of. A test holds that each has one.

    what may not be seen does not exist (404, in the words for what is not there)
    what may be seen and not done is forbidden (403), and nothing happens
    an answer that is given again is given only to who may still ask for it
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from lakepact.access import Principal, Rights, Role, Scope
from lakepact.access.rules import RULES, holders_of, user
from lakepact.catalog.catalog import Catalog, GrantScope
from lakepact.catalog.delta_import import ImportDelta
from lakepact.catalog.delta_tables import CreateDelta, DeltaCommit, DeltaTable
from lakepact.catalog.dropped import DroppedPage, DroppedTable, not_dropped
from lakepact.catalog.errors import AnswerLost, Forbidden, NoSuchNamespace, NoSuchTable, Refusal
from lakepact.catalog.files import MetadataFile
from lakepact.catalog.grants import Grant
from lakepact.catalog.keys import family_of
from lakepact.catalog.listing import Page, Visible
from lakepact.catalog.names import Reads, missing
from lakepact.catalog.namespaces import check_namespace
from lakepact.catalog.needs import (
    Asking,
    InNamespace,
    Look,
    Need,
    Needs,
    OnId,
    OnThing,
    OnWarehouse,
    check_all,
    names_in,
)
from lakepact.catalog.operations import CatalogSettings, Operations
from lakepact.catalog.overlay import Overlay
from lakepact.catalog.places import Places
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer, scope_of, shown
from lakepact.catalog.reachable import ReachablePage
from lakepact.catalog.trail import Entry, Outcome, Trail
from lakepact.catalog.transactions import Transactions
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.work import Call, Done, Draft, Plan
from lakepact.delta.ports import VersionRow
from lakepact.errors import Contended, OutcomeUnknown, StoreUnavailable
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Commit, CreateTable, CreateView, Identifier
from lakepact.iceberg.requirements import is_creation
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import segments_of
from lakepact.kernel.model import Cell, State, TransactionRecord, Write

T = TypeVar("T")

_POINTERS: Final = frozenset(FAMILIES.values())


class Guard:
    """One principal at the door of one warehouse."""

    def __init__(self, catalog: Catalog, principal: Principal, trail: Trail) -> None:
        self.catalog = catalog
        self.principal = principal
        self.trail = trail

    def look(self, scope: Operations, cells: Reads | None = None) -> Look:
        together = not isinstance(scope, Overlay)
        return Look(scope.cells if cells is None else cells, self.catalog.grants, self.principal, together=together)

    def asking(self, scope: Operations, rights: Rights, left: Mapping[str, tuple[str, ...]] | None = None) -> Asking:
        parts = self.catalog.parts
        return Asking(self.principal, rights, parts.keys, scope.names, parts.store, parts.warehouse.name, left or {})

    async def now(self, scope: Operations) -> Asking:
        """With the rights as they are now."""
        return self.asking(scope, await self.catalog.grants.rights(self.principal))

    async def needs(self, scope: Operations, needs: Needs) -> None:
        """Check these by themselves, for what is not a plan."""
        look = self.look(scope)
        likely = [key for one in names_in(needs) if (key := scope.names.likely_key(one)) is not None]
        if likely:
            await look.read(*likely)
        await check_all(needs, look, self.asking(scope, await look.rights()))

    # --- changes ---

    async def change(
        self,
        scope: Operations,
        call: Call,
        needs: Needs,
        perform: Callable[[Call], Awaitable[Done]],
        *,
        commits: Sequence[Commit] = (),
        delta: Sequence[DeltaCommit] = (),
        detail: JsonObject | None = None,
    ) -> Done:
        """Do this if all needs are met, whether it happens now or has happened before."""
        check = PlanCheck(self, scope, needs, commits, delta)

        async def guarded() -> Done:
            try:
                done = await perform(replace(call, guard=check))
            except Refusal:
                if call.keyed:
                    # It may be the answer to an earlier request, which was somebody's to hear then.
                    await self._again(scope, call, needs, check)
                raise
            if done.replayed:
                await self._again(scope, call, needs, check)
            return done

        return await self.noted(call, needs, guarded, detail, check)

    async def _again(self, scope: Operations, call: Call, needs: Needs, check: PlanCheck) -> None:
        asking = self.asking(scope, await self.catalog.grants.rights(self.principal), await self._left(scope, call))
        with check.judging():
            await check_all(needs, scope.cells, asking)

    async def _left(self, scope: Operations, call: Call) -> dict[str, tuple[str, ...]]:
        """What the earlier request was about: by now it may be renamed or gone."""
        store = self.catalog.parts.store
        if isinstance(scope, Overlay):
            record = await store.lookup(scope.id)
            if record is None or record.state is not State.OPEN:
                return {}
            writes = (await store.contents(scope.id)).writes
        else:
            record = await store.lookup(call.transaction_id)
            writes = record.writes if record is not None else ()
        found: dict[str, tuple[str, ...]] = {}
        for write in writes:
            if family_of(write.key) in _POINTERS:
                thing = Scope.thing(family_of(write.key), segments_of(write.key)[-1])
                found[thing.text] = tuple(write.value["namespace"]) if write.value is not None else ()
            elif family_of(write.key) == "dropped" and write.value is not None:
                thing = Scope.thing(FAMILIES[Kind(write.value["kind"])], segments_of(write.key)[-1])
                found[thing.text] = tuple(write.value["namespace"])
        return found

    # --- the audit trail ---

    async def noted(
        self,
        call: Call,
        needs: Needs,
        work: Callable[[], Awaitable[T]],
        detail: JsonObject | None = None,
        check: PlanCheck | None = None,
    ) -> T:
        """Do it, and note who asked for what and what came of it."""
        try:
            result = await work()
        except (Contended, StoreUnavailable):
            # Nothing has happened yet, and the client sends it again.
            raise
        except Exception as error:
            denied = check is not None and check.denied
            self.note(call, needs, Outcome.DENIED if denied else outcome_of(error), str(error), detail)
            raise
        self.note(call, needs, Outcome.APPLIED, None, detail)
        return result

    def note(
        self, call: Call, needs: Needs, outcome: Outcome, reason: str | None = None, detail: JsonObject | None = None
    ) -> None:
        by_id = {"ids": ",".join(one.id for one in needs if isinstance(one, OnId))}
        entry = Entry(
            at_ms=self.catalog.parts.clock.now_ms(),
            account=self.principal.account,
            principal=self.principal.name,
            operation=call.operation,
            outcome=outcome,
            tables=tuple(names_in(needs)),
            namespaces=tuple(one.namespace for one in needs if isinstance(one, InNamespace)),
            transaction_id=call.transaction_id,
            reason=reason[:500] if reason is not None else None,
            client=call.source.get("client"),
            detail={**(detail or {}), **(by_id if by_id["ids"] else {})} or None,
        )
        self.trail.note(self.catalog.warehouse.name, entry)

    def note_read(self, scope: Operations, operation: str, tables: Sequence[Identifier]) -> None:
        if self.trail.reads:
            call = Call(scope.new_id(), operation)
            self.note(call, [OnThing(one, Kind.TABLE, Role.READ) for one in tables], Outcome.APPLIED)


def made_by(rights: Rights, writes: Iterable[Write]) -> list[Scope]:
    """The tables and views among these writes that are new, and that whoever has these rights does not manage yet."""
    pointers = [
        Pointer.from_json(write.value)
        for write in writes
        if write.value is not None and write.revision == 0 and family_of(write.key) in _POINTERS
    ]
    return [scope_of(one) for one in pointers if rights.on_namespace(one.identifier.namespace) is not Role.MANAGE]


@dataclass(slots=True)
class PlanCheck:
    """Looks at every attempt of one change."""

    guard: Guard
    scope: Operations
    needs: Needs
    commits: Sequence[Commit] = ()
    delta: Sequence[DeltaCommit] = ()
    denied: bool = field(default=False, init=False)
    """Whether it was the rights that were missing, whatever the answer says."""

    _asking: Asking | None = field(default=None, init=False)

    @contextmanager
    def judging(self) -> Iterator[None]:
        try:
            yield
        except (Forbidden, Refusal):
            self.denied = True
            raise

    async def before(self, draft: Draft) -> None:
        look = self.guard.look(self.scope, draft)
        names = self.scope.names
        # What the plan reads first is read with the grants, and is in the draft then.
        await look.read(*(key for one in names_in(self.needs) if (key := names.likely_key(one)) is not None))
        self._asking = self.guard.asking(self.scope, await look.rights())
        with self.judging():
            await check_all(self.needs, draft, self._asking)
            if self._asking.rights.everywhere is not Role.MANAGE:
                # Before the plan: whether a place is taken is not for everybody to know.
                await self._places(self._asking).check_moves(draft, self.commits)

    async def after(self, draft: Draft) -> None:
        asking = self._asking
        assert asking is not None, "before comes first"
        if asking.rights.everywhere is Role.MANAGE:
            return
        with self.judging():
            self._places(asking).check(draft, self.commits, self.delta)
        if not isinstance(self.scope, Overlay):
            # In the same commit. What is made inside a transaction is theirs when that is published.
            made = made_by(asking.rights, draft.planned_writes)
            if made:
                await self.guard.catalog.grants.give(draft, made, user(self.guard.principal.name or ""))

    def _places(self, asking: Asking) -> Places:
        parts = self.guard.catalog.parts
        return Places(parts.warehouse, parts.keys, asking)


class GuardedOperations(Operations):
    """Every operation, behind its rule. Deliberately not initialised as what it stands for: see above."""

    def __init__(self, inner: Operations, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard
        self._rights: Rights | None = None
        """Those by which the last table was seen: one of these serves one request."""

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

    async def may_write(self, identifier: Identifier, table_id: str | None) -> bool:
        rights = self._rights or (await self._guard.now(self._inner)).rights
        scope = Scope.thing(FAMILIES[Kind.TABLE], table_id or "")
        role = rights.on_thing(identifier.namespace, scope)
        return role is not None and role >= Role.WRITE

    async def overlapping(self, location: str, table_id: str | None) -> str | None:
        """Whether there is one, but not which: it may be one that whoever asks may not know of."""
        return None if await self._inner.overlapping(location, table_id) is None else ""

    async def enter(self) -> None:
        """Before everything else: whether whoever asks may be here at all."""

    async def role_on(self, pointer: Pointer) -> Role | None:
        asking = await self._guard.now(self._inner)
        return asking.rights.on_thing(pointer.identifier.namespace, scope_of(pointer))

    # --- seeing ---

    async def _seen(self, identifier: Identifier, kind: Kind | None, operation: str) -> Pointer:
        """The table or view of this name, if it may be seen. Costs no look at the store beyond its own."""
        if isinstance(self._inner, Overlay):
            await self.enter()
        look = self._guard.look(self._inner)
        pointer = await self._inner.names.find(look, identifier)
        rights = self._rights = await look.rights()
        if (
            pointer is None
            or (kind is not None and pointer.kind is not kind)
            or (rights.on_namespace(identifier.namespace) is None and scope_of(pointer).text not in rights.things)
        ):
            raise missing(identifier, kind or Kind.TABLE)
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
            self._guard.note(call, needs, Outcome.DENIED, str(error))
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

    async def find(self, identifier: Identifier) -> Pointer | None:
        with suppress(NoSuchTable):
            return await self._seen(identifier, None, "loadTable")
        return None

    async def table(self, identifier: Identifier) -> Pointer:
        return await self._seen(identifier, Kind.TABLE, "loadTable")

    async def tables(self, identifiers: Sequence[Identifier]) -> list[MetadataFile]:
        await self.enter()
        look = self._guard.look(self._inner)
        found = await self._inner.cut(look, identifiers)
        rights = await look.rights()
        for identifier, one in zip(identifiers, found, strict=True):
            if rights.on_thing(identifier.namespace, Scope.thing(FAMILIES[Kind.TABLE], one.id)) is None:
                raise missing(identifier, Kind.TABLE)
        self._guard.note_read(self._inner, "batchLoadTables", identifiers)
        return await self._inner.table_files([one.location for one in found])

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
        needs = _registering(identifier)
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
        return await self._change(call, needs, lambda call: self._inner.commit_view(call, commit))

    async def register_view(self, call: Call, identifier: Identifier, location: str) -> Done:
        needs = _registering(identifier)
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
        await self._seen(identifier, Kind.DELTA, "loadDeltaTable")
        loaded = await self._inner.load_delta(identifier, version=version, timestamp_ms=timestamp_ms, files=files)
        await self._same(identifier, loaded.pointer)
        return loaded

    async def delta_exists(self, identifier: Identifier) -> None:
        await self._seen(identifier, Kind.DELTA, "deltaTableExists")

    async def delta_history(self, identifier: Identifier, before: int | None, limit: int) -> Sequence[VersionRow]:
        pointer = await self._seen(identifier, Kind.DELTA, "loadDeltaHistory")
        rows = await self._inner.delta_history(identifier, before, limit)
        await self._same(identifier, pointer)
        return rows

    async def _same(self, identifier: Identifier, pointer: Pointer) -> None:
        """What was loaded after it was looked at may be another one of the same name."""
        if await self.role_on(pointer) is None:
            raise missing(identifier, Kind.DELTA)

    # --- small documents of users ---

    async def load_state(self, name: str) -> Cell:
        await self.enter()
        cell = await self._inner.load_state(name)
        rights = (await self._asking()).rights
        mine = cell.value is not None and cell.value.get("principal") == self._guard.principal.name
        return cell if rights.everywhere is not None or mine else replace(cell, value=None, revision=0)

    # --- what people say about a table or view ---

    async def load_governance(self, identifier: Identifier) -> JsonObject:
        await self._seen(identifier, None, "loadGovernance")
        return await self._inner.load_governance(identifier)

    async def put_governance(self, call: Call, identifier: Identifier, given: Mapping[str, Any]) -> Done:
        needs = [OnThing(identifier, Kind.TABLE, RULES["putGovernance"].needed)]
        return await self._change(
            call, needs, lambda call: self._inner.put_governance(call, identifier, given), detail=dict(given)
        )

    # --- files, of what was seen or changed just now ---

    async def table_file(self, location: str) -> MetadataFile:
        return await self._inner.table_file(location)

    async def view_file(self, location: str) -> MetadataFile:
        return await self._inner.view_file(location)

    async def table_after(self, done: Done) -> MetadataFile:
        return await self._inner.table_after(done)

    async def view_after(self, done: Done) -> MetadataFile:
        return await self._inner.view_after(done)


class GuardedCatalog(GuardedOperations, Catalog):
    """A warehouse, as one principal may see and change it."""

    def __init__(
        self, inner: Catalog, guard: Guard, transactions: Callable[[Transactions, Guard], Transactions]
    ) -> None:
        GuardedOperations.__init__(self, inner, guard)
        self._catalog = inner
        self._guard_of_transactions = transactions

    @property
    def transactions(self) -> Transactions:  # type: ignore[override]
        # Made when it is asked for: most requests are in none.
        return self._guard_of_transactions(self._catalog.transactions, self._guard)

    # --- grants ---

    async def list_grants(self) -> list[Grant]:
        """Those on what one manages, and one's own."""
        asking = await self._asking()
        every = await self._catalog.list_grants()
        if asking.rights.everywhere is Role.MANAGE:
            return every
        mine = set(holders_of(self._guard.principal))
        return [one for one in every if one.holder in mine or await self._manages(asking, one.scope)]

    async def _manages(self, asking: Asking, scope: Scope) -> bool:
        if scope.kind == "namespace":
            return asking.rights.on_namespace(scope.levels) is Role.MANAGE
        return asking.rights.things.get(scope.text) is Role.MANAGE

    async def described_grants(self, grants: Sequence[Grant]) -> list[JsonObject]:
        return await self._catalog.described_grants(grants)

    async def role_of(self, principal: Principal, scope: GrantScope) -> Role | None:
        """One's own, or of somebody else if one may grant there."""
        if set(holders_of(principal)) - set(holders_of(self._guard.principal)):
            await self._guard.needs(self._inner, self._to_grant(scope))
        elif isinstance(scope, Identifier):
            await self._seen(scope, None, "checkGrant")
        elif not isinstance(scope, Scope):
            await self._sees(await self._asking(), scope)
        return await self._catalog.role_of(principal, scope)

    async def put_grant(self, call: Call, scope: GrantScope, holder: str, role: Role) -> Done:
        needs = self._to_grant(scope)
        detail = {"holder": holder, "role": role.word, **_shown_scope(scope)}
        return await self._change(
            call, needs, lambda call: self._catalog.put_grant(call, scope, holder, role), detail=detail
        )

    async def remove_grant(self, call: Call, scope: GrantScope, holder: str) -> Done:
        needs = self._to_grant(scope)
        detail = {"holder": holder, **_shown_scope(scope)}
        return await self._change(
            call, needs, lambda call: self._catalog.remove_grant(call, scope, holder), detail=detail
        )

    def _to_grant(self, scope: GrantScope) -> list[Need]:
        role = RULES["addGrant"].needed
        match scope:
            case Scope():
                return [OnAccount(role) if scope == Scope.account() else OnWarehouse(role)]
            case Identifier():
                return [OnThing(scope, Kind.TABLE, role)]
            case _:
                return [InNamespace(scope, role)]

    async def scope(self, cells: Reads, scope: GrantScope) -> Scope:
        raise AssertionError("only plans ask for this")

    async def give(self, call: Call, scopes: Sequence[Scope], holder: str) -> Done:
        raise AssertionError("only guards ask for this")

    async def sweep_grants(self) -> bool:
        raise AssertionError("only upkeep asks for this")

    # --- Delta ---

    async def import_delta(self, call: Call, request: ImportDelta) -> Done:
        needs = _registering(request.identifier)
        await self._entered(call, needs)

        async def work() -> Done:
            await self._guard.needs(self._inner, needs)
            return await self._catalog.import_delta(call, request)

        return await self._guard.noted(call, needs, work, {"name": request.identifier.name})

    # --- what was dropped, and what files are reachable from ---

    async def dropped_page(self, token: str | None, size: int | None = None) -> DroppedPage:
        """Those that one may bring back."""
        asking = await self._asking()
        page = await self._catalog.dropped_page(token, size)
        return DroppedPage(tuple(one for one in page.tables if _role_on(asking, one) is Role.MANAGE), page.next_token)

    async def undrop(
        self, call: Call, identifier: Identifier | None, table_id: str | None = None, target: Identifier | None = None
    ) -> Done:
        needs = [OnDropped(self._catalog, identifier, table_id, target)]
        named = {"identifier": identifier, "id": table_id, "to": target}
        detail = {name: _shown_name(one) for name, one in named.items() if one is not None}
        return await self._change(
            call, needs, lambda call: self._catalog.undrop(call, identifier, table_id, target), detail=detail
        )

    async def reachable_page(self, token: str | None) -> ReachablePage:
        await self._guard.needs(self._inner, [OnWarehouse(RULES["listReachable"].needed)])
        return await self._catalog.reachable_page(token)

    async def reachable_files(self, table_id: str, keep_ms: int) -> list[str]:
        await self._guard.needs(self._inner, [OnWarehouse(RULES["listReachableFiles"].needed)])
        return await self._catalog.reachable_files(table_id, keep_ms)

    async def collect_step(self, plan: Plan) -> Done:
        raise AssertionError("only collection asks for this")

    async def expire_snapshots(self, call: Call, identifier: Identifier) -> Done:
        raise AssertionError("only collection asks for this")

    async def verify_delta(self, identifier: Identifier) -> dict[str, Any]:
        await self._seen(identifier, Kind.DELTA, "verifyDeltaTable")
        return await self._catalog.verify_delta(identifier)

    async def check_mirrors(self, table_ids: Sequence[str]) -> None:
        role = RULES["mirrorDeltaTables"].needed
        await self._guard.needs(self._inner, [OnId(Kind.DELTA, one, role) for one in table_ids])

    async def transaction(self, transaction_id: TransactionId) -> TransactionRecord | None:
        return await self.transactions.load(transaction_id)


@dataclass(frozen=True, slots=True)
class OnAccount:
    """The whole account: its administrators, and who holds the role on it."""

    role: Role

    async def check(self, cells: Reads, asking: Asking) -> None:
        if asking.rights.on_account is None or asking.rights.on_account < self.role:
            raise asking.forbidden(self.role, f"account {asking.principal.account}")


@dataclass(frozen=True, slots=True)
class OnDropped:
    """Something that was dropped, and the namespace that it comes back to."""

    catalog: Catalog
    identifier: Identifier | None
    table_id: str | None
    target: Identifier | None

    async def check(self, cells: Reads, asking: Asking) -> None:
        if asking.left:
            # It is back: the answer to an earlier request is asked for again.
            for text, levels in asking.left.items():
                if asking.rights.on_thing(levels, Scope(text)) is Role.MANAGE:
                    return
            raise asking.forbidden(Role.MANAGE, "what was restored")
        found = await self.catalog.dropped.wanted(cells, self.identifier, self.table_id)
        role = _role_on(asking, found)
        if role is None:
            raise not_dropped(self.identifier, self.table_id)
        if role is not Role.MANAGE:
            raise asking.forbidden(Role.MANAGE, f"{found.pointer.kind} {shown(found.pointer.identifier)}")
        to = self.target or found.pointer.identifier
        await InNamespace(to.namespace, Role.CREATE).check(cells, asking)


def _role_on(asking: Asking, dropped: DroppedTable) -> Role | None:
    return asking.rights.on_thing(dropped.pointer.identifier.namespace, scope_of(dropped.pointer))


def _shown_name(name: Identifier | str) -> str:
    return shown(name) if isinstance(name, Identifier) else name


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


def _registering(identifier: Identifier) -> list[Need]:
    """The file that is registered may be anybody's."""
    return [InNamespace(identifier.namespace, Role.CREATE), OnWarehouse(RULES["registerTable"].needed)]


def _shown_scope(scope: GrantScope) -> JsonObject:
    if isinstance(scope, Scope):
        return {"on": scope.text}
    return {"on": ".".join((*scope.namespace, scope.name) if isinstance(scope, Identifier) else scope)}


def outcome_of(error: Exception) -> Outcome:
    match error:
        case Forbidden():
            return Outcome.DENIED
        case OutcomeUnknown():
            return Outcome.UNKNOWN
        case AnswerLost():
            return Outcome.APPLIED
        case _:
            return Outcome.REFUSED

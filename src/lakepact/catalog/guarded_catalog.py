"""The catalog itself, guarded: the operations, and beside them grants, imports and what was dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakepact.access import Principal, Role, Scope
from lakepact.access.rules import RULES, higher, holders_of
from lakepact.catalog.audit import AuditPage, Position, Wanted
from lakepact.catalog.catalog import Catalog, GrantScope
from lakepact.catalog.cells import a_look_each
from lakepact.catalog.delta_import import ImportDelta
from lakepact.catalog.dropped import DroppedPage, DroppedTable, not_dropped
from lakepact.catalog.grants import Grant
from lakepact.catalog.guard import Guard
from lakepact.catalog.guarded import GuardedOperations, registering
from lakepact.catalog.names import Reads
from lakepact.catalog.namespaces import id_of, prefixes
from lakepact.catalog.needs import (
    Asking,
    InNamespace,
    Need,
    OnId,
    OnThing,
    OnWarehouse,
)
from lakepact.catalog.pointers import Kind, scope_of, shown
from lakepact.catalog.reachable import ReachablePage
from lakepact.catalog.transactions import Transactions
from lakepact.catalog.work import Call, Done, Plan
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.model import TransactionRecord


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
        needs = registering(request.identifier)
        await self._entered(call, needs)

        async def work() -> Done:
            await self._guard.needs(self._inner, needs)
            return await self._catalog.import_delta(call, request)

        return await self._guard.noted(call, needs, work, {"name": request.identifier.name})

    # --- what was dropped, and what files are reachable from ---

    async def dropped_page(self, token: str | None, size: int | None = None) -> DroppedPage:
        """Those that one may bring back."""
        asking = await self._asking()
        if asking.rights.everywhere is Role.MANAGE or (size is not None and size < 1):
            return await self._catalog.dropped_page(token, size)
        most, mine = self.settings.max_page, list[DroppedTable]()
        limit = min(size or most, most)
        while True:
            page = await self._catalog.dropped_page(token)
            roles = await _roles_on(self._inner.cells, asking, page.tables)
            mine += (one for one, role in zip(page.tables, roles, strict=True) if role is Role.MANAGE)
            token = page.next_token
            if len(mine) > limit or token is None:
                # Where to go on is told by one of theirs, and only if there is another: a token can be read.
                last = mine[limit - 1].pointer.id if len(mine) > limit else None
                return DroppedPage(tuple(mine[:limit]), last and self._inner.parts.keys.dropped(last))

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

    # --- the audit trail ---

    async def audit_page(self, before: Position | None, wanted: Wanted, limit: int) -> AuditPage:
        """What was done to the account's tokens is for those who may see these: its administrators."""
        await self._guard.needs(self._inner, [OnWarehouse(RULES["listAudit"].needed)])
        await self._guard.trail.flush(self.warehouse.name)
        of_account = wanted.of_account and self._guard.principal.admin
        page = await self._catalog.audit_page(before, replace(wanted, of_account=of_account), limit)
        self._guard.note_read(self._inner, "listAudit", [])
        return page

    async def collect_step(self, plan: Plan) -> Done:
        raise AssertionError("only collection asks for this")

    async def expire_snapshots(self, call: Call, identifier: Identifier) -> Done:
        raise AssertionError("only collection asks for this")

    async def verify_delta(self, identifier: Identifier) -> dict[str, Any]:
        return await self._catalog.verify_delta_of(await self._seen(identifier, Kind.DELTA, "verifyDeltaTable"))

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
            for text, was in asking.left.items():
                if asking.rights.on_thing(was.namespace, Scope(text)) is Role.MANAGE:
                    return
            raise asking.forbidden(Role.MANAGE, "what was restored")
        found = await self.catalog.dropped.wanted(cells, self.identifier, self.table_id)
        [role] = await _roles_on(cells, asking, [found])
        if role is None:
            raise not_dropped(self.identifier, self.table_id)
        if role is not Role.MANAGE:
            raise asking.forbidden(Role.MANAGE, f"{found.pointer.kind} {shown(found.pointer.identifier)}")
        to = self.target or found.pointer.identifier
        await InNamespace(to.namespace, Role.CREATE).check(cells, asking)


async def _roles_on(cells: Reads, asking: Asking, dropped: Sequence[DroppedTable]) -> list[Role | None]:
    """What is held on each of these, or on the namespaces that it was in. One that only has the name of such a
    namespace by now is another one, and who manages that has nothing to do with what was there before."""
    rights = asking.rights
    around = [prefixes(table.pointer.identifier.namespace) for table in dropped]
    granted = list(dict.fromkeys(one for namespaces in around for one in namespaces if one in rights.namespaces))
    now: dict[tuple[str, ...], str | int | None] = {}
    for some in a_look_each(granted):
        found = await cells.read(*(asking.keys.namespace(one) for one in some))
        now |= {one: id_of(cell) for one, cell in zip(some, found, strict=True)}
    roles: list[Role | None] = []
    for table, namespaces in zip(dropped, around, strict=True):
        role = higher(rights.everywhere, rights.things.get(scope_of(table.pointer).text))
        for one, id in zip(namespaces, table.namespace_ids, strict=False):
            if id is not None and now.get(one) == id:
                role = higher(role, rights.namespaces[one])
        roles.append(role)
    return roles


def _shown_name(name: Identifier | str) -> str:
    return shown(name) if isinstance(name, Identifier) else name


def _shown_scope(scope: GrantScope) -> JsonObject:
    if isinstance(scope, Scope):
        return {"on": scope.text}
    return {"on": ".".join((*scope.namespace, scope.name) if isinstance(scope, Identifier) else scope)}

"""One principal at the door of a warehouse: what a change needs is looked at on every attempt, and its end is noted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from lakepact.access import Principal, Rights, Role, Scope
from lakepact.access.rules import user
from lakepact.catalog.catalog import Catalog
from lakepact.catalog.delta_tables import DeltaCommit
from lakepact.catalog.errors import AnswerLost, Forbidden, Refusal
from lakepact.catalog.grants import Grants
from lakepact.catalog.keys import family_of, levels_of
from lakepact.catalog.needs import (
    Asking,
    InNamespace,
    Look,
    Needs,
    OnId,
    OnThing,
    check_all,
    names_in,
)
from lakepact.catalog.operations import Operations
from lakepact.catalog.overlay import Overlay
from lakepact.catalog.places import Places
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer, scope_of
from lakepact.catalog.trail import Entry, Outcome, Trail
from lakepact.catalog.work import Call, Done, Draft
from lakepact.errors import Contended, OutcomeUnknown, StoreUnavailable
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.intent import adds_snapshots
from lakepact.iceberg.requests import Commit, Identifier
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Cell, State, Write

T = TypeVar("T")

_POINTERS: Final = frozenset(FAMILIES.values())


class Guard:
    """One principal at the door of one warehouse."""

    def __init__(self, catalog: Catalog, principal: Principal, trail: Trail) -> None:
        self.catalog = catalog
        self.principal = principal
        self.trail = trail

    def look(self, scope: Operations) -> Look:
        return Look(scope.cells, self.catalog.grants, self.principal, together=not isinstance(scope, Overlay))

    def asking(self, scope: Operations, rights: Rights) -> Asking:
        parts = self.catalog.parts
        inside = isinstance(scope, Overlay)
        return Asking(self.principal, rights, parts.keys, scope.names, parts.store, parts.warehouse.name, inside=inside)

    async def now(self, scope: Operations) -> Asking:
        """With the rights as they are now."""
        return self.asking(scope, await self.catalog.grants.rights(self.principal))

    async def needs(self, scope: Operations, needs: Needs) -> None:
        """Check these by themselves, for what is not a plan."""
        look = self.look(scope)
        likely = [key for one in names_in(needs) if (key := scope.names.likely_key(one)) is not None]
        if likely:
            await look.read(*likely)
        await self.judged(scope, look, lambda asking: check_all(needs, look, asking))

    async def judged(self, scope: Operations, look: Look, check: Callable[[Asking], Awaitable[None]]) -> Asking:
        """Check by the grants of this look, and again if they have moved by the time that the last of it is read."""
        while True:
            asking, judged_by = self.asking(scope, await look.rights()), look.grants_revision
            await check(asking)
            if look.grants_revision == judged_by:
                return asking

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

        return await self.noted(call, needs, guarded, detail, check, within=scope.open_transaction)

    async def _again(self, scope: Operations, call: Call, needs: Needs, check: PlanCheck) -> None:
        asking = self.asking(scope, await self.catalog.grants.rights(self.principal))
        asking = _with_left(asking, await self._writes_of(scope, call))
        with check.judging():
            # Without a trace: what they may not see must not become a part of their transaction.
            await check_all(needs, scope.quietly if isinstance(scope, Overlay) else scope.cells, asking)

    async def _writes_of(self, scope: Operations, call: Call) -> Sequence[Write]:
        """What the earlier request did. What it was about may be renamed or gone by now."""
        store = self.catalog.parts.store
        if isinstance(scope, Overlay):
            record = await store.lookup(scope.id)
            if record is None or record.state is not State.OPEN:
                return ()
            return (await store.contents(scope.id)).writes
        record = await store.lookup(call.transaction_id)
        return record.writes if record is not None else ()

    # --- the audit trail ---

    async def noted(
        self,
        call: Call,
        needs: Needs,
        work: Callable[[], Awaitable[T]],
        detail: JsonObject | None = None,
        check: PlanCheck | None = None,
        within: TransactionId | None = None,
    ) -> T:
        """Do it, and note who asked for what and what came of it. `within`: the transaction it is a statement of."""
        try:
            result = await work()
        except (Contended, StoreUnavailable):
            # Nothing has happened yet, and the client sends it again.
            raise
        except Exception as error:
            denied = check is not None and check.denied
            outcome = Outcome.DENIED if denied else outcome_of(error)
            self.note(call, needs, outcome, str(error), detail, within=within)
            raise
        outcome = Outcome.APPLIED if within is None else Outcome.STAGED
        self.note(call, needs, outcome, None, detail, within=within)
        return result

    def note(
        self,
        call: Call,
        needs: Needs,
        outcome: Outcome,
        reason: str | None = None,
        detail: JsonObject | None = None,
        *,
        within: TransactionId | None = None,
    ) -> None:
        ids = ",".join(one.id for one in needs if isinstance(one, OnId))
        more = {"ids": ids} if ids else {}
        if within is not None and call.keyed:
            more["key"] = call.transaction_id
        entry = Entry(
            at_ms=self.catalog.parts.clock.now_ms(),
            account=self.principal.account,
            principal=self.principal.name,
            operation=call.operation,
            outcome=outcome,
            tables=tuple(names_in(needs)),
            namespaces=tuple(one.namespace for one in needs if isinstance(one, InNamespace)),
            transaction_id=within or call.transaction_id,
            reason=reason[:500] if reason is not None else None,
            client=call.source.get("client"),
            detail={**(detail or {}), **more} or None,
        )
        self.trail.note(self.catalog.warehouse.name, entry)

    def note_read(self, scope: Operations, operation: str, tables: Sequence[Identifier]) -> None:
        if self.trail.reads:
            call = Call(scope.new_id(), operation)
            needs = [OnThing(one, Kind.TABLE, Role.READ) for one in tables]
            self.note(call, needs, Outcome.APPLIED, within=scope.open_transaction)


def _with_left(asking: Asking, writes: Iterable[Write]) -> Asking:
    left, let_go = _told_by(writes)
    return replace(asking, left=left, let_go=frozenset(let_go))


def tables_in(writes: Iterable[Write]) -> list[Identifier]:
    """The tables and views that these writes change, and the names that they take away."""
    left, let_go = _told_by(writes)
    return sorted({*left.values(), *let_go}, key=lambda one: (*one.namespace, one.name))


def _told_by(writes: Iterable[Write]) -> tuple[dict[str, Identifier], set[Identifier]]:
    """What is there after these writes, by scope, and the names that they take away."""
    left: dict[str, Identifier] = {}
    let_go: set[Identifier] = set()
    for write in writes:
        family, last = family_of(write.key), segments_of(write.key)[-1]
        if family == "names" and write.value is None:
            let_go.add(Identifier(tuple(levels_of(segments_of(write.key)[2])), last))
        elif write.value is not None and (family in _POINTERS or family == "dropped"):
            pointer = Pointer.from_json(write.value)
            left[scope_of(pointer).text] = pointer.identifier
    return left, let_go


def made_by(rights: Rights, writes: Iterable[Write]) -> list[Scope]:
    """The tables and views among these writes that are new, and that whoever has these rights does not manage yet."""
    pointers = [
        Pointer.from_json(write.value)
        for write in writes
        if write.value is not None and write.revision == 0 and family_of(write.key) in _POINTERS
    ]
    return [scope_of(one) for one in pointers if rights.on_namespace(one.identifier.namespace) is not Role.MANAGE]


class _DraftLook(Look):
    """A look through a draft, which goes to the store for what the draft has not read yet."""

    __slots__ = ("_draft",)

    def __init__(self, draft: Draft, grants: Grants, principal: Principal, *, together: bool) -> None:
        super().__init__(draft, grants, principal, together=together)
        self._draft = draft

    async def read(self, *keys: Key) -> list[Cell]:
        seen = self._draft.seen
        if self.grants_revision is not None and all(key in seen for key in keys):
            return await self._draft.read(*keys)
        # As they are now, along with the rest.
        seen.pop(self._grants.key, None)
        return await super().read(*keys)


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
        guard, names = self.guard, self.scope.names
        look = _DraftLook(draft, guard.catalog.grants, guard.principal, together=not isinstance(self.scope, Overlay))
        # What the plan reads first is read with the grants, and is in the draft then.
        await look.read(*(key for one in names_in(self.needs) if (key := names.likely_key(one)) is not None))
        with self.judging():
            self._asking = await guard.judged(self.scope, look, lambda asking: self._check_needs(draft, look, asking))
            draft.sees = self._asking.sees
            if self._asking.rights.everywhere is not Role.MANAGE:
                # Before the plan: whether a place is taken is not for everybody to know.
                await self._places(self._asking).check_moves(draft, self.commits)

    async def _check_needs(self, draft: Draft, look: Look, asking: Asking) -> None:
        try:
            await check_all(self.needs, look, asking)
        except (Forbidden, Refusal):
            for commit in self.commits:
                if adds_snapshots(commit.updates) and await self.scope.shows(draft, commit):
                    raise _applied_before(draft) from None
            raise

    async def after(self, draft: Draft) -> None:
        asking = self._asking
        assert asking is not None, "before comes first"
        if asking.rights.everywhere is Role.MANAGE:
            return
        with self.judging():
            await _check_found(draft, asking)
            self._places(asking).check(draft, self.commits, self.delta)
        if not isinstance(self.scope, Overlay):
            # In the same commit. What is made inside a transaction is theirs when that is published.
            made = made_by(asking.rights, draft.planned_writes)
            if made:
                await self.guard.catalog.grants.give(draft, made, user(self.guard.principal.name or ""))

    def _places(self, asking: Asking) -> Places:
        parts = self.guard.catalog.parts
        return Places(parts.warehouse, parts.keys, asking)


async def _check_found(draft: Draft, asking: Asking) -> None:
    """A commit that was made before is answered with the table as it is, for those who may still write it."""
    for pointer in draft.found_by_id:
        role = await asking.role_on(pointer)
        if role is None or role < Role.WRITE:
            raise _applied_before(draft)


def _applied_before(draft: Draft) -> OutcomeUnknown:
    """To refuse it would have the client delete files that are in the table."""
    return OutcomeUnknown(draft.transaction_id, "its snapshots are in a table that you may not write under this name")


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

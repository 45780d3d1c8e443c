"""Transactions as one principal may see them: their own, and those of others if they manage the warehouse.

What is staged is checked statement by statement, and all of it once more when it is published: rights may have gone in
between. What a transaction does is read from the cells it writes, so nothing that it holds can be forgotten.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from lakepact.access import Role, Scope
from lakepact.access.rules import RULES, user
from lakepact.catalog.edits import Digest, DocumentAt, NewDocument, TableEdit
from lakepact.catalog.errors import Forbidden
from lakepact.catalog.files import parsed
from lakepact.catalog.grants import pointer_key
from lakepact.catalog.guard import Guard, PlanCheck, made_by
from lakepact.catalog.guarded import GuardedOperations
from lakepact.catalog.keys import family_of, levels_of
from lakepact.catalog.namespaces import MARK
from lakepact.catalog.needs import (
    Anything,
    Asking,
    InNamespace,
    Need,
    OnDocument,
    OnId,
    OnThing,
    OnWarehouse,
    check_all,
)
from lakepact.catalog.overlay import PRINCIPAL, Overlay
from lakepact.catalog.places import Places
from lakepact.catalog.pointers import FAMILIES, Change, Kind, Pointer, scope_of, shown
from lakepact.catalog.staged import STAGED
from lakepact.catalog.trail import Outcome
from lakepact.catalog.transactions import Transactions
from lakepact.catalog.work import Call, Done, Draft
from lakepact.errors import LakepactError
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Commit, Identifier
from lakepact.iceberg.requirements import is_creation
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import Cell, Isolation, State, Transaction, TransactionPage, TransactionRecord, Write

T = TypeVar("T")

_KINDS = {family: kind for kind, family in FAMILIES.items()}


def owner_of(record: TransactionRecord) -> str | None:
    """Whose transaction it is: who began it, or who sent the one request that it is."""
    if PRINCIPAL in record.properties:
        return record.properties[PRINCIPAL]
    source: Mapping[str, str | None] = (record.answer or {}).get("source") or {}
    return source.get("principal")


class GuardedTransactions(Transactions):
    def __init__(self, inner: Transactions, guard: Guard) -> None:
        self._inner = inner
        self._guard = guard

    def overlay(self, transaction_id: str) -> Overlay:
        return GuardedOverlay(self._inner.overlay(transaction_id), self._guard)

    async def begin(
        self,
        call: Call,
        *,
        ttl_s: float | None = None,
        isolation: Isolation = Isolation.SERIALIZABLE,
        properties: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> TransactionRecord:
        async def work() -> TransactionRecord:
            await self._guard.needs(self._guard.catalog, [Anything(RULES["beginTransaction"].needed)])
            return await self._inner.begin(
                call, ttl_s=ttl_s, isolation=isolation, properties=properties, read_only=read_only
            )

        return await self._guard.noted(call, (), work)

    async def load(self, transaction_id: TransactionId) -> TransactionRecord | None:
        record = await self._inner.load(transaction_id)
        if record is not None:
            await self._check_mine(record)
        return record

    async def contents(self, transaction_id: TransactionId) -> Transaction:
        await self.load(transaction_id)
        return await self._inner.contents(transaction_id)

    async def list(self, states: Iterable[State], after: str | None, limit: int) -> TransactionPage:
        page = await self._inner.list(states, after, limit)
        asking = await self._guard.now(self._guard.catalog)
        if asking.rights.everywhere is Role.MANAGE:
            return page
        mine = tuple(one for one in page.transactions if owner_of(one) == self._guard.principal.name)
        return TransactionPage(mine, page.after)

    async def renew(self, transaction_id: TransactionId, ttl_s: float | None) -> TransactionRecord:
        return await self._step("renewTransaction", transaction_id, lambda: self._inner.renew(transaction_id, ttl_s))

    async def abort(self, transaction_id: TransactionId) -> TransactionRecord:
        return await self._step("abortTransaction", transaction_id, lambda: self._inner.abort(transaction_id))

    async def report(self, transaction_id: TransactionId, report: JsonObject) -> None:
        await self._step("reportRun", transaction_id, lambda: self._inner.report(transaction_id, report))

    async def prepare(self, call: Call) -> TransactionRecord:
        async def work() -> TransactionRecord:
            await self._check_staged(call.transaction_id)
            return await self._inner.prepare(call)

        return await self._guard.noted(call, (), work)

    async def prepare_edits(
        self, call: Call, edits: Sequence[TableEdit], digest: Digest, *, key: TransactionId | None = None
    ) -> TransactionRecord:
        overlay, needs = self._inner.overlay(call.transaction_id), [_of_edit(one) for one in edits]
        check = EditCheck(self._guard, overlay, needs)
        check.edits = edits

        async def work() -> TransactionRecord:
            await self._check_staged(call.transaction_id)
            guarded = Call(
                call.transaction_id, call.operation, call.keyed, call.request_hash, call.source, call.warehouse, check
            )
            return await self._inner.prepare_edits(guarded, edits, digest, key=key)

        return await self._guard.noted(call, needs, work, None, check)

    async def commit(self, call: Call) -> Done:
        async def work() -> Done:
            await self._check_staged(call.transaction_id)
            done = await self._inner.commit(call)
            await self._give(call)
            return done

        return await self._guard.noted(call, (), work)

    async def _give(self, call: Call) -> None:
        """Whoever has made something manages it. After the commit, and again if it is asked for again: grants of
        others at the same time must not get in the way of the tables."""
        guard = self._guard
        try:
            record = await self._inner.load(call.transaction_id)
            rights = (await guard.now(guard.catalog)).rights
            made = made_by(rights, record.writes if record is not None else ())
            if made:
                giving = Call(guard.catalog.new_id(), "addGrant", source=call.source, warehouse=call.warehouse)
                await guard.catalog.give(giving, made, user(guard.principal.name or ""))
        except LakepactError as error:
            # The tables are committed, and that is what was asked for.
            guard.note(call, (), Outcome.REFUSED, f"the new tables could not be given to their maker: {error}")

    async def _step(self, operation: str, transaction_id: TransactionId, work: Callable[[], Awaitable[T]]) -> T:
        async def checked() -> T:
            await self.load(transaction_id)
            return await work()

        call = Call(transaction_id, operation, source={"principal": self._guard.principal.name})
        return await self._guard.noted(call, (), checked)

    async def _check_mine(self, record: TransactionRecord) -> None:
        if owner_of(record) != self._guard.principal.name:
            asking = await self._guard.now(self._guard.catalog)
            if asking.rights.everywhere is not Role.MANAGE:
                raise _not_yours(record.id, asking)

    async def _check_staged(self, transaction_id: TransactionId) -> None:
        """Whether it is theirs, and they may still do all that it does."""
        record = await self._inner.load(transaction_id)
        if record is None:
            return
        await self._check_mine(record)
        if record.state in (State.ABORTED, State.FAILED):
            return
        writes = record.writes or (await self._inner.contents(transaction_id)).writes
        # What has happened lies where it lies.
        await check_writes(self._guard, writes, places=record.state is not State.COMMITTED)


class GuardedOverlay(GuardedOperations, Overlay):
    """An open transaction, for one who may be in it."""

    def __init__(self, inner: Overlay, guard: Guard) -> None:
        GuardedOperations.__init__(self, inner, guard)
        self.id = inner.id
        self._overlay = inner

    async def enter(self) -> None:
        properties = await self._overlay.properties()
        if properties.get(PRINCIPAL) != self._guard.principal.name:
            asking = await self._guard.now(self._guard.catalog)
            if asking.rights.everywhere is not Role.MANAGE:
                raise _not_yours(self.id, asking)

    async def edit_tables(self, call: Call, edits: Sequence[TableEdit], digest: Digest) -> Done:
        raise AssertionError("only prepare_edits asks for this")

    async def put_state(self, call: Call, name: str, value: JsonObject | None, revision: int | None) -> Done:
        needs = [OnDocument(name, RULES["putState"].needed)]
        return await self._change(
            call,
            needs,
            lambda call: self._overlay.put_state(call, name, value, revision),
            detail={"document": name},
        )


class EditCheck(PlanCheck):
    """Edits name their tables beside what they do to them; and whole documents are held to the places of theirs."""

    edits: Sequence[TableEdit] = ()

    async def before(self, draft: Draft) -> None:
        self.commits = [
            replace(edit.payload, identifier=await self._named(draft, edit.target))
            for edit in self.edits
            if isinstance(edit.payload, Commit)
        ]
        await super().before(draft)

    async def _named(self, draft: Draft, target: Identifier | str) -> Identifier | None:
        """None: there is no such table, and the plan says so."""
        if isinstance(target, Identifier):
            return target
        [cell] = await draft.read(self.guard.catalog.parts.keys.table(target))
        pointer = Pointer.of(cell)
        return None if pointer is None else pointer.identifier

    async def after(self, draft: Draft) -> None:
        await super().after(draft)
        asking, parts = self._asking, self.guard.catalog.parts
        assert asking is not None
        if asking.rights.everywhere is Role.MANAGE:
            return
        places = Places(parts.warehouse, parts.keys, asking)
        documents = {file.location: file.document for file in draft.files}
        changed = [
            (Pointer.from_json(value), Pointer.of(draft.seen[key]))
            for key, value in draft.writes.items()
            if value is not None and family_of(key) == FAMILIES[Kind.TABLE]
        ]
        for edit in self.edits:
            if not isinstance(edit.payload, NewDocument | DocumentAt):
                continue
            for pointer, before in changed:
                if before is None or edit.target not in (pointer.identifier, pointer.id):
                    continue
                base = (await parts.files.of(before)).document
                after = documents.get(pointer.metadata_location) or parsed(
                    pointer.metadata_location, await parts.files.raw(pointer.metadata_location)
                )
                with self.judging():
                    places.check_document(pointer, base, after)


def _of_edit(edit: TableEdit) -> Need:
    creates = isinstance(edit.payload, Commit) and is_creation(edit.payload.requirements)
    match edit.target:
        case Identifier():
            if creates:
                return InNamespace(edit.target.namespace, Role.CREATE)
            return OnThing(edit.target, Kind.TABLE, Role.WRITE)
        case id:
            return OnId(Kind.TABLE, id, Role.WRITE)


async def check_writes(guard: Guard, writes: Sequence[Write], *, places: bool = True) -> None:
    """What it takes to make these changes visible, told from the cells alone; `places`: also what it takes to choose
    where they lie."""
    catalog = guard.catalog
    store, keys = catalog.parts.store, catalog.parts.keys
    looked = [write.key for write in writes if family_of(write.key) in (*_KINDS, "namespaces", "governance")]
    governed = {
        write.key: [pointer_key(keys, Scope.thing(family, segments_of(write.key)[-1])) for family in _KINDS]
        for write in writes
        if family_of(write.key) == "governance"
    }
    now = await store.read([*looked, *(key for some in governed.values() for key in some)])
    asking = await guard.now(catalog)
    needs = [need for write in writes for need in _of_write(write, now)]
    if places and any(_chooses_a_place(write, now) for write in writes):
        needs.append(OnWarehouse(Role.MANAGE))
    await check_all(needs, catalog.cells, asking)
    for write in writes:
        family = family_of(write.key)
        if family in _KINDS:
            _check_pointer(write, now[write.key], asking)
        elif family == "governance":
            for key in governed[write.key]:
                if (pointer := Pointer.of(now[key])) is not None:
                    _check_role(pointer, Role.MANAGE, asking)


def _of_write(write: Write, now: Mapping[Key, Cell]) -> list[Need]:
    _, family, *rest = segments_of(write.key)
    match family:
        case "names" if write.value is not None:
            return [InNamespace(tuple(levels_of(rest[0])), Role.CREATE)]
        case "namespaces":
            parent = tuple(levels_of(rest[0])) if rest[0] != "." else ()
            current = now[write.key].value
            if current is None:
                return [InNamespace(parent, Role.CREATE)] if write.value is not None else []
            if write.value is not None and _unmarked(write.value) == _unmarked(current):
                return []
            return [InNamespace((*parent, rest[1]), Role.MANAGE)]
        case "state":
            return [OnDocument(rest[0], Role.WRITE)]
        case _:
            return []


def _chooses_a_place(write: Write, now: Mapping[Key, Cell]) -> bool:
    """Whether files lie where somebody has put them, and not the catalog. Only who manages the warehouse may."""
    family, value = family_of(write.key), write.value
    if value is None or (family in (*_KINDS, "namespaces") and now[write.key].revision != write.revision):
        # It goes, or has moved since: then the commit is a conflict.
        return False
    if family == "namespaces":
        before = now[write.key].value or {}
        return bool(_location_of(value) != _location_of(before))
    if family not in _KINDS:
        return False
    pointer, there = Pointer.from_json(value), Pointer.of(now[write.key])
    if there is not None:
        return pointer.location != there.location
    # What is new has a folder of its own, which its id is in. It may have been renamed since.
    registered = pointer.change is Change.REGISTER or (value.get(STAGED) or {}).get("base") is not None
    return registered or not pointer.location.endswith(f"-{pointer.id}")


def _location_of(namespace: Mapping[str, Any]) -> str | None:
    properties: Mapping[str, str] = namespace.get("properties") or {}
    return properties.get("location")


def _check_pointer(write: Write, cell: Cell, asking: Asking) -> None:
    before = Pointer.of(cell)
    if before is None:
        # New: its name says in which namespace, and that was looked at. Or gone: then the commit is a conflict.
        return
    renamed = write.value is not None and Pointer.from_json(write.value).identifier != before.identifier
    _check_role(before, Role.MANAGE if write.value is None or renamed else Role.WRITE, asking)


def _check_role(pointer: Pointer, needed: Role, asking: Asking) -> None:
    role = asking.rights.on_thing(pointer.identifier.namespace, scope_of(pointer))
    if role is None or role < needed:
        raise asking.forbidden(needed, f"{pointer.kind} {shown(pointer.identifier)}")


def _unmarked(value: Mapping[str, object]) -> dict[str, object]:
    return {name: one for name, one in value.items() if name not in (MARK, "changed")}


def _not_yours(transaction_id: TransactionId, asking: Asking) -> Forbidden:
    return Forbidden(
        f"transaction {transaction_id} is not {asking.principal.name}'s; others need the role {Role.MANAGE.word} on "
        f"warehouse {asking.warehouse}"
    )

"""Transactions as one principal may see them: their own, and those of others if they manage the warehouse.

What is staged is checked statement by statement, and all of it once more when it is published: rights may have gone in
between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import replace
from typing import TypeVar

from lakepact.access import Role
from lakepact.access.rules import NOTHING, RULES, user
from lakepact.catalog.edits import Digest, DocumentAt, NewDocument, TableEdit
from lakepact.catalog.errors import Forbidden
from lakepact.catalog.files import parsed
from lakepact.catalog.guard import Guard, PlanCheck, made_by, tables_in
from lakepact.catalog.guarded import GuardedOperations
from lakepact.catalog.keys import family_of
from lakepact.catalog.needs import (
    Anything,
    Asking,
    InNamespace,
    Need,
    OnDocument,
    OnId,
    OnThing,
)
from lakepact.catalog.overlay import PRINCIPAL, READ_ONLY, WAREHOUSE, Overlay
from lakepact.catalog.places import Places
from lakepact.catalog.pointers import FAMILIES, Kind, Pointer, scope_of
from lakepact.catalog.publishing_rights import publishing_rights
from lakepact.catalog.runs import Sees
from lakepact.catalog.trail import Outcome
from lakepact.catalog.transactions import Transactions
from lakepact.catalog.work import Call, Done, Draft, key_reused
from lakepact.errors import LakepactError
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Commit, Identifier
from lakepact.iceberg.requirements import is_creation
from lakepact.kernel.identity import TransactionId, derived_id
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Isolation, State, Transaction, TransactionPage, TransactionRecord

T = TypeVar("T")


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
            record = await self._inner.begin(
                call, ttl_s=ttl_s, isolation=isolation, properties=properties, read_only=read_only
            )
            # Of one that ended long ago it is not known any more whose it was; the request is the same.
            if owner_of(record) not in (self._guard.principal.name, None):
                raise key_reused(record.id)
            return record

        return await self._guard.noted(call, (), work)

    async def load(self, transaction_id: TransactionId) -> TransactionRecord | None:
        record = await self._inner.load(transaction_id)
        if record is not None and await self._holds_managed(record):
            # Who manages a table that it holds learns whose it is, since when and until when, and nothing else.
            return replace(record, properties=_only_own(record.properties), writes=(), reads=(), answer=None)
        return record

    async def contents(self, transaction_id: TransactionId) -> Transaction:
        record = await self.load(transaction_id)
        contents = await self._inner.contents(transaction_id)
        if record is None or not await self._holds_managed(record):
            return contents
        managed = await self._managed(contents)
        return replace(
            contents,
            writes=tuple(one for one in contents.writes if one.key in managed),
            reads=tuple(one for one in contents.reads if one.key in managed),
        )

    async def _holds_managed(self, record: TransactionRecord) -> bool:
        """Return whether the principal may see this transaction only because it holds a table that they manage.

        Raises `Forbidden` if they may not see it at all.
        """
        try:
            await self._check_mine(record)
            return False
        except Forbidden:
            if record.state is State.PREPARED and await self._managed(await self._inner.contents(record.id)):
                return True
            raise

    async def _managed(self, contents: Transaction) -> set[Key]:
        """The tables and views among these cells that the principal manages."""
        keys = [one.key for one in (*contents.writes, *contents.reads) if family_of(one.key) in FAMILIES.values()]
        asking = await self._guard.now(self._guard.catalog)
        pointers = {key: Pointer.of(cell) for key, cell in (await self._guard.catalog.parts.store.read(keys)).items()}
        return {
            key
            for key, pointer in pointers.items()
            if pointer is not None
            and asking.rights.on_thing(pointer.identifier.namespace, scope_of(pointer)) is Role.MANAGE
        }

    async def list(
        self,
        states: Iterable[State],
        after: str | None,
        limit: int,
        shows: Callable[[TransactionRecord], bool] = lambda record: True,
    ) -> TransactionPage:
        asking = await self._guard.now(self._guard.catalog)
        everyones = asking.rights.everywhere is Role.MANAGE

        def seen(record: TransactionRecord) -> bool:
            return (everyones or owner_of(record) == self._guard.principal.name) and shows(record)

        return await self._inner.list(states, after, limit, seen)

    async def renew(self, transaction_id: TransactionId, ttl_s: float | None) -> TransactionRecord:
        async def work() -> TransactionRecord:
            record = await self._mine(transaction_id)
            if record is not None and record.state is State.PREPARED:
                # It goes on holding tables, which takes the rights that preparing it took.
                judged = await self._judged(Call(transaction_id, "renewTransaction"), [])
                contents = await self._inner.contents(transaction_id)
                if judged.judge is not None:
                    await judged.judge.check_held([one.key for one in (*contents.writes, *contents.reads)])
            return await self._inner.renew(transaction_id, ttl_s)

        return await self._step("renewTransaction", transaction_id, work)

    async def abort(self, transaction_id: TransactionId, by: str | None = None) -> TransactionRecord:
        name = self._guard.principal.name
        return await self._step("abortTransaction", transaction_id, lambda: self._inner.abort(transaction_id, name))

    async def aborted_by(self, record: TransactionRecord) -> str | None:
        return await self._inner.aborted_by(record)

    async def report(
        self, transaction_id: TransactionId, report: JsonObject, sees: Sees = lambda pointer: True
    ) -> None:
        rights = (await self._guard.now(self._guard.catalog)).rights

        def visible(pointer: Pointer) -> bool:
            return rights.on_thing(pointer.identifier.namespace, scope_of(pointer)) is not None and sees(pointer)

        async def work() -> None:
            await self._mine(transaction_id)
            await self._inner.report(transaction_id, report, visible)

        await self._step("reportRun", transaction_id, work)

    async def _mine(self, transaction_id: TransactionId) -> TransactionRecord | None:
        record = await self._inner.load(transaction_id)
        if record is not None:
            await self._check_mine(record)
        return record

    async def prepare(self, call: Call) -> TransactionRecord:
        named: list[Need] = []

        async def work() -> TransactionRecord:
            return await self._inner.prepare(await self._judged(call, named))

        return await self._guard.noted(call, named, work)

    async def prepare_edits(
        self, call: Call, edits: Sequence[TableEdit], digest: Digest, *, key: TransactionId | None = None
    ) -> TransactionRecord:
        overlay, needs = self._inner.overlay(call.transaction_id), [_of_edit(one) for one in edits]
        check = EditCheck(self._guard, overlay, needs)
        check.edits = edits

        async def work() -> TransactionRecord:
            guarded = replace(await self._judged(call, []), guard=check)
            return await self._inner.prepare_edits(guarded, edits, digest, key=key)

        return await self._guard.noted(call, needs, work, None, check)

    async def commit(self, call: Call) -> Done:
        named: list[Need] = []

        async def work() -> Done:
            done = await self._inner.commit(await self._judged(call, named))
            await self._give(call)
            return done

        return await self._guard.noted(replace(call, operation="publishTransaction"), named, work)

    async def _give(self, call: Call) -> None:
        """Whoever has made something manages it. After the commit: grants of others at the same time must not get in
        the way of the tables. Once, however often the commit is asked for: it may have been taken away since."""
        guard, once = self._guard, derived_id(call.transaction_id, "gifts")
        try:
            record = await self._inner.load(call.transaction_id)
            writes = record.writes if record is not None else ()
            if made_by(NOTHING, writes):
                made = made_by((await guard.now(guard.catalog)).rights, writes)
                who = {"principal": guard.principal.name}
                giving = Call(once, "addGrant", keyed=True, source=who, warehouse=call.warehouse)
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

    async def _judged(self, call: Call, named: MutableSequence[Need]) -> Call:
        """The call, if the transaction is theirs and they may still do all that it does. What it changes is added to
        `named`, for the trail."""
        record = await self._inner.load(call.transaction_id)
        if record is None:
            return call
        await self._check_mine(record)
        if record.state in (State.ABORTED, State.FAILED):
            return call
        writes = record.writes or (await self._inner.contents(record.id)).writes
        named.extend(OnThing(one, Kind.TABLE, Role.WRITE) for one in tables_in(writes))
        is_owner = owner_of(record) == self._guard.principal.name
        return replace(call, judge=await publishing_rights(self._guard, writes, record.state, is_owner=is_owner))


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
                    places.check_published(pointer, base, after)


def _of_edit(edit: TableEdit) -> Need:
    creates = isinstance(edit.payload, Commit) and is_creation(edit.payload.requirements)
    match edit.target:
        case Identifier():
            if creates:
                return InNamespace(edit.target.namespace, Role.CREATE)
            return OnThing(edit.target, Kind.TABLE, Role.WRITE)
        case id:
            return OnId(Kind.TABLE, id, Role.WRITE)


def _only_own(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties that the server has set, without those that the client has given."""
    return {name: value for name, value in properties.items() if name in (PRINCIPAL, READ_ONLY, WAREHOUSE)}


def _not_yours(transaction_id: TransactionId, asking: Asking) -> Forbidden:
    return Forbidden(
        f"transaction {transaction_id} is not {asking.principal.name}'s; others need the role {Role.MANAGE.word} on "
        f"warehouse {asking.warehouse}"
    )

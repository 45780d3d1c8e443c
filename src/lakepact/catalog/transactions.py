"""Transactions over many statements: begun, looked at, published, given up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from lakepact.catalog.announced import ANNOUNCING
from lakepact.catalog.conditions import Mark
from lakepact.catalog.edits import Digest, TableEdit, guard_answer, guard_id, is_guard, other_changes
from lakepact.catalog.errors import AlreadyExists, BadRequest, CommitFailed, Refusal
from lakepact.catalog.lineage import witnessed
from lakepact.catalog.operations import Parts
from lakepact.catalog.overlay import (
    ABORTING,
    MARKING,
    NOTING,
    PRINCIPAL,
    READ_ONLY,
    WAREHOUSE,
    ClosedTransaction,
    Overlay,
    belongs_to,
    closed,
    warehouse_of,
)
from lakepact.catalog.publish import Publisher
from lakepact.catalog.runs import Sees, checked_report, report_bytes, report_name, run_facts, without_facts
from lakepact.catalog.warehouse import check_properties
from lakepact.catalog.work import Call, Done, Draft, key_reused
from lakepact.errors import InvalidTransactionId, KeyReused, LakepactError, TransactionNotFound, WrongState
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.identity import TransactionId, derived_id, first_id_of, parse_transaction_id, timestamp_ms
from lakepact.kernel.model import Isolation, State, Transaction, TransactionPage, TransactionRecord

_MOST_OVERLAYS: Final = 1_000
"""What is known of a transaction saves one look at its record. Most end soon, and nobody asks for them again."""

_FOR_ITSELF: Final = (NOTING, MARKING, ANNOUNCING, ABORTING)
"""Steps that the catalog takes on the way."""

_ATTEMPTS: Final = 3
_MOST_ROUNDS: Final = 20
"""Pages of the store that one page of a listing may take, where most of what is there is others'."""


class Transactions:
    """The open transactions of one warehouse."""

    def __init__(
        self,
        parts: Parts,
        *,
        mark: Mark,
        on_committed: Callable[[Transaction, Draft], Coroutine[Any, Any, None]],
    ) -> None:
        self._parts = parts
        self._publisher = Publisher(parts, mark=mark, on_committed=on_committed)
        self._overlays: OrderedDict[TransactionId, Overlay] = OrderedDict()

    def overlay(self, transaction_id: str) -> Overlay:
        """The catalog inside this transaction. Nothing is looked at yet."""
        parsed = parse_transaction_id(transaction_id)
        overlay = self._overlays.get(parsed)
        if overlay is None:
            overlay = self._overlays[parsed] = Overlay(self._parts, parsed)
            if len(self._overlays) > _MOST_OVERLAYS:
                self._overlays.popitem(last=False)
        else:
            self._overlays.move_to_end(parsed)
        return overlay

    async def begin(
        self,
        call: Call,
        *,
        ttl_s: float | None = None,
        isolation: Isolation = Isolation.SERIALIZABLE,
        properties: Mapping[str, str] | None = None,
        read_only: bool = False,
    ) -> TransactionRecord:
        given = dict(properties or {})
        check_properties(given)
        given[WAREHOUSE] = self._parts.warehouse.name
        if read_only:
            given[READ_ONLY] = "true"
        if principal := call.source.get("principal"):
            given[PRINCIPAL] = principal
        record = await self._parts.store.begin(
            call.transaction_id,
            request_hash=call.request_hash,
            ttl_s=ttl_s,
            isolation=isolation,
            properties=given,
        )
        # Most often the statements come here too.
        self.overlay(record.id).know(record)
        return record

    async def load(self, transaction_id: TransactionId) -> TransactionRecord | None:
        """The record, if it is of this warehouse."""
        record = await self._parts.store.lookup(transaction_id)
        return record if record is not None and belongs_to(record, self._parts.warehouse.name) else None

    async def contents(self, transaction_id: TransactionId) -> Transaction:
        """What is staged and read by now."""
        return await self._parts.store.contents(transaction_id)

    async def list(
        self,
        states: Iterable[State],
        after: str | None,
        limit: int,
        shows: Callable[[TransactionRecord], bool] = lambda record: True,
    ) -> TransactionPage:
        """Those of this warehouse that are to be shown. A page may be short and still have a successor.

        Others are stepped over, and where to go on tells of none of them: it is the id of the last one shown, or, where
        a request has looked at enough, a moment.
        """
        begin = None if after is None else _page_token(after)
        wanted, name, found = list(states), self._parts.warehouse.name, list[TransactionRecord]()
        cursor, looked = begin, 0
        while True:
            page = await self._parts.store.transactions(wanted, after=cursor, limit=limit)
            ours = (one for one in page.transactions if warehouse_of(one) == name and asked_for(one))
            found += (one for one in ours if shows(one))
            if len(found) > limit:
                return TransactionPage(tuple(found[:limit]), found[limit - 1].id)
            if page.after is None:
                return TransactionPage(tuple(found), None)
            cursor, looked = page.after, looked + 1
            moment = first_id_of(timestamp_ms(cursor))
            if looked >= _MOST_ROUNDS and (begin is None or moment > begin):
                return TransactionPage(tuple(found), max(moment, found[-1].id) if found else moment)

    async def renew(self, transaction_id: TransactionId, ttl_s: float | None) -> TransactionRecord:
        await self._check_here(transaction_id)
        try:
            return await self._parts.store.renew(transaction_id, ttl_s)
        except (WrongState, TransactionNotFound) as error:
            raise closed(transaction_id, await self._parts.store.lookup(transaction_id)) from error

    async def abort(self, transaction_id: TransactionId, by: str | None = None) -> TransactionRecord:
        """End it without applying anything. `by`: the principal who asked for it, to be shown with the transaction."""
        before = await self._check_here(transaction_id)
        try:
            record = await self._parts.store.abort(transaction_id)
        except (WrongState, TransactionNotFound) as error:
            raise closed(transaction_id, await self._parts.store.lookup(transaction_id)) from error
        # What it has cached is of no further use.
        self._overlays.pop(transaction_id, None)
        if by is not None and before.state is not State.ABORTED:
            answer = {"operation": ABORTING, "warehouse": self._parts.warehouse.name, "result": {}, "by": by}
            # The transaction is aborted. Its page can do without the name.
            with suppress(LakepactError):
                await self._parts.store.commit(Transaction(_abort_note(transaction_id), "", answer=answer))
        return record

    async def aborted_by(self, record: TransactionRecord) -> str | None:
        """The principal who aborted this transaction; None if it expired, or if nobody is known by name."""
        if record.state is not State.ABORTED:
            return None
        note = await self._parts.store.lookup(_abort_note(record.id))
        by = (note.answer or {}).get("by") if note is not None else None
        return by if isinstance(by, str) else None

    async def report(
        self, transaction_id: TransactionId, report: JsonObject, sees: Sees = lambda pointer: True
    ) -> None:
        """Store the report of a run, once: the same report again is accepted, another one is refused.

        `sees`: whether the author may see a table. The report can name others, and no page will show them.
        """
        record = await self._check_here(transaction_id)
        facts = await run_facts(self._parts, record, report, sees)
        name = report_name(transaction_id)
        data = report_bytes(checked_report(report, transaction_id, record.properties.get(PRINCIPAL), facts))
        if await self._parts.blobs.put(name, data):
            return
        stored = await self._parts.blobs.get(name)
        if stored is None or without_facts(stored) != without_facts(data):
            raise AlreadyExists(f"transaction {transaction_id} has another report already; it is written once")

    async def prepare(self, call: Call) -> TransactionRecord:
        await self._check_here(call.transaction_id)
        try:
            return await self._publisher.prepare(call)
        except Refusal:
            # It has failed for good.
            self._overlays.pop(call.transaction_id, None)
            raise

    async def prepare_edits(
        self, call: Call, edits: Sequence[TableEdit], digest: Digest, *, key: TransactionId | None = None
    ) -> TransactionRecord:
        """Stage these changes and prepare the transaction, once: the same ones again find it as it is by then.

        `digest` tells one list of changes from another. Under a `key` a refusal of the changes is kept. Changes that
        conflict with what is there end the transaction, as a conflict at the commit does; any other refusal leaves it
        open.
        """
        for attempt in range(_ATTEMPTS):
            record = await self.load(call.transaction_id)
            if record is None or record.state is State.ABORTED:
                raise closed(call.transaction_id, record)
            if key is not None and attempt == 0:
                await self._take_key(call, key, digest)
            guard = await self._parts.store.lookup(guard_id(record.id))
            if guard is not None and guard.request_hash != digest:
                raise other_changes(record.id)
            if record.state is State.OPEN:
                try:
                    await self._stage_edits(call, edits, digest, key)
                except ClosedTransaction:
                    # The same request, sent twice, may have come this far meanwhile. Then this one follows it.
                    if attempt == _ATTEMPTS - 1:
                        raise
                    continue
            elif guard is None:
                raise closed(record.id, record)
            elif record.state.final:
                return record
            break
        return await self._publisher.prepare(call)

    async def _take_key(self, call: Call, key: TransactionId, digest: Digest) -> None:
        """Bind the key to this transaction and these changes. Raises `KeyReused` if it was used for others."""
        used = derived_id(key, "prepare")
        hashed = f"{call.transaction_id} {digest}"
        answer = guard_answer(call.transaction_id, call.operation, call.warehouse)
        try:
            await self._parts.store.commit(Transaction(used, hashed, answer=answer))
        except KeyReused:
            raise key_reused(key) from None

    async def _stage_edits(
        self, call: Call, edits: Sequence[TableEdit], digest: Digest, key: TransactionId | None
    ) -> None:
        staging = Call(
            key or self._parts.new_id(),
            call.operation,
            key is not None,
            digest,
            call.source,
            call.warehouse,
            call.guard,
            input_bytes=call.input_bytes,
            give_up_s=call.give_up_s,
        )
        try:
            await self.overlay(call.transaction_id).edit_tables(staging, edits, digest)
        except CommitFailed as refusal:
            await self._remember(call, digest)
            await self._publisher.refuse(call, refusal)
            raise
        # Before anything of it is held: from then on the transaction knows nothing of the digest.
        await self._remember(call, digest)

    async def _remember(self, call: Call, digest: Digest) -> None:
        answer = guard_answer(call.transaction_id, call.operation, call.warehouse)
        await self._parts.store.commit(Transaction(guard_id(call.transaction_id), digest, answer=answer))

    async def commit(self, call: Call) -> Done:
        record = await self._check_here(call.transaction_id)
        if not record.state.final:
            call = replace(call, source=await witnessed(self._parts, record, call.source, call.judge))
        try:
            committed = await self._parts.measured(self._publisher.commit(call, record))
        except Refusal:
            # It has failed for good.
            self._overlays.pop(call.transaction_id, None)
            raise
        # What its overlay has cached is of no further use.
        self._overlays.pop(call.transaction_id, None)
        return committed

    async def _check_here(self, transaction_id: TransactionId) -> TransactionRecord:
        record = await self.load(transaction_id)
        if record is None:
            raise closed(transaction_id, None)
        return record


def _abort_note(transaction_id: TransactionId) -> TransactionId:
    return derived_id(transaction_id, "abort")


def _page_token(text: str) -> TransactionId:
    try:
        return parse_transaction_id(text)
    except InvalidTransactionId:
        raise BadRequest("the page token is none that this server gave; begin again without one") from None


def asked_for(record: TransactionRecord) -> bool:
    """Whether somebody has asked for this, and it is not a step that the catalog takes on the way."""
    return not is_guard(record) and (record.answer or {}).get("operation") not in _FOR_ITSELF

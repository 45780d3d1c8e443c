"""Transactions over many statements: begun, looked at, published, given up."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from lakepact.catalog.errors import BadRequest
from lakepact.catalog.operations import Parts
from lakepact.catalog.overlay import READ_ONLY, Overlay, closed
from lakepact.catalog.publish import Mark, Publisher
from lakepact.catalog.work import Call, Done, Draft
from lakepact.errors import TransactionNotFound, WrongState
from lakepact.kernel.identity import TransactionId, parse_transaction_id
from lakepact.kernel.model import Isolation, State, Transaction, TransactionPage, TransactionRecord

WAREHOUSE: Final = "lakepact.warehouse"
"""The property that says which warehouse a transaction belongs to."""

_MOST_OVERLAYS: Final = 10_000


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
        found = self._overlays.get(parsed)
        if found is None:
            found = self._overlays[parsed] = Overlay(self._parts, parsed)
            if len(self._overlays) > _MOST_OVERLAYS:
                self._overlays.popitem(last=False)
        return found

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
        reserved = [name for name in given if name.lower().startswith("lakepact.")]
        if reserved:
            raise BadRequest(f"properties that begin with 'lakepact.' are reserved: {', '.join(sorted(reserved)[:5])}")
        given[WAREHOUSE] = self._parts.warehouse.name
        if read_only:
            given[READ_ONLY] = "true"
        return await self._parts.store.begin(
            call.transaction_id,
            request_hash=call.request_hash,
            ttl_s=ttl_s,
            isolation=isolation,
            properties=given,
        )

    async def load(self, transaction_id: TransactionId) -> TransactionRecord | None:
        """The record, if it is of this warehouse."""
        record = await self._parts.store.lookup(transaction_id)
        return record if record is not None and belongs_to(record, self._parts.warehouse.name) else None

    async def contents(self, transaction_id: TransactionId) -> Transaction:
        """What is staged and read by now."""
        return await self._parts.store.contents(transaction_id)

    async def list(self, states: Iterable[State], after: str | None, limit: int) -> TransactionPage:
        """Those of this warehouse. A page may be short and still have a successor."""
        page = await self._parts.store.transactions(states, after=after, limit=limit)
        name = self._parts.warehouse.name
        return TransactionPage(tuple(one for one in page.transactions if belongs_to(one, name)), page.after)

    async def renew(self, transaction_id: TransactionId, ttl_s: float | None) -> TransactionRecord:
        await self._check_here(transaction_id)
        try:
            return await self._parts.store.renew(transaction_id, ttl_s)
        except (WrongState, TransactionNotFound) as error:
            raise closed(transaction_id, await self._parts.store.lookup(transaction_id)) from error

    async def abort(self, transaction_id: TransactionId) -> TransactionRecord:
        await self._check_here(transaction_id)
        try:
            return await self._parts.store.abort(transaction_id)
        except (WrongState, TransactionNotFound) as error:
            raise closed(transaction_id, await self._parts.store.lookup(transaction_id)) from error

    async def prepare(self, call: Call) -> TransactionRecord:
        await self._check_here(call.transaction_id)
        return await self._publisher.prepare(call)

    async def commit(self, call: Call) -> Done:
        await self._check_here(call.transaction_id)
        return await self._publisher.commit(call)

    async def _check_here(self, transaction_id: TransactionId) -> None:
        if await self.load(transaction_id) is None:
            raise closed(transaction_id, None)


def belongs_to(record: TransactionRecord, warehouse: str) -> bool:
    """A transaction stays in one warehouse: it says which, or its cells do."""
    if WAREHOUSE in record.properties:
        return record.properties[WAREHOUSE] == warehouse
    return all(write.key.startswith(f"{warehouse}/") for write in record.writes)

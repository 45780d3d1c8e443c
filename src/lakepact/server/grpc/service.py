"""The six calls, each a few words of the catalog's. They raise to refuse; what that looks like is `status`'s.

A conflict is no error but an answer: the transaction has come to its end, and the answer says which one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from lakepact.access import Principal
from lakepact.catalog import Call, Catalog
from lakepact.catalog.errors import AnswerLost, Refusal
from lakepact.catalog.overlay import ClosedTransaction
from lakepact.catalog.sight import seen_by
from lakepact.catalog.trail import Trail
from lakepact.errors import LakepactError
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.model import State, TransactionRecord
from lakepact.limits import LARGE_INPUT_BYTES
from lakepact.runtime import off_loop
from lakepact.server.grpc import requests
from lakepact.server.grpc.answers import state_of, transaction_of
from lakepact.server.rest.door import catalog_named, default_warehouse
from lakepact.server.rest.errors import NoSuchTransaction
from lakepact.v1 import transactions_pb2 as pb

P = ParamSpec("P")
T = TypeVar("T")

SERVICE: Final = pb.DESCRIPTOR.services_by_name["Transactions"].full_name

Handler: TypeAlias = Callable[[Any, JsonObject, Principal, float | None], Awaitable[Any]]
"""From a message, what sent it, who did, and when the server gives the call up (`Call.give_up_s`), to the response."""


class TransactionsService:
    def __init__(self, catalogs: Mapping[str, Catalog], default: str, trail: Trail | None = None) -> None:
        self._catalogs = catalogs
        self._default = default
        self._trail = trail or Trail()

    def handlers(self) -> dict[str, Handler]:
        """By the names that the proto file gives them."""
        return {
            "BeginTransaction": self._begin,
            "PrepareTransaction": self._prepare,
            "CommitTransaction": self._commit,
            "AbortTransaction": self._abort,
            "GetTransaction": self._get,
            "ListTransactions": self._list,
        }

    async def _begin(
        self, request: pb.BeginTransactionRequest, source: JsonObject, who: Principal, give_up_s: float | None
    ) -> pb.BeginTransactionResponse:
        catalog = self._catalog(request.warehouse, who)
        key = requests.key_of(request.idempotency_key)
        name = catalog.warehouse.name
        hashed = requests.begin_hash(request, name, who.name) if key is not None else ""
        call = Call(key or catalog.new_id(), "beginTransaction", key is not None, hashed, source, name)
        record = await catalog.transactions.begin(
            call,
            ttl_s=requests.ttl_of(request),
            isolation=requests.isolation_of(request.isolation),
            properties=dict(request.properties),
            read_only=request.read_only,
        )
        return pb.BeginTransactionResponse(transaction=transaction_of(record, name))

    async def _prepare(
        self, request: pb.PrepareTransactionRequest, source: JsonObject, who: Principal, give_up_s: float | None
    ) -> pb.PrepareTransactionResponse:
        catalog, record = await self._asked(request, who)
        key = requests.key_of(request.idempotency_key)
        size = request.ByteSize()
        call = replace(_call(catalog, record.id, "prepareTransaction", source, give_up_s), input_bytes=size)
        edits = await _computed(size, requests.edits_of, request.changes)
        try:
            if edits:
                digest = await _computed(size, requests.digest_of, request.changes, catalog.warehouse.name)
                await catalog.transactions.prepare_edits(call, edits, digest, key=key)
            else:
                await catalog.transactions.prepare(call)
        except Refusal as refusal:
            await _check_ended(catalog, record.id, refusal)
        return pb.PrepareTransactionResponse(transaction=await _shown(catalog, record.id))

    async def _commit(
        self, request: pb.CommitTransactionRequest, source: JsonObject, who: Principal, give_up_s: float | None
    ) -> pb.CommitTransactionResponse:
        requests.key_of(request.idempotency_key)
        catalog, record = await self._asked(request, who)
        if record.state in (State.OPEN, State.PREPARED):
            await _refuse_empty(catalog, record)
        try:
            done = await catalog.transactions.commit(_call(catalog, record.id, "commitTransaction", source, give_up_s))
        except Refusal as refusal:
            await _check_ended(catalog, record.id, refusal)
            return pb.CommitTransactionResponse(transaction=await _shown(catalog, record.id))
        try:
            return pb.CommitTransactionResponse(transaction=await _shown(catalog, record.id))
        except LakepactError as error:
            # Whatever it is, it must not sound as if nothing had happened.
            raise AnswerLost(done.transaction_id, error) from error

    async def _abort(
        self, request: pb.AbortTransactionRequest, source: JsonObject, who: Principal, give_up_s: float | None
    ) -> pb.AbortTransactionResponse:
        catalog, record = await self._asked(request, who)
        await catalog.transactions.abort(record.id)
        return pb.AbortTransactionResponse(transaction=await _shown(catalog, record.id))

    async def _get(
        self, request: pb.GetTransactionRequest, source: JsonObject, who: Principal, give_up_s: float | None
    ) -> pb.GetTransactionResponse:
        catalog, record = await self._asked(request, who)
        return pb.GetTransactionResponse(transaction=await _shown(catalog, record.id))

    async def _list(
        self, request: pb.ListTransactionsRequest, source: JsonObject, who: Principal, give_up_s: float | None
    ) -> pb.ListTransactionsResponse:
        catalog = self._catalog(request.warehouse, who)
        states, size = requests.states_of(request.states), requests.page_size_of(request.page_size)
        page = await catalog.transactions.list(
            states, request.page_token or None, size, lambda record: not states or state_of(record) in request.states
        )
        shown = [transaction_of(record, catalog.warehouse.name) for record in page.transactions]
        return pb.ListTransactionsResponse(transactions=shown, next_page_token=page.after or "")

    # --- which one ---

    def _catalog(self, warehouse: str, who: Principal) -> Catalog:
        name = warehouse or default_warehouse(self._catalogs, self._default, who)
        return seen_by(catalog_named(self._catalogs, name, who), who, self._trail)

    async def _asked(self, request: Any, who: Principal) -> tuple[Catalog, TransactionRecord]:
        catalog = self._catalog(request.warehouse, who)
        return catalog, await _record(catalog, requests.transaction_id_of(request.transaction_id))


async def _record(catalog: Catalog, transaction_id: TransactionId) -> TransactionRecord:
    record = await catalog.transactions.load(transaction_id)
    if record is None:
        raise NoSuchTransaction(
            f"there is no transaction {transaction_id} in warehouse {catalog.warehouse.name}. If it was sent and is "
            f"not here, it did not happen, or it is older than the key horizon"
        )
    return record


async def _shown(catalog: Catalog, transaction_id: TransactionId) -> pb.Transaction:
    record = await _record(catalog, transaction_id)
    contents = await catalog.transactions.contents(transaction_id)
    if record.state is State.OPEN:
        # Document stores say in the log that it is sealed, and not in the record.
        record = replace(record, sealed=contents.sealed)
    return transaction_of(record, catalog.warehouse.name, contents.writes)


async def _check_ended(catalog: Catalog, transaction_id: TransactionId, refusal: Refusal) -> None:
    """A refusal that is the transaction's own end is an answer. Any other is raised."""
    record = await catalog.transactions.load(transaction_id)
    if record is None or record.state is not State.FAILED:
        raise refusal


async def _refuse_empty(catalog: Catalog, record: TransactionRecord) -> None:
    """Refuse to commit nothing, prepared or not: the client has probably forgotten its changes."""
    contents = await catalog.transactions.contents(record.id)
    if not contents.writes and not contents.reads:
        raise ClosedTransaction(
            f"nothing has been staged in transaction {record.id}; prepare it with its changes first, or abort it"
        )


async def _computed(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function makes of a message: in a worker thread if the message is large."""
    return function(*args, **kwargs) if size <= LARGE_INPUT_BYTES else await off_loop(function, *args, **kwargs)


def _call(
    catalog: Catalog, transaction_id: TransactionId, operation: str, source: JsonObject, give_up_s: float | None
) -> Call:
    return Call(transaction_id, operation, source=source, warehouse=catalog.warehouse.name, give_up_s=give_up_s)

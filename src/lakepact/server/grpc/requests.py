"""What a message asks for, checked once, as the catalog's values. Everything wrong with it names its field."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final

from lakepact.bounded_input import parse_request
from lakepact.catalog.edits import Digest, DocumentAt, NewDocument, TableEdit
from lakepact.catalog.idempotency import request_hash
from lakepact.errors import InvalidRequest
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.requests import Commit, Identifier, parse_commit_table
from lakepact.kernel.identity import TransactionId, parse_transaction_id
from lakepact.kernel.model import Isolation, State
from lakepact.limits import check_name, check_namespace
from lakepact.v1 import transactions_pb2 as pb

STATES: Final[dict[State, pb.TransactionState]] = {
    State.OPEN: pb.TS_OPEN,
    # Somebody is taking its locks right now. Nothing is visible, and to commit it again is right: as for an open one.
    State.PREPARING: pb.TS_OPEN,
    State.PREPARED: pb.TS_PREPARED,
    State.COMMITTED: pb.TS_APPLIED,
    State.ABORTED: pb.TS_ABORTED,
    State.FAILED: pb.TS_APPLY_FAILED_CONFLICT,
    State.RETRYABLE: pb.TS_APPLY_FAILED_RETRYABLE,
}
ISOLATIONS: Final[dict[Isolation, pb.Isolation]] = {
    Isolation.SERIALIZABLE: pb.ISOLATION_SERIALIZABLE,
    Isolation.SNAPSHOT: pb.ISOLATION_SNAPSHOT,
}

_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Transactions"].full_name
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MOST_PAGE: Final = 1_000


class BadField(InvalidRequest):
    """A field of a message cannot be what it is."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


def transaction_id_of(text: str, field: str = "transaction_id") -> TransactionId:
    try:
        return parse_transaction_id(text)
    except InvalidRequest as error:
        raise BadField(field, str(error)) from None


def key_of(text: str) -> TransactionId | None:
    return transaction_id_of(text, "idempotency_key") if text else None


def ttl_of(request: pb.BeginTransactionRequest) -> float | None:
    if not request.HasField("ttl"):
        return None
    seconds: float = request.ttl.seconds + request.ttl.nanos / 1e9
    if seconds <= 0:
        raise BadField("ttl", "must be more than nothing; leave it out for the server's default")
    return seconds


def isolation_of(asked: pb.Isolation) -> Isolation:
    if asked == pb.ISOLATION_UNSPECIFIED:
        return Isolation.SERIALIZABLE
    for isolation, name in ISOLATIONS.items():
        if name == asked:
            return isolation
    raise BadField("isolation", f"there is no isolation {int(asked)}")


def states_of(asked: Sequence[pb.TransactionState]) -> list[State]:
    for number, one in enumerate(asked):
        if one not in STATES.values():
            raise BadField(f"states[{number}]", f"there is no state {int(one)}")
    states = [state for state, name in STATES.items() if name in asked]
    if State.RETRYABLE in states and State.OPEN not in states:
        # On SQL stores some of those are open, and sealed.
        states.append(State.OPEN)
    return states


def page_size_of(asked: int) -> int:
    if not 0 <= asked <= _MOST_PAGE:
        raise BadField("page_size", f"is from 1 to {_MOST_PAGE}, or 0 for 100")
    return asked or 100


def begin_hash(request: pb.BeginTransactionRequest, warehouse: str, principal: str | None) -> str:
    """What tells two requests to begin under one key apart: also who sends them."""
    body = {
        "ttl": ttl_of(request),
        "isolation": isolation_of(request.isolation),
        "read-only": request.read_only,
        "properties": dict(request.properties),
    }
    return _hash("BeginTransaction", warehouse, principal, body)


# --- changes ---


def edits_of(changes: Sequence[pb.TxChange]) -> list[TableEdit]:
    return [_edit(change, f"changes[{number}]") for number, change in enumerate(changes)]


def digest_of(changes: Sequence[pb.TxChange], warehouse: str) -> Digest:
    """What tells one list of changes from another. Their order means nothing."""
    # Whose they are is asked of the transaction: who manages the warehouse may send an owner's changes again.
    return _hash("PrepareTransaction", warehouse, None, sorted(map(_fingerprint, changes)))


def _edit(change: pb.TxChange, where: str) -> TableEdit:
    expected = change.precondition.expected_version if change.HasField("precondition") else None
    return TableEdit(_target(change, where), _payload(change, where), expected)


def _target(change: pb.TxChange, where: str) -> Identifier | str:
    match change.WhichOneof("target"):
        case "table_id":
            uuid = change.table_id.lower()
            if not _UUID.fullmatch(uuid):
                raise BadField(f"{where}.table_id", "is not a uuid")
            return uuid
        case "table":
            if not change.table.name:
                raise BadField(f"{where}.table.name", "is empty")
            if not change.table.namespace or not all(change.table.namespace):
                raise BadField(f"{where}.table.namespace", "is empty, or a level of it is")
            check_namespace(change.table.namespace, f"{where}.table.namespace")
            check_name(change.table.name, f"{where}.table.name")
            return Identifier(tuple(change.table.namespace), change.table.name)
        case _:
            raise BadField(where, "has no target; set table_id or table")


def _payload(change: pb.TxChange, where: str) -> Commit | NewDocument | DocumentAt:
    match change.WhichOneof("payload"):
        case "table_change":
            return _commit(change, f"{where}.table_change.commit_json")
        case "metadata_document":
            return NewDocument(change.metadata_document)
        case "intended_blob_uri":
            if not change.intended_blob_uri:
                raise BadField(f"{where}.intended_blob_uri", "is empty")
            return DocumentAt(change.intended_blob_uri)
        case _:
            raise BadField(where, "has no payload; set table_change, metadata_document or intended_blob_uri")


def _commit(change: pb.TxChange, where: str) -> Commit:
    try:
        commit = parse_commit_table(parse_request(change.table_change.commit_json))
    except (ValueError, RecursionError, InvalidRequest) as error:
        raise BadField(where, str(error)) from None
    named = commit.identifier
    if named is not None and change.WhichOneof("target") == "table":
        target = Identifier(tuple(change.table.namespace), change.table.name)
        if named != target:
            raise BadField(where, "its identifier names another table than the change; leave it out")
    return commit


def _fingerprint(change: pb.TxChange) -> str:
    """Of the bytes as they came: what is sent again is the same bytes."""
    return hashlib.sha256(change.SerializeToString(deterministic=True)).hexdigest()


def _hash(method: str, warehouse: str, principal: str | None, body: JsonObject | list[str]) -> str:
    scope = {"warehouse": warehouse, "transaction": None, "principal": principal}
    return request_hash(scope=scope, method="GRPC", path=[_SERVICE, method], query={}, body=body)

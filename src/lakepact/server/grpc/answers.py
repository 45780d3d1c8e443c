"""Records as messages: a transaction, and an intent for each cell that it changes or that kept it from doing so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from google.protobuf.timestamp_pb2 import Timestamp

from lakepact.catalog.keys import CHANGEABLE, family_of, levels_of
from lakepact.catalog.overlay import READ_ONLY, WAREHOUSE
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.keys import Key, segments_of
from lakepact.kernel.model import State, TransactionRecord, Write
from lakepact.server.grpc.requests import ISOLATIONS, STATES
from lakepact.v1 import transactions_pb2 as pb

_OWN: Final = (WAREHOUSE, READ_ONLY)
_SHOWN: Final = CHANGEABLE | {"state", "names"}
_POINTERS: Final = ("tables", "views", "delta")
_BUSY: Final = {
    "type": "SlowDownException",
    "message": "its prepare or its commit did not get through: another transaction held a table, or the store did not "
    "answer. Nothing was applied, and nothing is held. Send it again, or abort it",
}
_EXPIRED: Final = {
    "type": "TransactionExpiredException",
    "message": "it was neither committed nor renewed in time. Nothing was applied. Begin a new transaction",
}


def state_of(record: TransactionRecord) -> pb.TransactionState:
    """The state of a transaction, the same whatever store keeps it.

    SQL stores leave a transaction open if its prepare or commit meets a table that is held; it takes no more changes.
    Document stores call it retryable.
    """
    return STATES[State.RETRYABLE if record.state is State.OPEN and record.sealed else record.state]


def transaction_of(record: TransactionRecord, warehouse: str, writes: Iterable[Write] = ()) -> pb.Transaction:
    error: Mapping[str, Any] = {}
    state = state_of(record)
    if state == pb.TS_APPLY_FAILED_RETRYABLE:
        error = _BUSY
    elif record.expired:
        error = _EXPIRED
    elif record.state is State.FAILED:
        error = (record.answer or {}).get("error") or {"type": "Conflict", "message": "a table has moved"}
    return pb.Transaction(
        transaction_id=record.id,
        warehouse=warehouse,
        state=state,
        isolation=ISOLATIONS[record.isolation],
        read_only=record.properties.get(READ_ONLY) == "true",
        properties={name: value for name, value in record.properties.items() if name not in _OWN},
        create_time=_time(record.created_ms),
        expire_time=_time(None if record.state.final else record.expires_ms),
        decide_time=_time(record.decided_ms),
        intents=_intents(writes, error),
        apply_error_code=error.get("type", ""),
        apply_error_message=error.get("message", ""),
    )


def _intents(writes: Iterable[Write], error: Mapping[str, Any]) -> list[pb.TransactionIntent]:
    intents = {write.key: _intent(write) for write in writes if family_of(write.key) in _SHOWN}
    for conflict in error.get("conflicts") or ():
        intent = intents.setdefault(conflict["cell"], _missing(conflict))
        intent.apply_error_code = "version"
        intent.apply_error_message = f"at version {conflict['actual']}, planned on {conflict['expected']}"
        intent.apply_error_expected, intent.apply_error_actual = str(conflict["expected"]), str(conflict["actual"])
    for failure in error.get("failed-requirements") or ():
        intent = _of_table(intents, failure)
        if intent.apply_error_code:
            # The first one says enough about a table.
            continue
        intent.apply_error_code = "requirement"
        intent.apply_error_message = orjson.dumps(failure["requirement"]).decode()
        intent.apply_error_expected = orjson.dumps(failure["expected"]).decode()
        intent.apply_error_actual = orjson.dumps(failure["actual"]).decode()
    return list(intents.values())


def _intent(write: Write) -> pb.TransactionIntent:
    intent = pb.TransactionIntent(target=write.key, expected_version=write.revision)
    if family_of(write.key) == "names":
        _, _, path, name = segments_of(write.key)
        intent.table.CopyFrom(pb.TablePath(namespace=levels_of(path), name=name))
        if write.value is not None:
            intent.table_id = str(write.value["id"])
    elif family_of(write.key) in _POINTERS:
        intent.table_id = segments_of(write.key)[-1]
        if write.value is not None:
            intent.table.CopyFrom(pb.TablePath(namespace=write.value["namespace"], name=write.value["name"]))
            intent.new_blob_uri = write.value["metadata-location"]
    return intent


def _missing(conflict: JsonObject) -> pb.TransactionIntent:
    """Of a cell that was only read, or that a change never came to."""
    key: Key = conflict["cell"]
    intent = pb.TransactionIntent(target=key, expected_version=conflict["expected"])
    if family_of(key) in _POINTERS:
        intent.table_id = segments_of(key)[-1]
    if "identifier" in conflict:
        intent.table.CopyFrom(_path(conflict["identifier"]))
    return intent


def _of_table(intents: dict[Key, pb.TransactionIntent], failure: JsonObject) -> pb.TransactionIntent:
    path = _path(failure["identifier"])
    for intent in intents.values():
        if intent.table == path:
            return intent
    made = pb.TransactionIntent(table=path)
    # Nothing was staged for it, so there is no cell to name.
    intents[Key(".".join((*path.namespace, path.name)))] = made
    return made


def _path(identifier: JsonObject) -> pb.TablePath:
    return pb.TablePath(namespace=identifier["namespace"], name=identifier["name"])


def _time(milliseconds: int | None) -> Timestamp | None:
    if milliseconds is None:
        return None
    return Timestamp(seconds=milliseconds // 1000, nanos=milliseconds % 1000 * 1_000_000)

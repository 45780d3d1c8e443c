"""What became of a transaction: this settles an unknown outcome."""

from __future__ import annotations

from lakepact.catalog import Catalog
from lakepact.iceberg.fields import JsonObject
from lakepact.kernel.identity import parse_transaction_id
from lakepact.kernel.keys import segments_of
from lakepact.kernel.model import TransactionRecord, Write
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.door import Door
from lakepact.server.rest.errors import NoSuchTransaction


class TransactionHandlers:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def show(self, request: Request) -> Response:
        catalog = self._door.catalog(request)
        transaction_id = parse_transaction_id(request.params["transaction"])
        record = await catalog.transaction(transaction_id)
        if record is None or not _belongs(record, catalog):
            raise NoSuchTransaction(
                f"there is no transaction {transaction_id} in warehouse {catalog.warehouse.name}. If it was sent "
                f"and is not here, it did not happen, or it is older than the key horizon"
            )
        return json_response(_shown(record))


def _belongs(record: TransactionRecord, catalog: Catalog) -> bool:
    return all(segments_of(write.key)[0] == catalog.warehouse.name for write in record.writes)


def _shown(record: TransactionRecord) -> JsonObject:
    answer = record.answer or {}
    shown: JsonObject = {
        "transaction-id": record.id,
        "state": record.state,
        "operation": answer.get("operation"),
        "created-ms": record.created_ms,
        "decided-ms": record.decided_ms,
        "expires-ms": record.expires_ms,
        "changes": [_change(write) for write in record.writes],
    }
    for name in ("result", "error"):
        if name in answer:
            shown[name] = answer[name]
    return shown


def _change(write: Write) -> JsonObject:
    change: JsonObject = {"cell": write.key, "revision": write.revision + 1}
    value = write.value or {}
    if "metadata-location" in value:
        change |= {
            "identifier": {"namespace": value["namespace"], "name": value["name"]},
            "metadata-location": value["metadata-location"],
        }
    return change

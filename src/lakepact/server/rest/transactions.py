"""Transactions over REST: begun, looked at, listed, prepared, committed, aborted, renewed; and documents in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lakepact.catalog import Call, Catalog
from lakepact.catalog.guarded_transactions import owner_of
from lakepact.catalog.keys import INSIDE_ONLY, family_of
from lakepact.catalog.overlay import PRINCIPAL, READ_ONLY, WAREHOUSE
from lakepact.errors import InvalidRequest
from lakepact.iceberg.errors import Malformed
from lakepact.iceberg.fields import JsonObject, boolean, int64, json_object, optional_text, text_map
from lakepact.kernel.identity import TransactionId, first_id_of, parse_transaction_id
from lakepact.kernel.model import Isolation, Read, State, Transaction, TransactionRecord, Write
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.answers import transaction_header
from lakepact.server.rest.door import Door, number, page_of
from lakepact.server.rest.errors import NoSuchState, NoSuchTransaction

_OWN = (WAREHOUSE, READ_ONLY, PRINCIPAL)
_OWN_KINDS = ("admin", "grpc", "unknown")
"""How changes came about that nobody has sent over REST."""


class TransactionHandlers:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def begin(self, request: Request) -> Response:
        catalog = self._door.catalog(request)
        body = _with_only(request, "begin", "ttl-seconds", "isolation", "properties", "read-only")
        call = self._door.call(request, "beginTransaction", catalog, body)
        record = await catalog.transactions.begin(
            call,
            ttl_s=_seconds(body, "ttl-seconds"),
            isolation=_isolation(body),
            properties=text_map(body, "properties", "begin") if body.get("properties") is not None else {},
            read_only=body.get("read-only") is not None and boolean(body, "read-only", "begin"),
        )
        return json_response(_shown(record, catalog))

    async def show(self, request: Request) -> Response:
        catalog, transaction_id = self._asked(request)
        record = await self._record(catalog, transaction_id)
        contents = await catalog.transactions.contents(transaction_id)
        return json_response({**_shown(record, catalog), "changes": _changes(contents), **_outcome(record)})

    async def list(self, request: Request) -> Response:
        catalog = self._door.catalog(request)
        token, size = page_of(request)
        since_ms = number(request, "since")
        begin = token or (None if since_ms is None else first_id_of(since_ms))
        page = await catalog.transactions.list(_states(request), begin, size or 100)
        shown = [_shown(record, catalog) for record in page.transactions]
        return json_response({"transactions": shown, "next-page-token": page.after})

    async def prepare(self, request: Request) -> Response:
        catalog, transaction_id = self._asked(request)
        call = self._call(request, "prepareTransaction", catalog, transaction_id)
        return json_response(_shown(await catalog.transactions.prepare(call), catalog))

    async def commit(self, request: Request) -> Response:
        catalog, transaction_id = self._asked(request)
        body = json_object(request.json(), "commit") if request.body else {}
        call = self._call(request, "commitTransaction", catalog, transaction_id, _source(body))
        done = await catalog.transactions.commit(call)
        answer = {"transaction-id": done.transaction_id, "state": State.COMMITTED, **done.result}
        return json_response(answer, headers=transaction_header(done))

    async def abort(self, request: Request) -> Response:
        catalog, transaction_id = self._asked(request)
        return json_response(_shown(await catalog.transactions.abort(transaction_id), catalog))

    async def renew(self, request: Request) -> Response:
        catalog, transaction_id = self._asked(request)
        body = _with_only(request, "renew", "ttl-seconds")
        return json_response(
            _shown(await catalog.transactions.renew(transaction_id, _seconds(body, "ttl-seconds")), catalog)
        )

    async def report(self, request: Request) -> Response:
        """What a pipeline tells of its run, kept beside the receipts for people to read."""
        catalog, transaction_id = self._asked(request)
        await self._record(catalog, transaction_id)
        await catalog.transactions.report(transaction_id, json_object(request.json(), "report"))
        return Response(204)

    # --- users' documents ---

    async def load_state(self, request: Request) -> Response:
        """Outside of a transaction, as it is."""
        scope, name = self._door.scope(request), request.params["name"]
        cell = await scope.load_state(name)
        if cell.value is None:
            raise NoSuchState(f"there is no document {name!r}")
        return json_response({"name": name, "revision": cell.revision, "value": cell.value["value"]})

    async def load_state_in(self, request: Request) -> Response:
        catalog, transaction_id = self._asked(request)
        name = request.params["name"]
        cell = await catalog.transactions.overlay(transaction_id).load_state(name)
        value = None if cell.value is None else cell.value["value"]
        return json_response({"name": name, "revision": cell.revision, "value": value})

    async def put_state(self, request: Request) -> Response:
        catalog, transaction_id = self._asked(request)
        body = json_object(request.json(), "put state")
        revision = None if body.get("revision") is None else int64(body, "revision", "put state")
        value = None if body.get("value") is None else json_object(body["value"], "put state: 'value'")
        overlay = catalog.transactions.overlay(transaction_id)
        call = self._door.call(request, "putState", overlay, body)
        return json_response((await overlay.put_state(call, request.params["name"], value, revision)).result)

    # --- which transaction ---

    def _asked(self, request: Request) -> tuple[Catalog, TransactionId]:
        catalog = self._door.catalog(request)
        inside = self._door.transaction(request)
        transaction_id = parse_transaction_id(request.params["transaction"])
        if inside is not None and parse_transaction_id(inside) != transaction_id:
            raise InvalidRequest(f"the request is inside transaction {inside}, and asks about {transaction_id}")
        return catalog, transaction_id

    async def _record(self, catalog: Catalog, transaction_id: TransactionId) -> TransactionRecord:
        record = await catalog.transactions.load(transaction_id)
        if record is None:
            raise NoSuchTransaction(
                f"there is no transaction {transaction_id} in warehouse {catalog.warehouse.name}. If it was sent and "
                f"is not here, it did not happen, or it is older than the key horizon"
            )
        return record

    def _call(
        self,
        request: Request,
        operation: str,
        catalog: Catalog,
        transaction_id: TransactionId,
        source: JsonObject | None = None,
    ) -> Call:
        sent = self._door.call(request, operation, catalog)
        sender = sent.source
        # The committer's own words, but for who it is. What the server has to say of them comes later.
        said = {**sender, **(source or {}), "principal": sender["principal"]}
        return Call(transaction_id, operation, source=said, warehouse=catalog.warehouse.name, give_up_s=sent.give_up_s)


def _with_only(request: Request, what: str, *fields: str) -> JsonObject:
    """The body. What it asks for beside these would not be done, and whoever asks for it is told."""
    body = json_object(request.json(), what) if request.body else {}
    for name in body:
        if name not in fields:
            raise Malformed(f"{what}: there is no field {name[:40]!r}; there is {', '.join(fields)}")
    return body


def _seconds(body: JsonObject, name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"{name} is a number of seconds, not {value!r}")
    return float(value)


def _isolation(body: JsonObject) -> Isolation:
    asked = optional_text(body, "isolation", "begin") or Isolation.SERIALIZABLE
    if asked not in list(Isolation):
        raise Malformed(f"isolation is {' or '.join(Isolation)}, not {asked[:40]!r}")
    return Isolation(asked)


def _states(request: Request) -> list[State]:
    asked = [one for one in request.query.get("state", "").split(",") if one]
    unknown = [one for one in asked if one not in list(State)]
    if unknown:
        raise InvalidRequest(f"state is one of {', '.join(State)}, not {unknown[0][:40]!r}")
    return [State(one) for one in asked]


def _source(body: JsonObject) -> JsonObject:
    """Who commits, for the receipts, in the committer's own words."""
    if body.get("source") is None:
        return {}
    source = json_object(body["source"], "commit: 'source'")
    kind = optional_text(source, "kind", "commit: 'source'")
    if kind in _OWN_KINDS:
        raise Malformed(f"commit: 'source': the kind {kind} is said by the server alone; leave it out, or say your own")
    return source


def _shown(record: TransactionRecord, catalog: Catalog) -> JsonObject:
    name = catalog.warehouse.name
    return {
        "transaction-id": record.id,
        "state": record.state,
        "isolation": record.isolation,
        "principal": owner_of(record),
        "read-only": record.properties.get(READ_ONLY) == "true",
        "warehouse": f"{name}@{record.id}",
        "prefix": f"{name}@{record.id}",
        "catalog-path": f"/in/{name}@{record.id}",
        "created-at": _time(record.created_ms),
        "created-ms": record.created_ms,
        "age-seconds": max(0, catalog.now_ms() - record.created_ms) / 1000,
        "expires-at": _time(record.expires_ms),
        "decided-at": _time(record.decided_ms),
        "decided-ms": record.decided_ms,
        "properties": {key: value for key, value in record.properties.items() if key not in _OWN},
    }


def _outcome(record: TransactionRecord) -> JsonObject:
    answer = record.answer or {}
    return {name: answer[name] for name in ("operation", "result", "error") if name in answer}


def _changes(contents: Transaction) -> list[JsonObject]:
    written = [_change(write) for write in contents.writes if family_of(write.key) not in INSIDE_ONLY]
    return [*written, *(_dependency(read) for read in contents.reads if _is_told(read))]


def _is_told(read: Read) -> bool:
    """A document that was looked for and not found is not: one that may not be seen looks the same."""
    family = family_of(read.key)
    return family not in INSIDE_ONLY and not (family == "state" and read.revision == 0)


def _change(write: Write) -> JsonObject:
    change: JsonObject = {"cell": write.key, "access": "write", "base": write.revision, "revision": write.revision + 1}
    value: Any = write.value or {}
    if "metadata-location" in value:
        change |= {
            "identifier": {"namespace": value["namespace"], "name": value["name"]},
            "metadata-location": value["metadata-location"],
        }
    return change


def _dependency(read: Read) -> JsonObject:
    return {"cell": read.key, "access": "read", "base": read.revision, "revision": read.revision}


def _time(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

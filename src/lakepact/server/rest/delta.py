"""The Delta endpoints: tables whose metadata is in SQL, in the same namespaces and transactions as Iceberg's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson

from lakepact.catalog import Catalog
from lakepact.catalog.delta_tables import DeltaTable
from lakepact.catalog.errors import Unsupported
from lakepact.catalog.pointers import Kind
from lakepact.delta.actions import Metadata, Protocol
from lakepact.delta.codec import action_json, action_line
from lakepact.delta.ports import VersionRow
from lakepact.errors import InvalidRequest
from lakepact.iceberg.fields import json_object, text_list
from lakepact.mirrors import Outcome
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.answers import empty, transaction_header
from lakepact.server.rest.delta_requests import parse_create_delta, parse_delta_commit, parse_import_delta
from lakepact.server.rest.door import Door, flag, number, page_of
from lakepact.server.rest.tables import rename

_MOST_VERSIONS: Final = 1_000


Mirror: TypeAlias = Callable[[Iterable[str]], Awaitable[Mapping[str, Sequence[Outcome]]]]


class DeltaHandlers:
    def __init__(self, door: Door, mirror: Mirror | None = None) -> None:
        """`mirror` brings the mirrors of tables up to date, by their ids. None: this store has no Delta tables."""
        self._door = door
        self._mirror = mirror

    async def list(self, request: Request) -> Response:
        namespace = self._door.namespace(request)
        page = await self._door.scope(request).list_delta(namespace, *page_of(request))
        identifiers = [{"namespace": namespace, "name": name} for name in page.names]
        return json_response({"identifiers": identifiers, "next-page-token": page.next_token})

    async def create(self, request: Request) -> Response:
        catalog, namespace = self._door.scope(request), self._door.namespace(request)
        body = request.json()
        wanted = await request.checked(parse_create_delta, body)
        done = await catalog.create_delta(
            self._door.call(request, "createDeltaTable", catalog, body), namespace, wanted
        )
        return json_response(done.result, headers=transaction_header(done))

    async def load(self, request: Request) -> Response:
        table = await self._door.scope(request).load_delta(
            self._door.identifier(request, "table"),
            version=number(request, "version"),
            timestamp_ms=number(request, "timestamp-ms"),
            files=flag(request, "files"),
        )
        return table_answer(table, with_files=flag(request, "files"))

    async def exists(self, request: Request) -> Response:
        await self._door.scope(request).delta_exists(self._door.identifier(request, "table"))
        return Response(204)

    async def commit(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        body = json_object(request.json(), "commit")
        identifier = self._door.identifier(request, "table")
        commit = await request.checked(parse_delta_commit, body, "commit", identifier)
        done = await catalog.commit_delta(self._door.call(request, "commitDeltaTable", catalog, body), [commit])
        return json_response(done.result["results"][0], headers=transaction_header(done))

    async def drop(self, request: Request) -> Response:
        catalog = self._door.scope(request)
        done = await catalog.drop(
            self._door.call(request, "dropDeltaTable", catalog),
            self._door.identifier(request, "table"),
            Kind.DELTA,
            purge=flag(request, "purgeRequested"),
        )
        return empty(done)

    async def rename(self, request: Request) -> Response:
        return await rename(self._door, request, "renameDeltaTable", Kind.DELTA)

    async def mirror(self, request: Request) -> Response:
        catalog = self._door.catalog(request)
        body = json_object(request.json(), "mirror")
        tables = text_list(body, "tables", "mirror")
        if self._mirror is None:
            raise Unsupported("there are no Delta tables on a store of documents")
        await catalog.check_mirrors(tables)
        results = await self._mirror(tables)
        return json_response({"results": {one: [_mirrored(mirror) for mirror in results[one]] for one in tables}})

    async def history(self, request: Request) -> Response:
        limit = min(number(request, "limit") or 100, _MOST_VERSIONS)
        rows = await self._door.scope(request).delta_history(
            self._door.identifier(request, "table"), number(request, "before"), limit
        )
        return json_response({"versions": [_version(row) for row in rows]})

    async def import_(self, request: Request) -> Response:
        catalog = self._outside(request)
        body = request.json()
        wanted = parse_import_delta(body, self._door.identifier(request, "table"))
        call = self._door.call(request, "importDeltaTable", catalog, body)
        done = await catalog.import_delta(call, wanted)
        return json_response(done.result, headers=transaction_header(done))

    async def verify(self, request: Request) -> Response:
        catalog = self._outside(request)
        return json_response(await catalog.verify_delta(self._door.identifier(request, "table")))

    def _outside(self, request: Request) -> Catalog:
        """Logs are outside of all transactions, and so is what is read from them."""
        if self._door.transaction(request) is not None:
            raise InvalidRequest("a log is imported and verified outside of transactions; send it without one")
        return self._door.catalog(request)


def table_answer(table: DeltaTable, *, with_files: bool) -> Response:
    """What a reader needs: where it is, which version, what it looks like, and its files if they were asked for."""
    pointer, state = table.pointer, table.state
    head = {
        "identifier": {"namespace": pointer.identifier.namespace, "name": pointer.identifier.name},
        "table-id": pointer.id,
        "location": pointer.location,
        "version": state.version,
        "timestamp-ms": table.timestamp_ms,
        "statements": table.statements,
        "protocol": _body(state.protocol),
        "metadata": _body(state.metadata),
        "transactions": {app_id: one.version for app_id, one in state.transactions.items()},
        "domains": {name: one.configuration for name, one in state.domains.items()},
    }
    if not with_files:
        return json_response(head)
    # There may be very many: each is written once, as a line of the log has it.
    lines = b",".join(action_line(add) for add in state.files.values())
    return Response(200, b"".join((orjson.dumps(head)[:-1], b',"files":[', lines, b"]}")))


def _body(action: Protocol | Metadata) -> Any:
    [body] = action_json(action).values()
    return body


def _mirrored(one: Outcome) -> dict[str, Any]:
    return {"engine": one.engine, "success": one.success, "error": one.error, "version": one.version}


def _version(row: VersionRow) -> dict[str, Any]:
    return {
        "version": row.version,
        "timestamp-ms": row.info.timestamp_ms,
        "transaction-id": row.transaction_id,
        "operation": row.info.operation,
        "operation-parameters": row.info.operation_parameters,
        "added-files": row.adds,
        "removed-files": row.removes,
    }

"""The endpoints for what people say about a table or view, of whatever format."""

from __future__ import annotations

from lakepact.catalog.governance import parse
from lakepact.iceberg.fields import json_object
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.answers import transaction_header
from lakepact.server.rest.door import Door


class GovernanceHandlers:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def load(self, request: Request) -> Response:
        return json_response(await self._door.scope(request).load_governance(self._door.identifier(request, "table")))

    async def put(self, request: Request) -> Response:
        scope = self._door.scope(request)
        body = json_object(request.json(), "governance")
        given = parse(body)
        call = self._door.call(request, "putGovernance", scope, body)
        done = await scope.put_governance(call, self._door.identifier(request, "table"), given)
        return json_response(done.result, headers=transaction_header(done))

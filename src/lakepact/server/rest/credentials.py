"""Credentials for a table's files, and requests to its storage that the server signs."""

from __future__ import annotations

from typing import Final

from lakepact.catalog.operations import Operations
from lakepact.iceberg.requests import Identifier
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.door import Door
from lakepact.server.vending.delegation import Delegation
from lakepact.server.vending.s3_requests import parse_sign_request
from lakepact.server.vending.scope import Home

_NOT_KEPT: Final = ((b"Cache-Control", b"private, no-store"),)
_NOT_AGAIN: Final = ((b"Cache-Control", b"no-cache"),)
"""In the specification's words: the same signature is not for another request."""


class CredentialHandlers:
    def __init__(self, door: Door, delegation: Delegation) -> None:
        self._door = door
        self._delegation = delegation

    async def load(self, request: Request) -> Response:
        catalog, identifier, home = await self._table(request)
        path = request.raw_path.rpartition("/")[0]
        answer = await self._delegation.credentials(request, catalog, identifier, home, path)
        return json_response(answer, headers=_NOT_KEPT)

    async def sign(self, request: Request) -> Response:
        wanted = parse_sign_request(request.json())
        catalog, identifier, home = await self._table(request)
        answer = await self._delegation.sign(request, catalog, identifier, home, wanted)
        return json_response(answer, headers=_NOT_AGAIN)

    async def _table(self, request: Request) -> tuple[Operations, Identifier, Home]:
        catalog, identifier = self._door.scope(request), self._door.identifier(request, "table")
        pointer = await catalog.table(identifier)
        return catalog, identifier, Home.of(pointer, (await catalog.file_of(pointer)).document)

"""The endpoints for grants: who may do what. They are outside of all transactions, and count at once."""

from __future__ import annotations

from typing import Any

from lakepact.access import Role, Scope
from lakepact.access.rules import holder, principal_of
from lakepact.catalog import Catalog
from lakepact.catalog.catalog import GrantScope
from lakepact.errors import InvalidRequest
from lakepact.iceberg.fields import JsonObject, filled_text, json_object, text_list
from lakepact.iceberg.requests import Identifier
from lakepact.limits import check_name, check_namespace
from lakepact.server.http import Request, Response, json_response
from lakepact.server.rest.answers import transaction_header
from lakepact.server.rest.door import Door

_SCOPES = ("account", "warehouse", "namespace", "table")


class GrantHandlers:
    def __init__(self, door: Door) -> None:
        self._door = door

    async def list(self, request: Request) -> Response:
        catalog = self._outside(request)
        found = await catalog.list_grants()
        if (asked := request.query.get("holder")) is not None:
            found = [one for one in found if one.holder == holder(asked)]
        return json_response({"grants": await catalog.described_grants(found)})

    async def add(self, request: Request) -> Response:
        catalog = self._outside(request)
        body = json_object(request.json(), "grant")
        scope, who = parse_scope(body), holder(body.get("holder"))
        role = Role.named(body.get("role"))
        call = self._door.call(request, "addGrant", catalog, body)
        done = await catalog.put_grant(call, scope, who, role)
        return json_response({**_said(body), "role": role.word, **done.result}, headers=transaction_header(done))

    async def remove(self, request: Request) -> Response:
        catalog = self._outside(request)
        body = json_object(request.json(), "grant")
        scope, who = parse_scope(body), holder(body.get("holder"))
        done = await catalog.remove_grant(self._door.call(request, "removeGrant", catalog, body), scope, who)
        return json_response({**_said(body), **done.result}, headers=transaction_header(done))

    async def check(self, request: Request) -> Response:
        """What a holder may do there, and whether that includes a role."""
        catalog = self._outside(request)
        body = json_object(request.json(), "check")
        scope, who = parse_scope(body), body.get("holder")
        wanted = None if body.get("role") is None else Role.named(body["role"])
        principal = request.principal if who is None else principal_of(holder(who), catalog.warehouse.account)
        role = await catalog.role_of(principal, scope)
        return json_response(
            {
                **_said(body),
                "role": None if role is None else role.word,
                "allowed": role is not None and (wanted is None or role >= wanted),
            }
        )

    def _outside(self, request: Request) -> Catalog:
        if self._door.transaction(request) is not None:
            raise InvalidRequest("grants are outside of transactions; send it without one")
        return self._door.catalog(request)


def parse_scope(body: JsonObject) -> GrantScope:
    kind = filled_text(body, "on", "grant")
    match kind:
        case "account":
            return Scope.account()
        case "warehouse":
            return Scope.warehouse()
        case "namespace":
            return _levels(body)
        case "table":
            name = filled_text(body, "name", "grant")
            check_name(name, "grant: 'name'")
            return Identifier(_levels(body), name)
        case _:
            raise InvalidRequest(f"'on' is {', '.join(_SCOPES)}, not {kind[:40]!r}")


def _levels(body: JsonObject) -> tuple[str, ...]:
    levels = tuple(text_list(body, "namespace", "grant"))
    check_namespace(levels, "grant: 'namespace'")
    if not levels or not all(levels):
        raise InvalidRequest("'namespace' has at least one level, and none of them is empty")
    return levels


def _said(body: JsonObject) -> dict[str, Any]:
    return {name: body[name] for name in ("on", "namespace", "name", "holder") if body.get(name) is not None}

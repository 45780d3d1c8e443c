"""`/v1/tokens`: API tokens, for those who administer an account; and `/v1/whoami`, for everybody.

An administrator sees and makes tokens of their own account only. `lakepact tokens` works on the store itself, and is
how the first token comes to be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lakepact.access.principal import Principal
from lakepact.access.secrets import Given, token_id
from lakepact.errors import InvalidRequest, json_kind
from lakepact.server.asgi import TRANSACTION_HEADER
from lakepact.server.auth.errors import NotAllowed
from lakepact.server.auth.noted import AccountTrail
from lakepact.server.auth.tokens import Shown, Tokens
from lakepact.server.http import Request, Response, json_response
from lakepact.server.routing import Route

_NO_STORE: Final = (b"Cache-Control", b"no-store")
_MOST_NOTED: Final = 200
"""Of a name that somebody asks for, and that may be none."""


class TokenHandlers:
    def __init__(
        self,
        tokens: Tokens,
        trail: AccountTrail,
        *,
        grace_s: float,
        longest_s: float | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._tokens = tokens
        self._trail = trail
        self._grace_s = grace_s
        self._longest_s = longest_s
        self._now_ms = now_ms

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/whoami", "whoAmI", self.who),
            Route("GET", "/v1/tokens", "listTokens", self.list),
            Route("POST", "/v1/tokens", "createToken", self.create),
            Route("POST", "/v1/tokens/{token}/rotate", "rotateToken", self.rotate),
            Route("DELETE", "/v1/tokens/{token}", "revokeToken", self.revoke),
        ]

    async def who(self, request: Request) -> Response:
        who = request.principal
        return json_response(
            {"name": who.name, "account": who.account, "groups": sorted(who.groups), "admin": who.admin}
        )

    async def list(self, request: Request) -> Response:
        found = await self._tokens.all(_administered(request.principal))
        now_ms = self._now_ms()
        self._trail.note_read(request, "listTokens")
        return json_response({"tokens": [document_of(token, now_ms) for token in found]})

    async def create(self, request: Request) -> Response:
        with self._trail.noting(request, "createToken") as note:
            account = _administered(request.principal)
            body = _object(request.json())
            name = _field(body, "name", str, "")
            note.detail["name"] = name[:_MOST_NOTED]
            if _field(body, "account", str, account) != account:
                raise NotAllowed(f"you administer account {account}, and tokens of others are not yours to make")
            groups = _field(body, "groups", list, [])
            if not all(isinstance(one, str) for one in groups):
                raise InvalidRequest("groups is a list of names")
            expires_in_s = _field(body, "expires-in-seconds", (int, float), None)
            made = await self._tokens.create(
                name,
                account=account,
                groups=frozenset(groups),
                admin=_field(body, "admin", bool, False),
                expires_in_s=lifetime(expires_in_s, self._longest_s),
            )
            note.tells(made.token, made.transaction_id)
        return self._shown(made)

    async def rotate(self, request: Request) -> Response:
        with self._trail.noting(request, "rotateToken", _noted_id(request)) as note:
            account = _administered(request.principal)
            id = token_id(request.params["token"])
            body = _object(request.json()) if request.body else {}
            grace_s = _field(body, "grace-seconds", (int, float), self._grace_s)
            rotated = await self._tokens.rotate(id, grace_s=grace_s, account=account)
            note.tells(rotated.token, rotated.transaction_id)
            note.detail["grace-seconds"] = grace_s
        return self._shown(rotated)

    async def revoke(self, request: Request) -> Response:
        with self._trail.noting(request, "revokeToken", _noted_id(request)) as note:
            account = _administered(request.principal)
            transaction_id = await self._tokens.revoke(token_id(request.params["token"]), account=account)
            note.transaction_id = transaction_id
        return Response(204, b"", ((TRANSACTION_HEADER, transaction_id.encode()),))

    def _shown(self, shown: Shown) -> Response:
        headers = (_NO_STORE, (TRANSACTION_HEADER, shown.transaction_id.encode()))
        return json_response(with_secret(shown, self._now_ms()), 200, headers)


def document_of(token: Given, now_ms: int) -> dict[str, Any]:
    """A token as it may be seen: nothing in it opens anything."""
    grace = [one.until_ms for one in token.secrets[1:] if one.until_ms is not None and one.until_ms > now_ms]
    return {
        "id": token.id,
        "name": token.name,
        "account": token.account,
        "groups": sorted(token.groups),
        "admin": token.admin,
        "created-at-ms": token.created_ms,
        "expires-at-ms": token.expires_ms,
        "expired": token.expired(now_ms),
        "old-secret-until-ms": max(grace, default=None),
    }


def with_secret(shown: Shown, now_ms: int) -> dict[str, Any]:
    """The same, this one time, with what opens the door: as a bearer token, and as an OAuth client's credential."""
    return {
        **document_of(shown.token, now_ms),
        "token": shown.text,
        "credential": f"{shown.token.id}:{shown.secret}",
    }


def lifetime(asked_s: float | None, longest_s: float | None) -> float | None:
    """For how long a token is made. Raises `InvalidRequest` if that is longer than the setting allows."""
    if longest_s is None:
        return asked_s
    if asked_s is not None and asked_s > longest_s:
        raise InvalidRequest(f"a token lives for at most {longest_s:,.0f} s here (token_max_s), not {asked_s:,.0f} s")
    return longest_s if asked_s is None else asked_s


def _administered(principal: Principal) -> str:
    if not principal.admin:
        raise NotAllowed("tokens are made and seen by administrators of an account; ask one of yours")
    return principal.account


def _noted_id(request: Request) -> dict[str, str]:
    """Of which token, for the audit trail: never more of what somebody has sent, which may be the whole of it."""
    try:
        return {"id": token_id(request.params["token"])}
    except InvalidRequest:
        return {}


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"the body is an object, not {json_kind(value)}")
    return value


def _field(body: Mapping[str, Any], name: str, kind: type | tuple[type, ...], default: Any) -> Any:
    value = body.get(name)
    if value is None:
        return default
    # True is an int in Python, and none in JSON.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InvalidRequest(f"{name} cannot be {json_kind(value)}")
    return value

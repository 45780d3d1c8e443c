"""`POST /v1/oauth/tokens`: a short-lived access token for an API token, as OAuth's client credentials or in exchange.

For installations without an identity provider: engines that know only `credential` get what they need, and engines that
refresh their token do so here. An access token is a signed statement and kept nowhere; behind it stands the API token,
which is looked at whenever it is used, so revoking that one ends them all. Errors are in OAuth's own form (RFC 6749).

A server without authentication answers every credential with a token that carries no meaning: some clients cannot be
used without one, and such a server reads no `Authorization` header.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl, unquote_plus

from lakepact.access.secrets import Given, Secret, TokenId, parse, parse_client
from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import Clock
from lakepact.server.auth.bearer import ACCESS, Bearers
from lakepact.server.auth.errors import REALM, TooManyRequests, Unrecognised
from lakepact.server.auth.guard import Guard
from lakepact.server.auth.keys import SigningKeys
from lakepact.server.http import Request, Response, json_response
from lakepact.server.routing import Route

CLIENT_CREDENTIALS: Final = "client_credentials"
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
ANONYMOUS: Final = "anonymous"
"""The access token of a server without authentication."""

_SUBJECTS: Final = frozenset({ACCESS_TOKEN, "urn:ietf:params:oauth:token-type:jwt"})
_FORM: Final = "application/x-www-form-urlencoded"
_MOST_FIELDS: Final = 32
_NO_STORE: Final = ((b"Cache-Control", b"no-store"), (b"Pragma", b"no-cache"))


class OAuthError(Exception):
    def __init__(self, error: str, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.error = error
        self.status = status


class _InvalidGrant(Unrecognised):
    """The token to be exchanged is not valid."""


class OAuthHandler:
    def __init__(
        self,
        bearers: Bearers | None,
        keys: SigningKeys,
        guard: Guard,
        clock: Clock,
        *,
        lifetime_s: int,
        anonymous: bool = False,
    ) -> None:
        """`bearers` is None on a server that issues no API tokens; `anonymous`: it has no authentication at all."""
        self._anonymous = anonymous
        self._bearers = bearers
        self._keys = keys
        self._guard = guard
        self._clock = clock
        self._lifetime_s = lifetime_s

    def routes(self) -> list[Route]:
        return [Route("POST", "/v1/oauth/tokens", "getToken", self.token, open=True)]

    async def token(self, request: Request) -> Response:
        sent = b"\0".join((request.body, (request.header("authorization") or "").encode()))
        try:
            return await self._guard.verified(request.address, sent, partial(self._token, request))
        except _InvalidGrant as error:
            return _failed(OAuthError("invalid_grant", error.message, 401 if error.expired else 400))
        except Unrecognised as error:
            return _failed(OAuthError("invalid_client", error.message, 401))
        except OAuthError as error:
            return _failed(error)
        except TooManyRequests as error:
            answer = self._guard.refused(error)
            return _failed(OAuthError("invalid_request", error.message, error.code), answer.headers)
        except StoreUnavailable as error:
            return _failed(OAuthError("temporarily_unavailable", str(error), 503), ((b"Retry-After", b"1"),))

    async def _token(self, request: Request) -> Response:
        if self._anonymous:
            if _form(request).get("grant_type") not in (CLIENT_CREDENTIALS, EXCHANGE):
                raise OAuthError("unsupported_grant_type", f"grant_type is {CLIENT_CREDENTIALS} or {EXCHANGE}")
            return json_response(_document(ANONYMOUS, self._lifetime_s), 200, _NO_STORE)
        if self._bearers is None:
            raise OAuthError(
                "unauthorized_client",
                "this server gives out no tokens (auth); leave `credential` out, or name your identity provider with "
                "`oauth2-server-uri`",
            )
        form = _form(request)
        match form.get("grant_type"):
            case "client_credentials":
                token, secret = await self._client(self._bearers, request, form)
            case "urn:ietf:params:oauth:grant-type:token-exchange":
                token, secret = await self._exchanged(self._bearers, request, form)
            case None:
                raise OAuthError("invalid_request", "grant_type is missing")
            case _:
                raise OAuthError("unsupported_grant_type", f"grant_type is {CLIENT_CREDENTIALS} or {EXCHANGE}")
        return await self._given_out(token, secret)

    async def _client(self, bearers: Bearers, request: Request, form: Mapping[str, str]) -> tuple[Given, Secret]:
        given = _basic(request) if "client_secret" not in form else None
        id, secret = given or (form.get("client_id", ""), form.get("client_secret", ""))
        sent = parse_client(id, secret)
        if sent is None:
            raise Unrecognised(
                "client_id and client_secret are the id and the secret of an API token, as `lakepact tokens create` "
                "shows them: `credential` is <id>:<secret>"
            )
        return await bearers.api_token(*sent)

    async def _exchanged(self, bearers: Bearers, request: Request, form: Mapping[str, str]) -> tuple[Given, Secret]:
        if form.get("actor_token"):
            raise OAuthError("invalid_request", "actor tokens are not understood here; exchange the token itself")
        if form.get("subject_token_type") not in _SUBJECTS:
            raise OAuthError("invalid_request", f"subject_token_type is {ACCESS_TOKEN}")
        subject = form.get("subject_token", "")
        whole = parse(subject)
        if whole is not None:
            return await bearers.api_token(*whole)
        # A client whose token has expired shows its credential as well.
        shown = _basic(request)
        try:
            found = await bearers.access_token(subject, even_expired=shown is not None)
        except Unrecognised as error:
            raise _InvalidGrant(error.message, expired=error.expired) from None
        if shown is None:
            assert found.token is not None
            return await bearers.live(found.token, found.secret)
        sent = parse_client(*shown)
        if sent is None or sent[0] != found.token:
            raise Unrecognised("the credential is not the one that the subject token was given out for")
        return await bearers.api_token(TokenId(sent[0]), sent[1])

    async def _given_out(self, token: Given, secret: Secret) -> Response:
        now_s = self._clock.now_ms() / 1000
        ends_ms = token.ends_ms(secret)
        until_s = math.floor(min(now_s + self._lifetime_s, math.inf if ends_ms is None else ends_ms / 1000))
        statement = {
            "iss": REALM,
            "sub": token.name,
            "tid": token.id,
            "sec": secret.number,
            "iat": math.floor(now_s),
            "exp": until_s,
        }
        signed = await self._keys.sign(ACCESS, statement)
        return json_response(_document(signed, max(0, until_s - math.floor(now_s))), 200, _NO_STORE)


def _document(access_token: str, expires_in: int) -> dict[str, Any]:
    return {
        "access_token": access_token,
        "token_type": "bearer",
        "expires_in": expires_in,
        "issued_token_type": ACCESS_TOKEN,
    }


def _failed(error: OAuthError, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Response:
    document = {"error": error.error, "error_description": str(error)}
    if error.status == 401:
        headers = (*headers, (b"WWW-Authenticate", f'Basic realm="{REALM}"'.encode()))
    return json_response(document, error.status, (*_NO_STORE, *headers))


def _form(request: Request) -> dict[str, str]:
    kind = (request.header("content-type") or "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise OAuthError("invalid_request", f"the body is a form; send Content-Type: {_FORM}")
    try:
        pairs = parse_qsl(request.body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise OAuthError("invalid_request", f"the form is not UTF-8, or has more than {_MOST_FIELDS} fields") from None
    form = dict(pairs)
    if len(form) != len(pairs):
        raise OAuthError("invalid_request", "a field is there twice")
    return form


def _basic(request: Request) -> tuple[str, str] | None:
    """The client's id and secret from the header, each encoded as in a form (RFC 6749, 2.3.1)."""
    scheme, _, text = (request.header("authorization") or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        id, _, secret = base64.b64decode(text.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise OAuthError("invalid_request", "the Authorization header cannot be read") from None
    return unquote_plus(id), unquote_plus(secret)

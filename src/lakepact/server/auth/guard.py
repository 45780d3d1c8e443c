"""Authenticate every request, before its body is read.

A credential that was verified a moment ago passes at once, with one hash and one lookup. Wrong credentials are limited
without ever refusing a valid one, since many clients may share an address:

- A credential that fails again and again from one address is refused without being verified.
- Beyond a number of failures of an address, further failures are answered 429 instead of 401.
- Of one address only a few credentials are verified at the same time; others wait for their turn.
- Codes of an identity provider's login cost a request to the provider, so an address has a number of failures of its
  own for them, which no wrong token counts for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from lakepact.access.principal import ANYONE, NOBODY, Principal
from lakepact.kernel.ports import Clock
from lakepact.server.auth.bearer import Bearers
from lakepact.server.auth.errors import SEND_ONE, NotAllowed, TooManyRequests, Unrecognised, challenge
from lakepact.server.auth.limits import Buckets, Turns
from lakepact.server.auth.sessions import Sessions, is_page
from lakepact.server.http import Headers, Response, json_response
from lakepact.server.routing import Route

FAILURES_PER_S: Final = 10.0
FAILURES_AT_ONCE: Final = 100.0
"""Wrong credentials from one address, and wrong uses of one credential, before they are answered 429."""

VERIFIED_AT_ONCE: Final = 8
"""Credentials of one address that are verified at the same time."""

T = TypeVar("T")

_UNLIMITED: Final = frozenset({"livez", "readyz", "health", "metrics"})


class Guard:
    def __init__(
        self,
        clock: Clock,
        *,
        bearers: Bearers | None,
        sessions: Sessions,
        limits: Buckets | None = None,
        on_unrecognised: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """Without `bearers` nobody is asked for a name."""
        self._bearers = bearers
        self._sessions = sessions
        self._limits = limits
        self._failures = Buckets(FAILURES_PER_S, FAILURES_AT_ONCE, clock)
        """By address; by address and credential; and by address for the codes of logins."""

        self._turns = Turns(VERIFIED_AT_ONCE)
        self._on_unrecognised = on_unrecognised

    def admit(
        self, route: Route, scope: Mapping[str, Any], headers: Headers
    ) -> Principal | Awaitable[Principal | Response]:
        """Who it is, or what they are told instead of an answer. Raises, when it is awaited, while nobody can say."""
        header = headers.get(b"authorization")
        if header is not None and self._bearers is not None and self._limits is None:
            known = self._bearers.remembered(header)
            if known is not None and not route.open and len(headers) == len(scope["headers"]):
                return known
        return self._admitted(route, scope, headers)

    async def _admitted(self, route: Route, scope: Mapping[str, Any], headers: Headers) -> Principal | Response:
        address = address_of(scope)
        try:
            principal = await self._asked(route, scope, headers, address)
            if principal is None:
                return self._sessions.login(_path(scope))
            if route.operation not in _UNLIMITED:
                self.check_rate(principal, address)
            return principal
        except (Unrecognised, TooManyRequests) as error:
            return self.refused(error)
        except NotAllowed as error:
            return json_response({"error": error.to_json()}, error.code)

    async def admit_call(self, authorization: list[bytes], address: str) -> Principal:
        """The same for a gRPC call. Raises `Unrecognised` and `TooManyRequests`."""
        principal = ANYONE if self._bearers is None else await self._recognised(self._bearers, authorization, address)
        self.check_rate(principal, address)
        return principal

    def check_rate(self, principal: Principal, address: str) -> None:
        if self._limits is None:
            return
        who = address if principal.name is None else (principal.account, principal.name)
        wait_s = self._limits.take(who)
        if wait_s > 0:
            self._on_unrecognised("limited")
            raise TooManyRequests(
                "you ask more often than this server answers (rate_limit_per_s); wait as long as Retry-After says",
                wait_s,
            )

    async def verified(self, address: str, credential: bytes, verify: Callable[[], Awaitable[T]]) -> T:
        """Return what `verify` finds out about this credential. A valid one always gets there.

        Raises `Unrecognised` as `verify` does, and `TooManyRequests` instead of it where there were too many.
        """
        used = (address, hashlib.sha256(credential).digest())
        self._check(used)
        async with self._turns.turn(address):
            try:
                return await verify()
            except Unrecognised as error:
                self._count(error)
                if error.missing:
                    raise
                self._failures.take(used)
                self._take(address)
                raise

    def check_codes(self, address: str) -> None:
        """Raises `TooManyRequests` for an address from which too many wrong codes of logins have come."""
        self._check(("code", address))

    def code_failed(self, address: str, error: Unrecognised) -> None:
        if not error.missing:
            self._failures.take(("code", address))
        self._count(error)

    def _check(self, key: Hashable) -> None:
        self._refuse(self._failures.empty_for_s(key))

    def _take(self, key: Hashable) -> None:
        self._refuse(self._failures.take(key))

    def _refuse(self, wait_s: float) -> None:
        if wait_s > 0:
            self._on_unrecognised("limited")
            raise TooManyRequests(
                "wrong credentials have come too often from here; correct yours and wait as long as Retry-After says",
                wait_s,
            ) from None

    def _count(self, error: Unrecognised) -> None:
        self._on_unrecognised("missing" if error.missing else "expired" if error.expired else "wrong")

    def refused(self, error: Unrecognised | TooManyRequests) -> Response:
        header = (
            (b"WWW-Authenticate", challenge(error))
            if isinstance(error, Unrecognised)
            else (b"Retry-After", str(max(1, math.ceil(error.retry_after_s))).encode())
        )
        return json_response({"error": error.to_json()}, error.code, (header,))

    async def _asked(self, route: Route, scope: Mapping[str, Any], headers: Headers, address: str) -> Principal | None:
        """None: a person who has to log in first."""
        if self._bearers is None:
            # Such a server is reached by the browsers of its machine, whatever page they show: a page of another site
            # may look at nothing, but it could send something.
            if route.method not in ("GET", "HEAD"):
                self._sessions.check_site(headers)
            return ANYONE
        if route.open:
            return NOBODY
        authorization = _every(b"authorization", scope, headers)
        if not authorization and is_page(route):
            return await self._sessions.recognise(b"; ".join(_every(b"cookie", scope, headers)))
        return await self._recognised(self._bearers, authorization, address)

    async def _recognised(self, bearers: Bearers, authorization: list[bytes], address: str) -> Principal:
        try:
            header = _only(authorization)
        except Unrecognised as error:
            self._count(error)
            raise
        known = bearers.remembered(header)
        if known is not None:
            return known
        return await self.verified(address, header, partial(bearers.recognise, header))


def _every(name: bytes, scope: Mapping[str, Any], headers: Headers) -> list[bytes]:
    """All headers of this name. Most requests have no name twice."""
    if len(headers) == len(scope["headers"]):
        return [headers[name]] if name in headers else []
    return [value for found, value in scope["headers"] if found == name]


def _only(authorization: list[bytes]) -> bytes:
    if not authorization:
        raise Unrecognised(f"who are you? {SEND_ONE}", missing=True)
    if len(authorization) > 1:
        raise Unrecognised("there are several Authorization headers; send one")
    return authorization[0]


def address_of(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _path(scope: Mapping[str, Any]) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string") or b""
    return (raw + (b"?" + query if query else b"")).decode("latin-1")

"""What is asked of an identity provider over HTTP, all of it bounded: its description, its keys, a code's tokens.

Only over TLS, or from this machine, and without following redirects: what counts is where the settings say, and nowhere
else. What was fetched is remembered; an issuer that does not answer changes nothing for as long as that is not too
old, and nobody who asks again and again keeps it, or us, busy.
"""

from __future__ import annotations

import asyncio
import http.client
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import urlencode, urlsplit

import orjson
import structlog

from lakepact.kernel.ports import Clock
from lakepact.server.auth.errors import IssuerUnavailable

T = TypeVar("T")
Fetch: TypeAlias = Callable[[], Awaitable[T]]

FRESH_S: Final = 300.0
AGAIN_S: Final = 10.0
FIRST_AGAIN_S: Final = 1.0
STALE_S: Final = 86_400.0
MOST_BYTES: Final = 512 * 1024
_WITHIN_S: Final = 5.0
_THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1")

_log = structlog.get_logger(__name__)

# Threads of its own: an issuer that is slow takes none from those who read and write files.
_THREADS: Final = ThreadPoolExecutor(4, thread_name_prefix="issuer")


async def in_a_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


class Kept(Generic[T]):
    """Something of the issuer's: fetched when it is needed, again in the background when it has become old."""

    def __init__(self, fetch: Fetch[T], clock: Clock, what: str) -> None:
        """`fetch` raises `IssuerUnavailable`."""
        self._fetch = fetch
        self._clock = clock
        self._what = what
        self._value: T | None = None
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def value(self) -> T:
        """Raises `IssuerUnavailable` if there is none that is young enough."""
        age_s = self._age_s()
        if age_s is None or age_s > STALE_S:
            await self.look(FIRST_AGAIN_S if age_s is None else AGAIN_S)
            age_s = self._age_s()
        elif age_s > FRESH_S and self._may_try(AGAIN_S):
            self._start()
        if self._value is None or age_s is None or age_s > STALE_S:
            raise IssuerUnavailable(f"the identity provider's {self._what} cannot be had now; try again")
        return self._value

    async def look(self, again_s: float = AGAIN_S) -> None:
        """Fetch, or wait for whoever is at it; not if somebody has just tried."""
        if self._fetching is None:
            if not self._may_try(again_s):
                return
            self._start()
        assert self._fetching is not None
        # Shielded: others wait for it too.
        await asyncio.shield(self._fetching)

    def _age_s(self) -> float | None:
        return None if self._fetched_s is None else self._clock.monotonic_s() - self._fetched_s

    def _may_try(self, again_s: float) -> bool:
        return self._tried_s is None or self._clock.monotonic_s() - self._tried_s >= again_s

    def _start(self) -> None:
        if self._fetching is None:
            self._tried_s = self._clock.monotonic_s()
            self._fetching = asyncio.create_task(self._fetched())

    async def _fetched(self) -> None:
        try:
            self._value = await self._fetch()
            self._fetched_s = self._clock.monotonic_s()
        except IssuerUnavailable as error:
            _log.warning(f"the identity provider's {self._what} cannot be had", reason=str(error))
        finally:
            self._fetching = None


def trustworthy(url: str) -> bool:
    """Whether what is fetched from there is what its owner has put there: over TLS, or on this machine."""
    try:
        place = urlsplit(url)
        host = place.hostname
    except ValueError:
        return False
    return bool(host) and (place.scheme == "https" or (place.scheme == "http" and host in _THIS_MACHINE))


def description(issuer: str) -> dict[str, Any]:
    """What the issuer says about itself. Raises `IssuerUnavailable`."""
    found = got(issuer.rstrip("/") + "/.well-known/openid-configuration")
    if not isinstance(found, dict) or found.get("issuer") != issuer:
        raise IssuerUnavailable("the issuer's description is of another issuer; compare oidc_issuer with it")
    return found


def address(described: Mapping[str, Any], name: str) -> str:
    """One of the addresses in a description."""
    url = described.get(name)
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or not trustworthy(url):
        raise IssuerUnavailable(f"the issuer's description has no https address as {name}")
    return url


def got(url: str) -> Any:
    status, document = _answer(urllib.request.Request(url))
    if status != 200:
        raise IssuerUnavailable(f"{_host(url)} answered with {status}")
    return document


def posted(url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[int, Any]:
    """The status and the document that a form is answered with. Raises `IssuerUnavailable`."""
    given = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json", **headers}
    return _answer(urllib.request.Request(url, urlencode(form).encode(), given, method="POST"))


class _AsItIs(urllib.request.HTTPErrorProcessor):
    """Every answer is one, whatever its status; so redirects are not followed."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response


_OPENER: Final = urllib.request.build_opener(_AsItIs)


def _answer(request: urllib.request.Request) -> tuple[int, Any]:
    host = _host(request.full_url)
    try:
        with _OPENER.open(request, timeout=_WITHIN_S) as answer:
            status, data = int(answer.status), answer.read(MOST_BYTES + 1)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise IssuerUnavailable(f"{host} did not answer ({type(error).__name__})") from None
    if not 200 <= status < 300 and not 400 <= status < 500:
        raise IssuerUnavailable(f"{host} answered with {status}")
    if len(data) > MOST_BYTES:
        raise IssuerUnavailable(f"{host} sent more than {MOST_BYTES:,} bytes")
    try:
        return status, orjson.loads(data)
    except orjson.JSONDecodeError:
        raise IssuerUnavailable(f"{host} sent something that is no JSON (status {status})") from None


def _host(url: str) -> str:
    return urlsplit(url).hostname or "the issuer"

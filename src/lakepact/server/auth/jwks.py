"""The public keys of an identity provider: fetched when they are needed, remembered, bounded in size and number.

Keys are fetched again when they have become old (in the background: nobody waits) and when a token names one that is
not among them (at most once in `AGAIN_S`: whoever makes up names of keys keeps neither us nor the issuer busy). An
issuer that does not answer changes nothing for as long as the keys that are there are not too old; without any, its
tokens are answered with 503, and everybody else is served as always.
"""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import orjson
import structlog
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey, import_key

from lakepact.kernel.ports import Clock
from lakepact.server.auth.errors import IssuerUnavailable

FRESH_S: Final = 300.0
AGAIN_S: Final = 10.0
STALE_S: Final = 86_400.0
MOST_KEYS: Final = 100
MOST_BYTES: Final = 512 * 1024
_WITHIN_S: Final = 5.0
_RSA_BITS: Final = (2_048, 8_192)
"""Smaller ones prove nothing, larger ones take too long to check."""

_KINDS: Final[Mapping[str, type[Key]]] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey, "Ed": OKPKey}

_log = structlog.get_logger(__name__)

Fetch = Callable[[], Awaitable[Any]]


class Jwks:
    def __init__(self, fetch: Fetch, clock: Clock) -> None:
        """`fetch` gives the key set as a JSON document, or raises `IssuerUnavailable`."""
        self._fetch = fetch
        self._clock = clock
        self._keys: list[Key] = []
        self._fetched_s: float | None = None
        self._tried_s: float | None = None
        self._fetching: asyncio.Task[None] | None = None

    async def key(self, kid: str | None, algorithm: str) -> Key | None:
        """The key of this name, or the only one for this algorithm. None: the issuer has none."""
        age_s = None if self._fetched_s is None else self._clock.monotonic_s() - self._fetched_s
        if age_s is None or age_s > STALE_S:
            await self._look(AGAIN_S if age_s is not None else 1.0)
            if self._fetched_s is None or self._clock.monotonic_s() - self._fetched_s > STALE_S:
                raise IssuerUnavailable("the identity provider's keys cannot be had now; try again")
        elif age_s > FRESH_S and self._may_try(AGAIN_S):
            self._start()
        found = self._named(kid, algorithm)
        if found is None:
            await self._look(AGAIN_S)
            found = self._named(kid, algorithm)
        return found

    def _named(self, kid: str | None, algorithm: str) -> Key | None:
        kind = _KINDS.get(algorithm[:2])
        fitting = [key for key in self._keys if kind is not None and isinstance(key, kind) and _fits(key, algorithm)]
        if kid is not None:
            return next((key for key in fitting if key.kid == kid), None)
        return fitting[0] if len(fitting) == 1 else None

    async def _look(self, again_s: float) -> None:
        """Fetch, or wait for whoever is at it; not if somebody has just tried."""
        if self._fetching is None:
            if not self._may_try(again_s):
                return
            self._start()
        assert self._fetching is not None
        # Shielded: others wait for it too.
        await asyncio.shield(self._fetching)

    def _may_try(self, again_s: float) -> bool:
        return self._tried_s is None or self._clock.monotonic_s() - self._tried_s >= again_s

    def _start(self) -> None:
        if self._fetching is None:
            self._tried_s = self._clock.monotonic_s()
            self._fetching = asyncio.create_task(self._fetched())

    async def _fetched(self) -> None:
        try:
            self._keys = _imported(await self._fetch())
            self._fetched_s = self._clock.monotonic_s()
        except IssuerUnavailable as error:
            _log.warning("the identity provider's keys were not fetched", reason=str(error), known=len(self._keys))
        finally:
            self._fetching = None


def _fits(key: Key, algorithm: str) -> bool:
    said = key.as_dict(private=False)
    # Two words for one: RFC 9864 has given EdDSA the name of its curve.
    same = {"EdDSA", "Ed25519"} if algorithm in ("EdDSA", "Ed25519") else {algorithm}
    return said.get("alg", algorithm) in same and said.get("use", "sig") == "sig"


def _imported(document: Any) -> list[Key]:
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise IssuerUnavailable("what the issuer has in the place of its keys is no key set")
    if len(listed) > MOST_KEYS:
        raise IssuerUnavailable(f"the issuer's key set has more than {MOST_KEYS} keys")
    found = []
    for one in listed:
        if not isinstance(one, dict) or one.get("kty") not in ("RSA", "EC", "OKP") or "d" in one:
            continue
        try:
            key = import_key(one)
        except Exception:
            # Keys of kinds that we do not know, or that are broken, may stand beside those that we do.
            continue
        if isinstance(key, RSAKey) and not _RSA_BITS[0] <= key.public_key.key_size <= _RSA_BITS[1]:
            continue
        found.append(key)
    return found


def over_http(issuer: str, jwks_url: str) -> Fetch:
    """The key set from its URL, or from the one that the issuer's own description names."""

    def fetch() -> Any:
        if jwks_url:
            return _got(jwks_url)
        description = _got(issuer.rstrip("/") + "/.well-known/openid-configuration")
        if not isinstance(description, dict) or description.get("issuer") != issuer:
            raise IssuerUnavailable("the issuer's description is of another issuer; compare oidc_issuer with it")
        url = description.get("jwks_uri")
        if not isinstance(url, str) or not trustworthy(url):
            raise IssuerUnavailable("the issuer's description has no https address of its keys")
        return _got(url)

    async def in_a_thread() -> Any:
        return await asyncio.to_thread(fetch)

    return in_a_thread


def trustworthy(url: str) -> bool:
    """Whether what is fetched from there is what its owner has put there: over TLS, or on this machine."""
    place = urlsplit(url)
    return place.scheme == "https" or (place.scheme == "http" and place.hostname in ("localhost", "127.0.0.1", "::1"))


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Keys are where the settings say, and nowhere else."""
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


def _got(url: str) -> Any:
    try:
        with _OPENER.open(url, timeout=_WITHIN_S) as answer:
            data = answer.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        # Including HTTPError: a status that is not 200 is no key set.
        raise IssuerUnavailable(f"{_host(url)} did not answer ({type(error).__name__})") from None
    if len(data) > MOST_BYTES:
        raise IssuerUnavailable(f"{_host(url)} sent more than {MOST_BYTES:,} bytes")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        raise IssuerUnavailable(f"{_host(url)} sent something that is no JSON") from None


def _host(url: str) -> str:
    return urlsplit(url).hostname or "the issuer"

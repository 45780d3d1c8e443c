"""The public keys of an identity provider: fetched when they are needed, remembered, bounded in size and number.

Keys are fetched again when they have become old (in the background: nobody waits) and when a token names one that is
not among them (at most once in `AGAIN_S`: whoever makes up names of keys keeps neither us nor the issuer busy). An
issuer that does not answer changes nothing for as long as the keys that are there are not too old; without any, its
tokens are answered with 503, and everybody else is served as always.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from joserfc.jwk import ECKey, Key, OKPKey, RSAKey, import_key

from lakepact.kernel.ports import Clock
from lakepact.server.auth.errors import IssuerUnavailable
from lakepact.server.auth.issuer import Fetch, Kept, address, description, got, in_a_thread

MOST_KEYS: Final = 100
_RSA_BITS: Final = (2_048, 8_192)
"""Smaller ones prove nothing, larger ones take too long to check."""

_KINDS: Final[Mapping[str, type[Key]]] = {"RS": RSAKey, "PS": RSAKey, "ES": ECKey, "Ed": OKPKey}


class Jwks:
    def __init__(self, fetch: Fetch[Any], clock: Clock) -> None:
        """`fetch` gives the key set as a JSON document, or raises `IssuerUnavailable`."""

        async def imported() -> list[Key]:
            return _imported(await fetch())

        self._keys = Kept(imported, clock, "keys")

    async def key(self, kid: str | None, algorithm: str) -> Key | None:
        """The key of this name, or the only one for this algorithm. None: the issuer has none."""
        found = _named(await self._keys.value(), kid, algorithm)
        if found is None:
            await self._keys.look()
            found = _named(await self._keys.value(), kid, algorithm)
        return found


async def fetched_keys(issuer: str, jwks_url: str) -> list[Key]:
    """Fetch the issuer's keys now. Raises `IssuerUnavailable`."""
    return _imported(await over_http(issuer, jwks_url)())


def _named(keys: Sequence[Key], kid: str | None, algorithm: str) -> Key | None:
    kind = _KINDS.get(algorithm[:2])
    fitting = [key for key in keys if kind is not None and isinstance(key, kind) and _fits(key, algorithm)]
    if kid is not None:
        return next((key for key in fitting if key.kid == kid), None)
    return fitting[0] if len(fitting) == 1 else None


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


def over_http(issuer: str, jwks_url: str) -> Fetch[Any]:
    """The key set from its URL, or from the one that the issuer's own description names."""

    def fetch() -> Any:
        return got(jwks_url or address(description(issuer), "jwks_uri"))

    async def fetched() -> Any:
        return await in_a_thread(fetch)

    return fetched

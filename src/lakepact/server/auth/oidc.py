"""Tokens of an identity provider: JWTs with an asymmetric signature, for this server, from this issuer, of now.

Needs the extra `oidc`. Only algorithms that the settings list are looked at, and only asymmetric ones can be listed: a
public key is never used as a shared secret, and `none` is nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import orjson
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jws import JWSRegistry

from lakepact.access.claims import BadClaims, Expected, check_login, recognised
from lakepact.access.signed import decoded_part
from lakepact.kernel.ports import Clock
from lakepact.server.auth.bearer import MOST_BYTES, Recognised
from lakepact.server.auth.errors import Unrecognised
from lakepact.server.auth.jwks import Jwks

_MOST_KID: Final = 256
_NOT_A_TOKEN: Final = "this is neither a token of this server's nor of its identity provider's"


class _Registry(JWSRegistry):
    # Some issuers put certificates and words of their own into the header.
    max_header_length = 4_096
    max_payload_length = MOST_BYTES


class OidcTokens:
    def __init__(self, jwks: Jwks, expected: Expected, algorithms: frozenset[str], clock: Clock) -> None:
        self._jwks = jwks
        self._expected = expected
        self._algorithms = algorithms
        self._clock = clock
        self._registry = _Registry(algorithms=sorted(algorithms), strict_check_header=False)

    async def recognise(self, text: str) -> Recognised:
        """Whose token it is, if it is for this server."""
        return self._named(await self._claims(text), self._expected)

    async def identify(self, text: str, *, client_id: str, nonce: str) -> Recognised:
        """Whom an ID token names, if it was made for this client's login of this nonce. Raises `Unrecognised`."""
        if len(text) > MOST_BYTES or not text.isascii():
            raise Unrecognised(_NOT_A_TOKEN)
        claims = await self._claims(text)
        try:
            check_login(claims, client_id, nonce)
        except BadClaims as error:
            raise Unrecognised(f"the token is refused: {error}") from None
        return self._named(claims, replace(self._expected, audiences=frozenset({client_id})))

    async def _claims(self, text: str) -> dict[str, Any]:
        """What the token says, if its issuer has signed it."""
        header = decoded_part(text.partition(".")[0]) if text.count(".") == 2 else None
        if header is None:
            raise Unrecognised(_NOT_A_TOKEN)
        algorithm, kid = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._algorithms:
            raise Unrecognised("the token is signed in a way that oidc_algorithms does not list")
        if kid is not None and (not isinstance(kid, str) or len(kid) > _MOST_KID):
            raise Unrecognised(_NOT_A_TOKEN)
        if "crit" in header or "b64" in header:
            raise Unrecognised("the token asks for more than this server understands of tokens (crit, b64)")
        key = await self._jwks.key(kid, algorithm)
        if key is None:
            raise Unrecognised("the token is signed with a key that its issuer does not have")
        try:
            signed = jws.deserialize_compact(text, key, registry=self._registry)
            claims = orjson.loads(signed.payload)
        except (JoseError, ValueError, TypeError):
            raise Unrecognised("the token's signature is wrong") from None
        if not isinstance(claims, dict):
            raise Unrecognised(_NOT_A_TOKEN)
        return claims

    def _named(self, claims: Mapping[str, Any], expected: Expected) -> Recognised:
        try:
            principal, until_s = recognised(claims, expected, self._clock.now_ms() / 1000)
        except BadClaims as error:
            raise Unrecognised(f"the token is refused: {error}", expired=error.expired) from None
        return Recognised(principal, int(until_s * 1000))

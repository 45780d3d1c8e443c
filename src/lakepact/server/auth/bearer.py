"""Whose bearer token this is: an API token, an access token of this server's, or a token of an identity provider.

Each kind is told by its form and checked in its own way only, with its own keys, so none can pass for another. A
principal that was authenticated is cached for `remember_s`, by the hash of the header: that is how long a revoked token
may still be good, and all that authentication costs most requests. Failures are not cached.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Protocol

from lakepact.access.principal import Principal
from lakepact.access.secrets import Given, Secret, TokenId, parse
from lakepact.access.signed import key_id_of
from lakepact.kernel.ports import Clock
from lakepact.server.auth.errors import SEND_ONE, Expired, Unrecognised
from lakepact.server.auth.keys import SigningKeys
from lakepact.server.auth.tokens import Tokens

ACCESS: Final = "access"
"""What an access token is signed for."""

MOST_BYTES: Final = 16_384
_NO_TOKENS: Final = frozenset({b"", b"None", b"null", b"undefined"})
"""What clients send that were given none."""

_MOST_REMEMBERED: Final = 10_000
_SPACE: Final = ord(" ")


@dataclass(frozen=True, slots=True)
class Recognised:
    principal: Principal
    until_ms: int | None = None
    """When what they sent stops counting, whatever is done meanwhile. None: never."""

    token: TokenId | None = None
    """The API token behind it, if there is one, and the number of its secret."""

    secret: int = 0


class ForeignTokens(Protocol):
    """Tokens that somebody else has signed."""

    async def recognise(self, text: str) -> Recognised:
        """Raises `Unrecognised`, or `StoreUnavailable` while it cannot be told."""
        ...


class Bearers:
    def __init__(
        self,
        clock: Clock,
        *,
        tokens: Tokens | None,
        keys: SigningKeys | None,
        foreign: ForeignTokens | None,
        remember_s: float,
        expired_status: int = 401,
    ) -> None:
        self._clock = clock
        self._tokens = tokens
        self._keys = keys
        self._foreign = foreign
        self._remember_s = remember_s
        self._expired_status = expired_status
        self._remembered: dict[bytes, tuple[Recognised, float]] = {}

    def remembered(self, header: bytes) -> Principal | None:
        """Who was recognised by this header a moment ago."""
        found = self._remembered.get(_key_of(header))
        if found is None or self._clock.monotonic_s() >= found[1]:
            return None
        return found[0].principal

    async def recognise(self, header: bytes) -> Principal:
        """Whose `Authorization` header this is. Raises as `checked` does."""
        key = _key_of(header)
        try:
            found = await self.checked(_token_in(header))
        except Unrecognised:
            self._remembered.pop(key, None)
            raise
        self._remember(key, found)
        return found.principal

    async def checked(self, token: bytes) -> Recognised:
        """Whose token this is. Raises `Unrecognised`, and `StoreUnavailable` or its like while nobody can say."""
        if len(token) > MOST_BYTES:
            raise Unrecognised(f"the token is longer than {MOST_BYTES:,} bytes")
        try:
            return await self._by_kind(token.decode("ascii"))
        except UnicodeDecodeError:
            raise Unrecognised("the token is no token: it has characters that tokens do not have") from None
        except Unrecognised as error:
            if error.expired and self._expired_status == Expired.code:
                raise Expired(error.message, expired=True) from None
            raise

    async def access_token(self, text: str, *, even_expired: bool = False) -> Recognised:
        """Whose access token of this server's this is."""
        said = None if self._keys is None else await self._keys.verified(ACCESS, text)
        if said is None:
            raise Unrecognised("the access token is not one of this server's, or its signing key is gone; get another")
        if not even_expired and self._clock.now_ms() >= said["exp"] * 1000:
            raise Unrecognised("the access token has expired; get another", expired=True)
        token, secret = await self.live(TokenId(said["tid"]), said["sec"])
        return Recognised(token.principal, said["exp"] * 1000, token.id, secret.number)

    async def live(self, id: TokenId, secret_number: int) -> tuple[Given, Secret]:
        """The API token behind something that was given out for it, if it is still good."""
        token = None if self._tokens is None else await self._tokens.load(id)
        secret = None if token is None else token.secret(secret_number, self._clock.now_ms())
        if token is None or secret is None:
            raise Unrecognised("the API token behind it has been revoked or rotated; use the new one")
        if token.expired(self._clock.now_ms()):
            raise Unrecognised("the API token behind it has expired; ask for another", expired=True)
        return token, secret

    async def api_token(self, id: TokenId, sent: str) -> tuple[Given, Secret]:
        """The API token with this id and this secret."""
        token = None if self._tokens is None else await self._tokens.load(id)
        now_ms = self._clock.now_ms()
        secret = None if token is None else token.matching(sent, now_ms)
        if token is None or secret is None:
            raise Unrecognised("the API token is not in this server's store, or has been revoked or rotated")
        if token.expired(now_ms):
            raise Unrecognised("the API token has expired; ask for another", expired=True)
        return token, secret

    async def _by_kind(self, text: str) -> Recognised:
        if self._tokens is not None:
            ours = parse(text)
            if ours is not None:
                token, secret = await self.api_token(*ours)
                return Recognised(token.principal, token.ends_ms(secret), token.id, secret.number)
            if key_id_of(text, ACCESS) is not None:
                return await self.access_token(text)
        if self._foreign is not None:
            return await self._foreign.recognise(text)
        raise Unrecognised(
            "this is no token that this server has given out; make one with `lakepact tokens create` on its store"
        )

    def _remember(self, key: bytes, found: Recognised) -> None:
        for_s = self._remember_s
        if found.until_ms is not None:
            for_s = min(for_s, (found.until_ms - self._clock.now_ms()) / 1000)
        # Taken out first: what is remembered anew becomes the newest.
        self._remembered.pop(key, None)
        self._remembered[key] = (found, self._clock.monotonic_s() + for_s)
        while len(self._remembered) > _MOST_REMEMBERED:
            del self._remembered[next(iter(self._remembered))]


def _key_of(header: bytes) -> bytes:
    """What a header is remembered by: one token is one entry, however much white space is put around it."""
    plain = header.startswith(b"Bearer ") and len(header) > 7 and header[7] > _SPACE and header[-1] > _SPACE
    if not plain:
        scheme, _, sent = header.partition(b" ")
        header = b" ".join((scheme.capitalize(), sent.strip()))
    return hashlib.sha256(header).digest()


def _token_in(header: bytes) -> bytes:
    scheme, _, sent = header.partition(b" ")
    token = sent.strip()
    if scheme.lower() != b"bearer" or token in _NO_TOKENS:
        raise Unrecognised(f"the Authorization header has no bearer token; {SEND_ONE}")
    return token

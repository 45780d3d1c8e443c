"""API tokens: what they look like, what is kept of them, and whether one that was sent is one that was given out.

    lakepact_<id>_<secret>

The id names the cell in which the token is kept; the secret is 256 random bits. Only its SHA-256 is kept: a secret that
nobody can guess needs no slow hash, and a slow one would be a way to keep the server busy. What is compared is
compared in constant time. A token may have two secrets for a while: the one it has, and the one it had before it was
rotated. For OAuth the id is the client's id, and the secret the client's secret.

Pure: time and chance are arguments.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NewType, Self

from lakepact.access.principal import Principal
from lakepact.errors import InvalidRequest, Unreadable
from lakepact.kernel.keys import Key, key_of

TokenId = NewType("TokenId", str)

PREFIX: Final = "lakepact_"
ID_BITS: Final = 80
SECRET_BITS: Final = 256
MOST_GROUPS: Final = 100

_FORMAT: Final = 1
_ID: Final = re.compile(r"[a-z2-7]{16}")
_TEXT: Final = re.compile(r"lakepact_([a-z2-7]{16})_([a-z2-7]{52})")
_SECRET: Final = re.compile(r"[a-z2-7]{52}")
_MOST_CHARACTERS: Final = 256


@dataclass(frozen=True, slots=True)
class Secret:
    """What is kept of a secret."""

    number: int
    """Of the secrets of one token, the first is 1."""

    hash: str
    until_ms: int | None = None
    """When it stops counting: it has been rotated. None: it is the current one."""


@dataclass(frozen=True, slots=True)
class Given:
    """A token that was given out, as it is kept."""

    id: TokenId
    name: str
    account: str
    groups: frozenset[str]
    admin: bool
    created_ms: int
    expires_ms: int | None
    secrets: tuple[Secret, ...]
    """The current one first."""

    @property
    def principal(self) -> Principal:
        return Principal(self.name, self.account, self.groups, self.admin)

    def secret(self, number: int, now_ms: int) -> Secret | None:
        """A secret of this token, if it still counts."""
        return next((one for one in self.secrets if one.number == number and not _over(one.until_ms, now_ms)), None)

    def matching(self, sent: str, now_ms: int) -> Secret | None:
        """The secret that was sent, if it is one of this token's and still counts."""
        found = None
        hashed = hash_of(sent)
        for one in self.secrets:
            # All of them, always: how long it takes says nothing about which.
            if hmac.compare_digest(one.hash, hashed):
                found = one
        return None if found is None or _over(found.until_ms, now_ms) else found

    def expired(self, now_ms: int) -> bool:
        return _over(self.expires_ms, now_ms)

    def ends_ms(self, secret: Secret) -> int | None:
        """When this secret of this token stops counting, as far as that is known."""
        return min((one for one in (self.expires_ms, secret.until_ms) if one is not None), default=None)

    def rotated(self, hash: str, now_ms: int, grace_ms: int) -> Given:
        """With a new secret. The one it had counts for the time of grace; older ones no longer."""
        current = self.secrets[0]
        before = (replace(current, until_ms=now_ms + grace_ms),) if grace_ms > 0 else ()
        return replace(self, secrets=(Secret(current.number + 1, hash), *before))

    def to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "name": self.name,
            "account": self.account,
            "groups": sorted(self.groups),
            "admin": self.admin,
            "created_ms": self.created_ms,
            "expires_ms": self.expires_ms,
            "secrets": [{"number": one.number, "hash": one.hash, "until_ms": one.until_ms} for one in self.secrets],
        }

    @classmethod
    def of(cls, id: TokenId, value: Mapping[str, Any]) -> Self:
        """From its cell. What cannot be understood lets nobody in."""
        try:
            if value["format"] != _FORMAT:
                raise ValueError(f"format {value['format']!r}")
            return cls(
                id=id,
                name=value["name"],
                account=value["account"],
                groups=frozenset(value["groups"]),
                admin=value["admin"] is True,
                created_ms=int(value["created_ms"]),
                expires_ms=None if value["expires_ms"] is None else int(value["expires_ms"]),
                secrets=tuple(Secret(one["number"], one["hash"], one["until_ms"]) for one in value["secrets"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise Unreadable(f"token {id} cannot be understood ({error}); revoke it and make another") from None


def new_id(bits: int) -> TokenId:
    """From `ID_BITS` random bits."""
    return TokenId(_base32(bits, ID_BITS))


def new_secret(bits: int) -> str:
    """From `SECRET_BITS` random bits."""
    return _base32(bits, SECRET_BITS)


def text_of(id: TokenId, secret: str) -> str:
    """The token as it is shown, once."""
    return f"{PREFIX}{id}_{secret}"


def parse(text: str) -> tuple[TokenId, str] | None:
    """The id and the secret of a token. None: this is no token of ours."""
    found = _TEXT.fullmatch(text)
    return None if found is None else (TokenId(found[1]), found[2])


def parse_client(client_id: str, client_secret: str) -> tuple[TokenId, str] | None:
    """The same from an OAuth client's id and secret. The whole token may stand for both."""
    whole = parse(client_secret)
    if whole is not None:
        return whole if client_id in ("", whole[0]) else None
    if not _ID.fullmatch(client_id) or not _SECRET.fullmatch(client_secret):
        return None
    return TokenId(client_id), client_secret


def hash_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def token_id(text: str) -> TokenId:
    """An id as somebody has written it, perhaps with everything around it. Raises `InvalidRequest`."""
    whole = parse(text)
    if whole is not None:
        return whole[0]
    if not _ID.fullmatch(text):
        raise InvalidRequest("this is not the id of a token: 16 letters and digits, as `lakepact tokens list` shows it")
    return TokenId(text)


def key_of_token(id: TokenId) -> Key:
    return key_of("lakepact", "tokens", id)


def checked_name(what: str, text: str) -> str:
    """A name that grants and receipts can keep. Raises `InvalidRequest`."""
    if not text or len(text) > _MOST_CHARACTERS or not text.isprintable() or text != text.strip():
        raise InvalidRequest(
            f"{what} has 1 to {_MOST_CHARACTERS} printable characters and no space at its ends, not {text[:80]!r}"
        )
    return text


def checked_groups(groups: frozenset[str]) -> frozenset[str]:
    if len(groups) > MOST_GROUPS:
        raise InvalidRequest(f"a token has at most {MOST_GROUPS} groups, not {len(groups)}")
    return frozenset(checked_name("a group", one) for one in groups)


def _base32(bits: int, count: int) -> str:
    return base64.b32encode(bits.to_bytes(count // 8, "big")).decode().rstrip("=").lower()


def _over(until_ms: int | None, now_ms: int) -> bool:
    return until_ms is not None and now_ms >= until_ms

"""What a token of an identity provider must say before anybody is recognised by it, and whom it then names.

Pure: the signature has been checked by others, and time is an argument.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lakepact.access.principal import Principal

MOST_GROUPS: Final = 1_000
_MOST_CHARACTERS: Final = 256
_LATEST_S: Final = 253_402_300_800.0
"""The year 10000. Whatever lies beyond is no time."""


class BadClaims(Exception):
    """The token is genuine, and lets nobody in: the text says why, and holds no part of the token."""

    def __init__(self, text: str, *, expired: bool = False) -> None:
        super().__init__(text)
        self.expired = expired


@dataclass(frozen=True, slots=True)
class Expected:
    """What this server expects of a token, and where in it a principal is found."""

    issuer: str
    audiences: frozenset[str]
    leeway_s: float = 60.0
    name: str = "sub"
    account: str | None = None
    """The claim that names the account. None: everybody is in `default_account`."""

    default_account: str = "default"
    groups: str | None = "groups"
    admin_groups: frozenset[str] = frozenset()


def recognised(claims: Mapping[str, Any], expected: Expected, now_s: float) -> tuple[Principal, float]:
    """Who it is, and until when the token says so. Raises `BadClaims`."""
    _check_issuer(claims, expected)
    until_s = _check_times(claims, expected, now_s)
    groups = _groups(claims, expected)
    return (
        Principal(
            name=_name(claims, expected.name),
            account=expected.default_account if expected.account is None else _name(claims, expected.account),
            groups=groups,
            admin=not groups.isdisjoint(expected.admin_groups),
        ),
        until_s,
    )


def check_login(claims: Mapping[str, Any], client_id: str, nonce: str) -> None:
    """An ID token was made for this client and the login that this nonce was sent with. Raises `BadClaims` if not."""
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if client_id not in named:
        raise BadClaims("it is for another client than oidc_client_id names")
    # Among several it must say who of them has asked for it; if it says so at all, it is this one.
    if (len(named) > 1 or "azp" in claims) and claims.get("azp") != client_id:
        raise BadClaims("it was made for another client than oidc_client_id names (azp)")
    said = claims.get("nonce")
    if not isinstance(said, str) or not hmac.compare_digest(said.encode(), nonce.encode()):
        raise BadClaims("it was made for another login (nonce)")


def _check_issuer(claims: Mapping[str, Any], expected: Expected) -> None:
    if claims.get("iss") != expected.issuer:
        raise BadClaims("it is from another issuer than oidc_issuer names")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(one, str) and one in expected.audiences for one in named):
        raise BadClaims("it is for another audience than oidc_audience names")


def _check_times(claims: Mapping[str, Any], expected: Expected, now_s: float) -> float:
    until_s = _time(claims, "exp")
    if until_s is None:
        raise BadClaims("it does not say when it expires (exp)")
    if now_s >= until_s + expected.leeway_s:
        raise BadClaims("it has expired", expired=True)
    for claim in ("nbf", "iat"):
        begins_s = _time(claims, claim)
        if begins_s is not None and begins_s > now_s + expected.leeway_s:
            raise BadClaims(f"it is not valid yet ({claim}); compare the clocks")
    return until_s + expected.leeway_s


def _time(claims: Mapping[str, Any], claim: str) -> float | None:
    value = claims.get(claim)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LATEST_S:
        raise BadClaims(f"its claim {claim} is no time")
    return float(value)


def _name(claims: Mapping[str, Any], path: str) -> str:
    value = claim_at(claims, path)
    if not isinstance(value, str) or not value.strip():
        raise BadClaims(f"its claim {path} is missing, or is no text")
    if not _is_name(value):
        raise BadClaims(
            f"its claim {path} is not a name: 1 to {_MOST_CHARACTERS} printable characters, no space at either end"
        )
    return value


def _is_name(text: str) -> bool:
    """Whether a grant can name this principal or group: two names that look the same must not be two."""
    return 0 < len(text) <= _MOST_CHARACTERS and text.isprintable() and text == text.strip()


def _groups(claims: Mapping[str, Any], expected: Expected) -> frozenset[str]:
    if expected.groups is None:
        return frozenset()
    value = claim_at(claims, expected.groups)
    if value is None:
        return frozenset()
    named = [value] if isinstance(value, str) else value
    if not isinstance(named, list) or len(named) > MOST_GROUPS or not all(isinstance(one, str) for one in named):
        raise BadClaims(f"its claim {expected.groups} is not a list of at most {MOST_GROUPS} names")
    # No grant can name the others.
    return frozenset(filter(_is_name, named))


def claim_at(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by the way to it through objects: `realm_access.roles`. A name may itself have dots."""
    if path in claims:
        return claims[path]
    found: Any = claims
    for part in path.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found

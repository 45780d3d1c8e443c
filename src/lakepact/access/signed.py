"""Small statements that this server signs itself: access tokens, sessions.

A statement is a JSON object in the compact form of RFC 7515, with HMAC-SHA-256: clients that look for the expiry of
their token find it. There is one algorithm, and a header that says anything else is no statement of ours; nothing that
others have signed is ever checked here, and nothing of ours anywhere else.

Pure: keys and time are arguments. Each purpose has a key of its own, derived from the server's, so that a session is
never taken for an access token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

MOST_BYTES: Final = 4_096
_ALGORITHM: Final = "HS256"


@dataclass(frozen=True, slots=True)
class SigningKey:
    id: str
    secret: bytes = field(repr=False)

    def for_purpose(self, purpose: str) -> bytes:
        return hmac.digest(self.secret, purpose.encode(), hashlib.sha256)


def sign(key: SigningKey, purpose: str, statement: Mapping[str, Any]) -> str:
    header = {"alg": _ALGORITHM, "kid": key.id, "typ": _typ(purpose)}
    signed = f"{_encoded(orjson.dumps(header))}.{_encoded(orjson.dumps(dict(statement)))}"
    return f"{signed}.{_encoded(_mac(key, purpose, signed))}"


def key_id_of(text: str, purpose: str) -> str | None:
    """The id of the key that a statement of this purpose says it is signed with. None: it is none of ours."""
    if len(text) > MOST_BYTES or text.count(".") != 2 or not text.isascii():
        return None
    header = decoded_part(text.partition(".")[0])
    if header is None or header.get("alg") != _ALGORITHM or header.get("typ") != _typ(purpose):
        return None
    key_id = header.get("kid")
    return key_id if isinstance(key_id, str) else None


def verify(key: SigningKey, purpose: str, text: str) -> dict[str, Any] | None:
    """What the statement says, if it was signed with this key for this purpose. Its time is the caller's to look at."""
    if key_id_of(text, purpose) != key.id:
        return None
    signed, _, mac = text.rpartition(".")
    sent = _decoded(mac)
    if sent is None or not hmac.compare_digest(sent, _mac(key, purpose, signed)):
        return None
    return decoded_part(signed.partition(".")[2])


def _typ(purpose: str) -> str:
    return f"lakepact-{purpose}"


def _mac(key: SigningKey, purpose: str, signed: str) -> bytes:
    return hmac.digest(key.for_purpose(purpose), signed.encode(), hashlib.sha256)


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes | None:
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    # One spelling: bits that do not count are zero.
    return data if _encoded(data) == text else None


def decoded_part(text: str) -> dict[str, Any] | None:
    """The JSON object in one part of a compact token, of whoever's making."""
    data = _decoded(text)
    if data is None:
        return None
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None

"""AWS Signature Version 4: pure, for requests whose path and query are already in their one canonical spelling."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class Keys:
    access_key_id: str
    secret: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)
    expires_ms: int | None = None
    """None: they do not expire."""


def encoded(text: str, *, slashes: bool = False) -> str:
    """As the algorithm spells it: everything but letters, digits and `-_.~` in upper-case escapes."""
    return quote(text, safe="/-_.~" if slashes else "-_.~")


def canonical_query(fields: Sequence[tuple[str, str]]) -> str:
    return "&".join(f"{name}={value}" for name, value in sorted((encoded(n), encoded(v)) for n, v in fields))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def signed_headers(
    method: str,
    path: str,
    query: str,
    headers: Mapping[str, str],
    payload_hash: str,
    keys: Keys,
    *,
    region: str,
    service: str,
    now_ms: int,
) -> dict[str, str]:
    """`headers`, which must hold `host`, with the date, the token and the authorization; names in lower case.

    All of them are signed. `path` and `query` are in their canonical spelling, `payload_hash` is what the service is to
    find as the body's.
    """
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    signed = {**headers, "x-amz-date": moment}
    if keys.session_token is not None:
        signed["x-amz-security-token"] = keys.session_token
    names = sorted(signed)
    canonical = "\n".join(
        [
            method,
            path,
            query,
            *(f"{name}:{' '.join(signed[name].split())}" for name in names),
            "",
            ";".join(names),
            payload_hash,
        ]
    )
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    to_sign = "\n".join([_ALGORITHM, moment, scope, sha256(canonical.encode())])
    key = f"AWS4{keys.secret}".encode()
    for part in (moment[:8], region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    credential = f"{keys.access_key_id}/{scope}"
    signed["authorization"] = (
        f"{_ALGORITHM} Credential={credential}, SignedHeaders={';'.join(names)}, Signature={signature}"
    )
    return signed

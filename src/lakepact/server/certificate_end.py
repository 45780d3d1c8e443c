"""Until when a certificate is good.

Python's `ssl` tells that of others' certificates and not of one's own, and a library that does is large for one date. A
certificate (RFC 5280) is a sequence of parts, each with a tag and a length, and its last day is at a known place.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from typing import Final

_ONE: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----([^-]+)-----END ", re.ASCII)
_VERSION: Final = 0xA0
_TWO_DIGITS: Final = 0x17
"""The tag of a time whose year has two digits: those from 50 on are of the last century."""


def ends_at_s(chain: bytes) -> float | None:
    """When the first of these certificates in PEM ends, in seconds since 1970: with it the whole chain does. None: it
    cannot be told."""
    try:
        return min(_end(base64.b64decode(one)) for one in _ONE.findall(chain))
    except (ValueError, IndexError):
        return None


def _end(certificate: bytes) -> float:
    _, at, _ = _part(certificate, 0)
    _, at, _ = _part(certificate, at)
    tag, _, end = _part(certificate, at)
    if tag == _VERSION:
        at = end
    for _ in ("serial number", "signature", "issuer"):
        _, _, at = _part(certificate, at)
    _, at, _ = _part(certificate, at)
    _, _, at = _part(certificate, at)  # its first day
    tag, at, end = _part(certificate, at)
    text = certificate[at:end].decode("ascii")
    if tag == _TWO_DIGITS:
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _part(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of the part that begins here, and where its content begins and ends."""
    tag, length, at = der[at], der[at + 1], at + 2
    if length >= 0x80:
        size = length - 0x80
        length, at = int.from_bytes(der[at : at + size]), at + size
    return tag, at, at + length

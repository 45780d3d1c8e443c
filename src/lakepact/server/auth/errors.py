"""What is said to those who are not recognised. No text here holds any part of what they sent."""

from __future__ import annotations

from typing import ClassVar, Final

from lakepact.catalog.errors import Refusal
from lakepact.errors import StoreUnavailable

REALM: Final = "lakepact"
SEND_ONE: Final = (
    "send `Authorization: Bearer <token>` (Lakepact's own commands and client take it from LAKEPACT_TOKEN). `lakepact "
    "tokens create` on this server's store makes one, or your identity provider does"
)


class Unrecognised(Refusal):
    """Who is asking? Nothing happened."""

    type: ClassVar[str] = "NotAuthorizedException"
    code: ClassVar[int] = 401

    def __init__(self, message: str, *, missing: bool = False, expired: bool = False) -> None:
        super().__init__(message)
        self.missing = missing
        """Nothing was sent to recognise them by."""

        self.expired = expired


class Expired(Unrecognised):
    """The same for a token that was good once, where the settings ask for a status of its own."""

    type: ClassVar[str] = "AuthenticationTimeoutException"
    code: ClassVar[int] = 419


class NotAllowed(Refusal):
    """Recognised, and not allowed. Nothing happened."""

    type: ClassVar[str] = "ForbiddenException"
    code: ClassVar[int] = 403


class NoSuchToken(Refusal):
    type: ClassVar[str] = "NoSuchTokenException"
    code: ClassVar[int] = 404


class TooManyRequests(Refusal):
    """Nothing happened; come back later."""

    type: ClassVar[str] = "TooManyRequestsException"
    code: ClassVar[int] = 429

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


def challenge(error: Unrecognised) -> bytes:
    """The value of WWW-Authenticate, as RFC 6750 has it."""
    if error.missing:
        return f'Bearer realm="{REALM}"'.encode()
    said = error.message.replace("\\", "").replace('"', "'")
    return f'Bearer realm="{REALM}", error="invalid_token", error_description="{said}"'.encode("ascii", "replace")


class IssuerUnavailable(StoreUnavailable):
    """The identity provider's keys cannot be had, so nobody can say whose token it is. Nothing happened; try again."""

    type: ClassVar[str] = "issuer-unavailable"

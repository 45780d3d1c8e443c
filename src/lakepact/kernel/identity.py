"""Transaction ids: UUIDv7, so that an id alone tells the day its record is filed under.

Time and randomness are arguments; nothing here reads a clock.
"""

from __future__ import annotations

import hashlib
import uuid
from datetime import UTC, datetime
from typing import NewType

from lakepact.errors import InvalidTransactionId

TransactionId = NewType("TransactionId", str)

_DAY_MS = 86_400_000
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the last one that has a date path."""


def uuid4(random_bits: int) -> str:
    """A random UUID, from at least 122 random bits."""
    return str(uuid.UUID(int=random_bits & (1 << 128) - 1, version=4))


def uuid7(now_ms: int, random_bits: int) -> TransactionId:
    """A UUIDv7 of this instant. `random_bits` is at least 74 random bits."""
    value = (now_ms & 0xFFFF_FFFF_FFFF) << 80
    value |= 0x7 << 76
    value |= ((random_bits >> 62) & 0xFFF) << 64
    value |= 0b10 << 62
    value |= random_bits & 0x3FFF_FFFF_FFFF_FFFF
    return TransactionId(str(uuid.UUID(int=value)))


def parse_transaction_id(text: str) -> TransactionId:
    """The canonical form of an id a caller gave, or an error that says what an id is."""
    try:
        parsed = uuid.UUID(text)
    except (ValueError, AttributeError, TypeError):
        parsed = None
    if parsed is None or parsed.version != 7 or parsed.variant != uuid.RFC_4122 or parsed.int >> 80 > _LAST_MS:
        # The same for who looks one up and for who begins something.
        raise InvalidTransactionId(
            f"{text!r} is not a transaction id: that is a UUIDv7, such as 0199c8a5-7c00-7000-8000-000000000000. Copy "
            f"the whole id from where it was shown; for a new request (Idempotency-Key) generate one"
        )
    return TransactionId(str(parsed))


def timestamp_ms(transaction_id: TransactionId) -> int:
    """When the id was made, by the clock of whoever made it."""
    return int(transaction_id[:8] + transaction_id[9:13], 16)


def derived_id(transaction_id: TransactionId, what: str) -> TransactionId:
    """The id of what is done once for this transaction, whoever does it and how often they try."""
    digest = hashlib.sha256(f"{what} of {transaction_id}".encode()).digest()
    return uuid7(timestamp_ms(transaction_id), int.from_bytes(digest[:10]))


def first_id_of(made_ms: int) -> TransactionId:
    """The smallest id made at this instant: where a listing from then on begins."""
    return uuid7(min(max(made_ms, 0), _LAST_MS), 0)


def check_horizon(transaction_id: TransactionId, now_ms: int, horizon_days: int, max_ahead_s: float) -> None:
    """Refuse ids whose records may already have been collected, and ids from a clock that runs far ahead.

    Without this an id could be used again after its record was collected, and take effect a second time.
    """
    made_ms = timestamp_ms(transaction_id)
    if made_ms < now_ms - horizon_days * _DAY_MS:
        raise InvalidTransactionId(
            f"transaction id {transaction_id} is older than {horizon_days} days; retries end there. Use a new UUIDv7"
        )
    if made_ms > now_ms + max_ahead_s * 1000:
        raise InvalidTransactionId(
            f"transaction id {transaction_id} is dated in the future; check the clock of whoever made it"
        )


def date_path(transaction_id: TransactionId) -> str:
    """The `yyyy/mm/dd` (UTC) under which this transaction's documents are filed."""
    return datetime.fromtimestamp(timestamp_ms(transaction_id) / 1000, UTC).strftime("%Y/%m/%d")

"""Transaction ids are UUIDv7, and an id alone tells the day of its record."""

from __future__ import annotations

import uuid

import pytest

from lakepact.errors import InvalidTransactionId
from lakepact.kernel.identity import check_horizon, date_path, parse_transaction_id, timestamp_ms, uuid7

DAY_MS = 86_400_000
NOW_MS = 1_760_000_000_000


def test_an_id_carries_its_instant_and_is_a_version_7_uuid() -> None:
    made = uuid7(NOW_MS, (1 << 74) - 1)
    assert timestamp_ms(made) == NOW_MS
    assert uuid.UUID(made).version == 7
    assert uuid.UUID(made).variant == uuid.RFC_4122
    assert date_path(made) == "2025/10/09"


def test_ids_sort_by_their_instant() -> None:
    assert uuid7(NOW_MS, (1 << 74) - 1) < uuid7(NOW_MS + 1, 0)


def test_an_id_has_one_canonical_form() -> None:
    made = uuid7(NOW_MS, 5)
    assert parse_transaction_id(made.upper().replace("-", "")) == made


@pytest.mark.parametrize("text", ["", "7", "not-an-id", str(uuid.UUID(int=0)), "f47ac10b-58cc-4372-a567-0e02b2c3d479"])
def test_anything_else_is_refused_and_the_message_says_what_an_id_is(text: str) -> None:
    with pytest.raises(InvalidTransactionId, match="UUIDv7"):
        parse_transaction_id(text)


def test_an_id_beyond_the_horizon_is_refused_because_its_record_may_be_gone() -> None:
    check_horizon(uuid7(NOW_MS - 30 * DAY_MS, 0), NOW_MS, horizon_days=30, max_ahead_s=60)
    with pytest.raises(InvalidTransactionId, match="older than 30 days"):
        check_horizon(uuid7(NOW_MS - 30 * DAY_MS - 1, 0), NOW_MS, horizon_days=30, max_ahead_s=60)


def test_an_id_from_a_clock_far_ahead_is_refused() -> None:
    check_horizon(uuid7(NOW_MS + 60_000, 0), NOW_MS, horizon_days=30, max_ahead_s=60)
    with pytest.raises(InvalidTransactionId, match="future"):
        check_horizon(uuid7(NOW_MS + 60_001, 0), NOW_MS, horizon_days=30, max_ahead_s=60)

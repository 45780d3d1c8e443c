"""For how long removed files are kept: by Delta's own words, and long if they are not understood."""

from __future__ import annotations

import pytest

from lakepact.delta.retention import DEFAULT_MS, PROPERTY, deleted_file_retention_ms

DAY = 86_400_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 1 week", 7 * DAY),
        ("interval 30 days", 30 * DAY),
        ("INTERVAL 2 Hours", 7_200_000),
        ("interval 1 day 12 hours", DAY + DAY // 2),
        ("0 seconds", 0),
        ("interval 1 month", DEFAULT_MS),
        ("interval -1 days", DEFAULT_MS),
        ("soon", DEFAULT_MS),
        ("", DEFAULT_MS),
    ],
)
def test_what_it_says(text: str, expected: int) -> None:
    assert deleted_file_retention_ms({PROPERTY: text}) == expected


def test_without_a_word_it_is_a_week() -> None:
    assert deleted_file_retention_ms({}) == DEFAULT_MS == 7 * DAY

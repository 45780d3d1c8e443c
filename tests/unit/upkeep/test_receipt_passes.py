"""Passes over recent records: they cost a bounded share, however much is committed."""

from __future__ import annotations

from lakepact.upkeep.receipts import rest_s


def test_a_pass_over_few_records_is_repeated_at_once() -> None:
    assert rest_s(0) == rest_s(1_000) == 0


def test_the_rest_after_a_pass_grows_with_what_it_has_read_up_to_a_bound() -> None:
    assert 0 < rest_s(2_000) < rest_s(5_000)
    assert rest_s(1_000_000) == rest_s(10_000_000) == 300

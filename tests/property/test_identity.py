"""Ids keep their instant, whatever it is, and sort by it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakepact.kernel.identity import parse_transaction_id, timestamp_ms, uuid7

instants = st.integers(0, 253_402_300_799_999)
bits = st.integers(0, (1 << 74) - 1)


@given(instants, bits)
def test_an_id_keeps_its_instant_and_is_canonical(now_ms: int, random_bits: int) -> None:
    made = uuid7(now_ms, random_bits)
    assert timestamp_ms(made) == now_ms
    assert parse_transaction_id(made) == made


@given(instants, bits, bits)
def test_all_74_random_bits_count(now_ms: int, one: int, other: int) -> None:
    assert (uuid7(now_ms, one) == uuid7(now_ms, other)) == (one == other)


@given(instants, instants, bits, bits)
def test_ids_sort_by_their_instant(one_ms: int, other_ms: int, one: int, other: int) -> None:
    if one_ms < other_ms:
        assert uuid7(one_ms, one) < uuid7(other_ms, other)

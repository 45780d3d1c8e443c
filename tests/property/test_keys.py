"""Keys: one spelling each, names that are safe everywhere, and no two keys with one name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakepact.errors import IllegalKey
from lakepact.kernel.keys import check_key, key_of, name_of_cell, name_prefix_of_cells, segments_of

segment = st.text(st.characters(exclude_categories=("Cc", "Cs")), min_size=1, max_size=40)
segments = st.lists(segment, min_size=1, max_size=5)
SAFE_NAME = re.compile(r"cells(/[a-z0-9_%~-]+)+\.json")


@given(segments)
def test_segments_survive_the_round_trip(parts: list[str]) -> None:
    assert segments_of(key_of(*parts)) == tuple(parts)


@given(segments, segments)
def test_two_keys_share_a_name_only_if_they_are_equal(one: list[str], two: list[str]) -> None:
    assert (name_of_cell(key_of(*one)) == name_of_cell(key_of(*two))) == (one == two)


@given(segments)
def test_names_are_safe_file_names(parts: list[str]) -> None:
    name = name_of_cell(key_of(*parts))
    assert SAFE_NAME.fullmatch(name)
    assert all(len(part) <= 200 for part in name.split("/"))


@given(segments, segment)
def test_a_cell_lies_below_every_prefix_of_its_key(parts: list[str], last: str) -> None:
    name = name_of_cell(key_of(*parts, last))
    for length in range(len(parts) + 1):
        assert name.startswith(name_prefix_of_cells(key_of(*parts[:length]) if length else ""))


@given(st.lists(segment, min_size=2, max_size=20, unique=True))
def test_keys_sort_as_their_utf8_does(parts: list[str]) -> None:
    keys = [key_of(part) for part in parts]
    assert sorted(keys) == sorted(keys, key=lambda key: key.encode("utf-8"))


def test_a_long_segment_keeps_its_beginning_and_differs_by_its_digest() -> None:
    one, two = name_of_cell(key_of("x" * 300)), name_of_cell(key_of("x" * 301))
    assert one != two
    assert one.startswith("cells/" + "x" * 100 + "~")


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "empty segment"),
        ("a//b", "empty segment"),
        ("/a", "empty segment"),
        ("a/", "empty segment"),
        ("a\x00b", "control character"),
        ("a\nb", "control character"),
        ("50%", "canonical form"),
        ("a%2fb", "canonical form"),
        ("\ud800", "not valid Unicode"),
        ("x" * 513, "513 bytes"),
        ("/".join(["é" * 29] * 8), "as a name"),
    ],
)
def test_an_illegal_key_is_refused_with_a_reason(key: str, message: str) -> None:
    with pytest.raises(IllegalKey, match=message):
        check_key(key, 512)

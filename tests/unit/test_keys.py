"""Keys have one spelling, and names are safe everywhere."""

from __future__ import annotations

import pytest

from lakepact.errors import IllegalKey
from lakepact.kernel.keys import Key, check_key, key_of, name_of_cell, name_prefix_of_cells, segments_of

LIMIT = 512


def test_a_key_is_its_segments_joined_and_only_slash_and_percent_are_escaped() -> None:
    assert key_of("main", "names", "a/b", "50%") == "main/names/a%2Fb/50%25"
    assert segments_of(key_of("main", "a/b", "50%")) == ("main", "a/b", "50%")


def test_escaped_text_that_looks_like_an_escape_comes_back_as_it_was() -> None:
    assert segments_of(key_of("%2F", "%252F")) == ("%2F", "%252F")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("", "empty segment"),
        ("a//b", "empty segment"),
        ("a/", "empty segment"),
        ("a\nb", "control character"),
        ("a%b", "canonical"),
        ("a%2fb", "canonical"),
        ("x" * (LIMIT + 1), "limit is 512"),
        ("\ud800", "Unicode"),
    ],
)
def test_an_illegal_key_is_refused_with_the_reason(key: str, reason: str) -> None:
    with pytest.raises(IllegalKey, match=reason):
        check_key(key, LIMIT)


def test_names_do_not_depend_on_the_case_of_a_file_system() -> None:
    assert name_of_cell(Key("Orders")) == "cells/%4frders.json"
    assert name_of_cell(Key("Orders")).lower() != name_of_cell(Key("orders")).lower()


def test_a_segment_too_long_for_a_file_name_ends_in_a_digest_and_stays_distinct() -> None:
    one, other = name_of_cell(Key("x" * 300 + "1")), name_of_cell(Key("x" * 300 + "2"))
    assert one != other
    assert all(len(part) < 255 for name in (one, other) for part in name.split("/"))


def test_a_cell_and_the_cells_below_it_do_not_share_a_name() -> None:
    assert name_of_cell(Key("a")) == "cells/a.json"
    assert name_prefix_of_cells("a") == "cells/a/"
    assert name_prefix_of_cells("") == "cells/"

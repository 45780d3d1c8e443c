"""Names are strings with dots, or tuples; in paths every character of them survives."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from lakepact.client.names import levels_segment, namespace_name, segment, shown, table_name


def test_a_string_is_split_at_its_dots_and_a_tuple_is_not() -> None:
    assert table_name("sales.eu.orders") == ("sales", "eu", "orders")
    assert table_name(("sales", "orders.2026")) == ("sales", "orders.2026")


@pytest.mark.parametrize("name", ["orders", "", ".orders", "a..b", ("orders",), ()])
def test_a_table_needs_a_namespace_and_no_level_is_empty(name: str | tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"sales"):
        table_name(name)


def test_a_level_with_a_dot_is_shown_quoted() -> None:
    assert shown(("sales", "orders.2026")) == 'sales."orders.2026"'


def test_every_character_of_a_name_survives_a_path() -> None:
    name = "a b/c?d#e%f+g@é\x1f"
    assert "/" not in segment(name)
    assert unquote(segment(name)) == name
    assert levels_segment(namespace_name(("a b", "c/d"))) == "a%20b%1Fc%2Fd"

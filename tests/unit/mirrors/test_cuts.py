"""Cuts fold: a whole one and what later commits have moved is a whole one."""

from __future__ import annotations

from lakepact.delta.checkpoint import newest_due
from lakepact.mirrors.cuts import Cut


def test_a_later_commit_moves_its_tables_and_leaves_the_others() -> None:
    whole = Cut(1, "one", 10, {"a": 1, "b": 1})
    assert whole.then(Cut(2, "two", 20, {"b": 2, "c": 0})) == Cut(2, "two", 20, {"a": 1, "b": 2, "c": 0})


def test_a_dropped_table_is_gone() -> None:
    assert Cut(1, "one", 10, {"a": 1, "b": 1}).then(Cut(2, "two", None, {"a": None})) == Cut(2, "two", 10, {"b": 1})


def test_a_table_that_falls_behind_is_not_among_the_others_at_an_old_version() -> None:
    behind = Cut(1, "one", 10, {"a": 1, "b": 1}).then(Cut(2, "two", 20, {"a": 2}, {"b": 2}))
    assert behind == Cut(2, "two", 20, {"a": 2}, {"b": 2})
    assert behind.then(Cut(3, "three", 30, {"a": 3})).behind == {"b": 2}
    assert behind.then(Cut(3, "three", 30, {"b": 3})) == Cut(3, "three", 30, {"a": 2, "b": 3})
    assert behind.then(Cut(3, "three", 30, {"b": None})) == Cut(3, "three", 30, {"a": 2})


def test_a_manifest_says_the_same_in_the_same_bytes() -> None:
    one = Cut(7, "id", 5, {"b": 2, "a": 1}, {"d": 1, "c": 2})
    other = Cut(7, "id", 5, {"a": 1, "b": 2}, {"c": 2, "d": 1})
    assert one.to_bytes() == other.to_bytes()
    assert Cut.of(one.to_bytes()) == one


def test_checkpoints_are_due_every_ten_versions_and_only_the_newest_when_many_are_missing() -> None:
    assert [newest_due(version - 1, version) for version in (0, 1, 9, 10, 11, 20)] == [None, None, None, 10, None, 20]
    assert newest_due(-1, 0) is None
    assert newest_due(-1, 105) == 100
    assert newest_due(100, 105) is None
    assert newest_due(9, 10) == 10

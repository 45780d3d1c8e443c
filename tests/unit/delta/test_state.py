"""Folding: what a table is after some versions, and several changes as one version."""

from __future__ import annotations

import pytest

from lakepact.delta.actions import Action, Cdc, DomainMetadata, Txn
from lakepact.delta.errors import BadAction, BadLog
from lakepact.delta.protocol import MANAGED
from lakepact.delta.state import Replay, fold, replay
from tests.unit.delta.tables import CREATION, META, add, remove


def test_the_newest_action_for_a_file_wins() -> None:
    state = replay([CREATION, [add("a"), add("b")], [remove("a"), Txn("app", 1)], [add("c"), Txn("app", 2)]])
    assert state.version == 3
    assert sorted(path for path, _ in state.files) == ["b", "c"]
    assert list(state.tombstones) == [("a", "")]
    assert state.transactions == {"app": Txn("app", 2)}
    assert state.size_bytes == 200
    assert (state.protocol, state.metadata) == (MANAGED, META)


def test_a_file_that_comes_back_leaves_its_tombstone() -> None:
    state = replay([CREATION, [add("a")], [remove("a")], [add("a")]])
    assert list(state.files) == [("a", "")] and not state.tombstones


def test_a_domain_that_was_removed_is_not_there() -> None:
    state = replay([CREATION, [DomainMetadata("d", "1"), DomainMetadata("e", "2")], [DomainMetadata("d", "", True)]])
    assert list(state.domains) == ["e"]


def test_a_state_is_what_its_actions_make() -> None:
    state = replay([CREATION, [add("a"), add("b"), Txn("x", 1), DomainMetadata("d", "1")], [remove("a")]])
    again = Replay()
    again.take(state.actions())
    again.version = state.version
    assert again.state() == state


def test_versions_have_no_gaps_and_begin_with_protocol_and_metadata() -> None:
    with pytest.raises(BadLog, match="version 2 cannot follow version 0"):
        folded = Replay()
        folded.apply(0, CREATION)
        folded.apply(2, [])
    with pytest.raises(BadLog, match="no version up to 0 has a metaData"):
        replay([[MANAGED]])


def test_a_file_added_and_removed_in_one_transaction_was_never_there() -> None:
    assert fold([[add("a"), add("b")], [remove("a")]]) == [add("b")]


def test_a_file_that_was_there_stays_removed_whatever_happened_between() -> None:
    assert fold([[remove("a")], [add("a")], [remove("a")]]) == [remove("a")]
    assert fold([[add("a")], [remove("a")]], live={("a", "")}) == [remove("a")]


def test_a_file_that_is_removed_and_added_again_is_added() -> None:
    assert fold([[remove("a")], [add("a")]]) == [add("a")]


def test_of_everything_else_the_last_word_counts() -> None:
    statements: list[list[Action]] = [
        [META, Txn("x", 1), DomainMetadata("d", "1")],
        [MANAGED, Txn("x", 2), DomainMetadata("d", "2")],
    ]
    assert fold(statements) == [MANAGED, META, Txn("x", 2), DomainMetadata("d", "2")]


def test_a_change_data_feed_is_refused() -> None:
    with pytest.raises(BadAction, match="no change data feed"):
        fold([[Cdc("c", {}, 1)]])

"""Changes side by side: what may go on past others, and why not if it may not."""

from __future__ import annotations

import pytest

from lakepact.delta.actions import Action, DomainMetadata, Txn
from lakepact.delta.conflicts import Conflict, Reads, Reason, Rebase, check, summarize, supposed_reads
from lakepact.delta.errors import BadAction
from lakepact.delta.protocol import MANAGED
from tests.unit.delta.tables import META, SCHEMA, add, remove

BLIND = Reads()
EVERYTHING = Reads(everything=True)
TODAY = Reads(partitions=({"day": "2026-01-31"},))
A = Reads(files=frozenset({("a", "")}))


def decide(ours: list[Action], reads: Reads, *others: list[Action]) -> Rebase | Conflict:
    since = [(8 + number, summarize(other)) for number, other in enumerate(others)]
    return check(summarize(ours), reads, 7, since, SCHEMA)


@pytest.mark.parametrize(
    ("ours", "reads", "theirs"),
    [
        ([add("x")], BLIND, [add("y")]),
        ([add("x")], BLIND, [remove("a"), add("b")]),
        ([add("x"), Txn("one", 1)], BLIND, [add("y"), Txn("two", 1)]),
        ([remove("a")], TODAY, [add("y", "2026-02-01")]),
        ([remove("a")], TODAY, [remove("b", "2026-02-01")]),
        ([remove("a", data_change=False), add("x", data_change=False)], A, [add("y")]),
        ([remove("a", data_change=False), add("x", data_change=False)], A, [remove("b")]),
        ([remove("a")], TODAY, [Txn("two", 1)]),
        ([remove("a")], EVERYTHING, [add("y", data_change=False)]),
    ],
)
def test_what_may_go_on(ours: list[Action], reads: Reads, theirs: list[Action]) -> None:
    assert decide(ours, reads, theirs) == Rebase(9)
    assert decide(ours, reads, [Txn("other", 1)], theirs) == Rebase(10)


@pytest.mark.parametrize(
    ("ours", "reads", "theirs", "reason"),
    [
        ([add("x")], BLIND, [META], Reason.METADATA_CHANGED),
        ([add("x")], BLIND, [MANAGED], Reason.PROTOCOL_CHANGED),
        ([add("x"), Txn("app", 2)], BLIND, [Txn("app", 1)], Reason.APP_ADVANCED),
        ([add("x")], Reads(apps=frozenset({"app"})), [Txn("app", 1)], Reason.APP_ADVANCED),
        ([DomainMetadata("d", "1")], BLIND, [DomainMetadata("d", "2")], Reason.DOMAIN_CHANGED),
        ([add("x")], BLIND, [add("x")], Reason.FILE_ADDED_TWICE),
        ([add("x")], BLIND, [remove("x")], Reason.FILE_ADDED_TWICE),
        ([remove("a")], A, [remove("a")], Reason.FILE_REMOVED_TWICE),
        ([remove("a")], BLIND, [remove("a")], Reason.FILE_REMOVED_TWICE),
        ([remove("a")], BLIND, [add("a", data_change=False)], Reason.READ_FILE_REMOVED),
        ([add("x")], A, [remove("a")], Reason.READ_FILE_REMOVED),
        ([remove("a")], EVERYTHING, [remove("b")], Reason.READ_FILE_REMOVED),
        ([remove("a")], TODAY, [remove("b")], Reason.READ_FILE_REMOVED),
        ([remove("a")], EVERYTHING, [add("y")], Reason.FILE_APPEARED),
        ([remove("a")], TODAY, [add("y")], Reason.FILE_APPEARED),
        ([remove("a")], Reads(partitions=({"day": None},)), [add("y", "")], Reason.FILE_APPEARED),
        ([remove("a")], Reads(partitions=({},)), [add("y")], Reason.FILE_APPEARED),
    ],
)
def test_what_may_not(ours: list[Action], reads: Reads, theirs: list[Action], reason: Reason) -> None:
    found = decide(ours, reads, [Txn("other", 1)], theirs, [add("later")])
    assert isinstance(found, Conflict)
    assert (found.version, found.reason) == (9, reason)
    assert "version 9" in found.message


@pytest.mark.parametrize("ours", [[META, add("x")], [MANAGED]])
def test_a_change_of_metadata_goes_on_past_nothing(ours: list[Action]) -> None:
    found = decide(ours, BLIND, [add("y")])
    assert isinstance(found, Conflict)
    assert (found.version, found.reason) == (8, Reason.OWN_METADATA)


def test_partitions_compare_as_values_and_in_doubt_everything_was_read() -> None:
    change, since = summarize([remove("a")]), [(8, summarize([add("y", "2026-02-01")]))]
    assert check(change, TODAY, 7, since, SCHEMA) == Rebase(9)
    assert isinstance(check(change, TODAY, 7, since), Conflict)
    unreadable = [(8, summarize([add("y", "yesterday")]))]
    assert isinstance(check(change, TODAY, 7, unreadable, SCHEMA), Conflict)


def test_nothing_since_is_the_next_version() -> None:
    assert decide([META], EVERYTHING) == Rebase(8)


def test_nothing_is_decided_over_a_gap() -> None:
    with pytest.raises(BadAction, match="version 8 is missing"):
        check(summarize([add("x")]), BLIND, 7, [(9, summarize([]))])


def test_what_a_change_must_be_supposed_to_have_read() -> None:
    assert supposed_reads([add("x"), Txn("a", 1)]).is_blind
    assert supposed_reads([remove("a", data_change=False), add("x", data_change=False)]) == A
    assert supposed_reads([remove("a"), add("x")]) == EVERYTHING
    assert supposed_reads([remove("a")]) == EVERYTHING

"""A commit that is sent again is recognised by what it left behind."""

from __future__ import annotations

import pytest

from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.intent import adds_snapshots, already_applied, has_snapshots, is_metadata_only
from lakepact.iceberg.parse import parse_table_updates
from tests.unit.iceberg.tables import add_snapshot, after, create, numbered, set_ref, with_snapshots

COMMIT = [add_snapshot(numbered(2, 2, parent=1)), set_ref(2)]
BEFORE = with_snapshots(2, 1)
AFTER = after(BEFORE, *COMMIT)


def recognised(metadata: JsonObject, sent: list[JsonObject]) -> bool:
    return already_applied(metadata, parse_table_updates(sent))


def test_a_commit_is_recognised_after_it_and_not_before() -> None:
    assert not recognised(BEFORE, COMMIT)
    assert recognised(AFTER, COMMIT)
    assert not recognised(create(), COMMIT)


def test_a_commit_is_recognised_below_later_ones() -> None:
    later = after(AFTER, add_snapshot(numbered(2, 3, parent=2)), set_ref(3))
    assert recognised(later, COMMIT)
    assert recognised(after(later, {"action": "remove-snapshots", "snapshot-ids": [1]}), COMMIT)


def test_a_branch_that_was_moved_away_is_not_in_place_but_the_snapshots_are_there() -> None:
    for moved in (set_ref(1), {"action": "remove-snapshot-ref", "ref-name": "main"}):
        table = after(AFTER, moved)
        assert not recognised(table, COMMIT)
        assert has_snapshots(table, parse_table_updates(COMMIT))


def test_another_snapshot_with_the_same_id_is_another_commit() -> None:
    other = [add_snapshot(numbered(2, 2, parent=1, **{"manifest-list": "other"})), set_ref(2)]
    assert not recognised(AFTER, other)


def test_all_snapshots_and_all_references_must_be_there() -> None:
    two = [*COMMIT, add_snapshot(numbered(2, 3, parent=2)), set_ref(3, "audit")]
    assert not recognised(AFTER, two)
    assert recognised(after(BEFORE, *two), two)
    assert not recognised(after(AFTER, two[2]), two)


def test_only_the_last_place_of_a_reference_counts() -> None:
    replaced = [{"action": "remove-snapshot-ref", "ref-name": "main"}, add_snapshot(numbered(2, 2)), set_ref(2)]
    assert recognised(after(BEFORE, *replaced), replaced)
    staged = [add_snapshot(numbered(2, 2)), {"action": "remove-snapshot-ref", "ref-name": "main"}]
    assert recognised(after(BEFORE, *staged), staged)
    assert not recognised(AFTER, [COMMIT[0], {"action": "remove-snapshot-ref", "ref-name": "main"}])


def test_a_circle_of_parents_ends() -> None:
    circle = dict(AFTER)
    circle["snapshots"] = [{**one, "parent-snapshot-id": 3 - one["snapshot-id"]} for one in AFTER["snapshots"]]
    circle["refs"] = {"main": {"snapshot-id": 1, "type": "branch"}, "x": {"snapshot-id": 1, "type": "branch"}}
    sent = [COMMIT[0], set_ref(77, "x")]
    assert not recognised(circle, sent)


@pytest.mark.parametrize("sent", [[], [{"action": "set-properties", "updates": {"a": "b"}}], [set_ref(2)]])
def test_without_new_snapshots_nothing_can_be_recognised(sent: list[JsonObject]) -> None:
    assert not recognised(AFTER, sent)
    assert adds_snapshots(parse_table_updates(sent)) == ()


def test_what_leaves_the_content_alone() -> None:
    plain = parse_table_updates(
        [{"action": "set-properties", "updates": {}}, {"action": "upgrade-format-version", "format-version": 2}]
    )
    assert is_metadata_only(plain)
    assert is_metadata_only([])
    for sent in (
        *COMMIT,
        {"action": "remove-snapshots", "snapshot-ids": []},
        {"action": "remove-snapshot-ref", "ref-name": "x"},
    ):
        assert not is_metadata_only([*plain, *parse_table_updates([sent])])
    assert adds_snapshots(parse_table_updates(COMMIT)) == (2,)

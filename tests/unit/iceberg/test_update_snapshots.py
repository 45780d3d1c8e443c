"""Snapshots, branches and tags, and the history they leave."""

from __future__ import annotations

import pytest

from lakepact.iceberg.errors import InvalidUpdate, StaleUpdate
from lakepact.iceberg.fields import JsonObject
from tests.unit.iceberg.tables import (
    BORN_MS,
    NOW_MS,
    add_snapshot,
    after,
    create,
    fold,
    numbered,
    set_ref,
    snapshot,
    with_snapshots,
)


def log(metadata: JsonObject) -> list[int]:
    return [entry["snapshot-id"] for entry in metadata["snapshot-log"]]


def ids(metadata: JsonObject) -> list[int]:
    return [one["snapshot-id"] for one in metadata["snapshots"]]


def remove(*snapshot_ids: int) -> JsonObject:
    return {"action": "remove-snapshots", "snapshot-ids": list(snapshot_ids)}


def remove_ref(name: str) -> JsonObject:
    return {"action": "remove-snapshot-ref", "ref-name": name}


# --- add-snapshot ---


@pytest.mark.parametrize("format_version", [1, 2, 3])
def test_a_snapshot_is_added_and_made_current(format_version: int) -> None:
    made = with_snapshots(format_version, 1, 2)
    assert ids(made) == [1, 2]
    assert made["current-snapshot-id"] == 2
    assert made["refs"] == {"main": {"snapshot-id": 2, "type": "branch"}}
    assert log(made) == [1, 2]
    assert made["snapshot-log"][1]["timestamp-ms"] == made["snapshots"][1]["timestamp-ms"]
    assert made.get("last-sequence-number") == (None, 2, 2)[format_version - 1]
    assert made.get("next-row-id") == (None, None, 20)[format_version - 1]


def test_a_snapshot_without_a_reference_is_there_and_not_current() -> None:
    made = after(create(), add_snapshot(numbered(2, 1)))
    assert (ids(made), made["current-snapshot-id"], made["refs"], log(made)) == ([1], -1, {}, [])
    assert made["last-sequence-number"] == 1


def test_an_id_is_used_once() -> None:
    with pytest.raises(InvalidUpdate, match="there is a snapshot with id 1 already"):
        fold(with_snapshots(2, 1), add_snapshot(numbered(2, 1, **{"sequence-number": 9})))


def test_a_sequence_number_that_is_behind_is_stale_and_not_wrong() -> None:
    with pytest.raises(StaleUpdate, match="please retry") as refused:
        fold(with_snapshots(2, 1, 2), add_snapshot(snapshot(3, parent=1, **{"sequence-number": 2})))
    assert (refused.value.field, refused.value.sent, refused.value.actual) == ("sequence-number", 2, 2)


def test_a_snapshot_without_a_parent_may_be_numbered_beside_others_and_the_last_number_stays() -> None:
    base = with_snapshots(2, 1, 2, 3)
    made = after(base, add_snapshot(snapshot(9, **{"sequence-number": 2})), set_ref(9))
    assert made["last-sequence-number"] == 3
    made = after(base, add_snapshot(snapshot(9, **{"sequence-number": 4})), set_ref(9))
    assert made["last-sequence-number"] == 4


def test_a_replaced_table_may_have_several_snapshots_numbered_beside_others() -> None:
    sent = [
        {"action": "remove-snapshot-ref", "ref-name": "main"},
        add_snapshot(snapshot(8, **{"sequence-number": 2})),
        add_snapshot(snapshot(9, parent=8, **{"sequence-number": 3})),
        set_ref(9),
    ]
    made = after(with_snapshots(2, 1, 2, 3, 4), *sent)
    assert (made["last-sequence-number"], made["current-snapshot-id"]) == (4, 9)
    with pytest.raises(StaleUpdate):
        fold(with_snapshots(2, 1, 2, 3, 4), *sent[:2], add_snapshot(snapshot(7, parent=8, **{"sequence-number": 2})))


def test_format_1_has_no_sequence_numbers() -> None:
    with pytest.raises(InvalidUpdate, match="format 1 has no sequence numbers"):
        fold(create(1), add_snapshot(numbered(2, 1)))


def test_in_format_3_row_ids_are_handed_out_once() -> None:
    base = with_snapshots(3, 1)
    with pytest.raises(StaleUpdate) as refused:
        fold(base, add_snapshot(numbered(3, 2, parent=1, **{"first-row-id": 9})))
    assert (refused.value.field, refused.value.sent, refused.value.actual) == ("first-row-id", 9, 10)
    with pytest.raises(InvalidUpdate, match="needs 'first-row-id'"):
        fold(base, add_snapshot(numbered(2, 2, parent=1)))
    # As Java counts, a gap before the snapshot's rows is not counted.
    made = after(base, add_snapshot(numbered(3, 2, parent=1, **{"first-row-id": 50, "added-rows": 5})))
    assert made["next-row-id"] == 15
    with pytest.raises(InvalidUpdate, match="larger than the row ids that are left"):
        fold(base, add_snapshot(numbered(3, 2, parent=1, **{"added-rows": 2**63 - 1})))


def test_several_snapshots_in_one_request_count_on_from_each_other() -> None:
    sent = [add_snapshot(numbered(3, 1)), add_snapshot(numbered(3, 2, parent=1)), set_ref(2)]
    made = after(create(3), *sent)
    assert (made["last-sequence-number"], made["next-row-id"]) == (2, 20)
    assert log(made) == [2]


def test_nulls_that_readers_refuse_are_not_stored() -> None:
    sent = numbered(2, 1, **{"parent-snapshot-id": None, "schema-id": None, "key-id": None, "x-new": None})
    stored = after(create(), add_snapshot(sent))["snapshots"][0]
    assert "parent-snapshot-id" not in stored
    assert "x-new" in stored


# --- set-snapshot-ref ---


def test_branches_and_tags_keep_their_retention() -> None:
    base = with_snapshots(2, 1)
    made = after(
        base,
        set_ref(1, "audit", "BRANCH", **{"min-snapshots-to-keep": 3, "max-snapshot-age-ms": 5, "max-ref-age-ms": 7}),
        set_ref(1, "v1", "tag", **{"max-ref-age-ms": 9, "min-snapshots-to-keep": None}),
    )
    assert made["refs"]["audit"] == {
        "snapshot-id": 1,
        "type": "branch",
        "min-snapshots-to-keep": 3,
        "max-snapshot-age-ms": 5,
        "max-ref-age-ms": 7,
    }
    assert made["refs"]["v1"] == {"snapshot-id": 1, "type": "tag", "max-ref-age-ms": 9}
    assert log(made) == [1]
    assert not fold(made, set_ref(1, "v1", "tag", **{"max-ref-age-ms": 9})).changed
    assert "max-ref-age-ms" not in after(made, set_ref(1, "v1", "tag"))["refs"]["v1"]


def test_references_point_to_snapshots_that_exist_and_main_is_a_branch() -> None:
    with pytest.raises(InvalidUpdate, match="cannot point to snapshot 7"):
        fold(with_snapshots(2, 1), set_ref(7, "v1", "tag"))
    with pytest.raises(InvalidUpdate, match="cannot become a tag"):
        fold(with_snapshots(2, 1), set_ref(1, "main", "tag"))


def test_setting_main_to_where_it_is_changes_nothing() -> None:
    base = with_snapshots(2, 1)
    assert not fold(base, set_ref(1)).changed


def test_going_back_is_logged_at_the_time_it_happens() -> None:
    base = with_snapshots(2, 1, 2)
    made = after(base, set_ref(1), now_ms=NOW_MS + 50_000)
    assert made["current-snapshot-id"] == 1
    assert made["snapshot-log"][2] == {"timestamp-ms": NOW_MS + 50_000, "snapshot-id": 1}
    assert made["last-updated-ms"] == NOW_MS + 50_000


def test_a_new_retention_of_main_is_logged_as_java_logs_it() -> None:
    base = with_snapshots(2, 1)
    made = after(base, set_ref(1, **{"min-snapshots-to-keep": 2}), now_ms=NOW_MS + 10)
    assert log(made) == [1, 1]


# --- remove-snapshot-ref ---


def test_without_main_a_table_is_empty_and_keeps_its_history() -> None:
    made = after(with_snapshots(2, 1), remove_ref("main"))
    assert (made["current-snapshot-id"], made["refs"], ids(made), log(made)) == (-1, {}, [1], [1])
    assert after(with_snapshots(3, 1), {**remove_ref("main")})["current-snapshot-id"] is None
    assert not fold(made, remove_ref("main")).changed
    assert not fold(made, remove_ref("nope")).changed


def test_a_table_is_replaced_by_removing_main_and_starting_anew() -> None:
    base = with_snapshots(2, 1, 2)
    made = after(base, remove_ref("main"), add_snapshot(snapshot(5, **{"sequence-number": 3})), set_ref(5))
    assert (made["current-snapshot-id"], log(made), made["last-sequence-number"]) == (5, [1, 2, 5], 3)


# --- remove-snapshots ---


def test_removed_snapshots_take_their_statistics_and_references_along() -> None:
    base = after(
        with_snapshots(2, 1, 2, 3),
        set_ref(1, "v1", "tag"),
        set_ref(3, "audit"),
        *(
            {
                "action": "set-partition-statistics",
                "partition-statistics": {"snapshot-id": n, "statistics-path": "p", "file-size-in-bytes": 1},
            }
            for n in (1, 3)
        ),
    )
    made = after(base, remove(1, 77))
    assert ids(made) == [2, 3]
    assert set(made["refs"]) == {"main", "audit"}
    assert [file["snapshot-id"] for file in made["partition-statistics"]] == [3]
    assert made["snapshots"][0]["parent-snapshot-id"] == 1
    assert not fold(base, remove(77)).changed
    assert not fold(base, remove()).changed


def test_history_before_a_removed_snapshot_goes_too() -> None:
    base = with_snapshots(2, 1, 2, 3, 4)
    assert log(after(base, remove(2))) == [3, 4]
    assert log(after(base, remove(1))) == [2, 3, 4]
    assert log(after(after(base, set_ref(2)), remove(3))) == [4, 2]


def test_removing_the_current_snapshot_empties_the_table() -> None:
    made = after(with_snapshots(2, 1, 2), remove(2))
    assert (made["current-snapshot-id"], made["refs"], ids(made), log(made)) == (-1, {}, [1], [])


# --- the snapshot log ---


def test_snapshots_that_were_never_seen_as_current_are_not_in_the_log() -> None:
    sent = [add_snapshot(numbered(2, 2, parent=1)), set_ref(2), add_snapshot(numbered(2, 3, parent=2)), set_ref(3)]
    made = after(with_snapshots(2, 1), *sent)
    assert ids(made) == [1, 2, 3]
    assert log(made) == [1, 3]


def test_a_snapshot_that_was_current_before_stays_in_the_log() -> None:
    base = with_snapshots(2, 1, 2)
    made = after(base, set_ref(1), add_snapshot(numbered(2, 3, parent=1)), set_ref(3))
    assert log(made) == [1, 2, 1, 3]


def test_the_log_ends_with_the_current_snapshot() -> None:
    base = with_snapshots(2, 1, 2) | {"snapshot-log": []}
    with pytest.raises(InvalidUpdate, match="no longer be the last one in the snapshot log"):
        fold(base, remove(1))


MINUTE_MS = 60_000


def test_a_writer_whose_clock_is_minutes_behind_gets_an_entry_that_does_not_go_back() -> None:
    base = with_snapshots(2, 1)
    before = base["snapshot-log"][-1]["timestamp-ms"]
    behind = numbered(2, 2, parent=1, **{"timestamp-ms": before - 5 * MINUTE_MS})
    made = after(base, add_snapshot(behind), set_ref(2))
    assert [one["timestamp-ms"] for one in made["snapshot-log"]] == [before, before]
    assert made["snapshots"][-1]["timestamp-ms"] == before - 5 * MINUTE_MS, "the snapshot keeps its writer's time"
    # Clients accept a log that goes back by less than a minute, and so it is left as it is.
    within = numbered(2, 2, parent=1, **{"timestamp-ms": before - MINUTE_MS + 1})
    made = after(base, add_snapshot(within), set_ref(2))
    assert [one["timestamp-ms"] for one in made["snapshot-log"]] == [before, before - MINUTE_MS + 1]


def test_a_server_whose_clock_is_minutes_behind_writes_no_metadata_older_than_its_snapshots() -> None:
    base = with_snapshots(2, 1)
    ahead_ms = NOW_MS + 9 * MINUTE_MS
    ahead = numbered(2, 2, parent=1, **{"timestamp-ms": ahead_ms})
    made = after(base, add_snapshot(ahead), set_ref(2), now_ms=NOW_MS)
    assert made["last-updated-ms"] == made["snapshot-log"][-1]["timestamp-ms"] == ahead_ms
    later = after(made, {"action": "set-properties", "updates": {"a": "b"}}, now_ms=NOW_MS)
    assert later["last-updated-ms"] == ahead_ms, "and none older than its predecessor"


def test_clocks_that_disagree_by_more_than_ten_minutes_are_refused() -> None:
    base = with_snapshots(2, 1)
    before = base["snapshot-log"][-1]["timestamp-ms"]
    behind = numbered(2, 2, parent=1, **{"timestamp-ms": before - 10 * MINUTE_MS - 1})
    with pytest.raises(InvalidUpdate, match="more than 10 minutes before the snapshot that was current"):
        fold(base, add_snapshot(behind), set_ref(2))
    ahead = numbered(2, 2, parent=1, **{"timestamp-ms": NOW_MS + 10 * MINUTE_MS + 1})
    with pytest.raises(InvalidUpdate, match="more than 10 minutes ahead of the catalog's clock"):
        fold(base, add_snapshot(ahead), set_ref(2), now_ms=NOW_MS)
    # Any time outside the log is fine.
    assert after(base, add_snapshot(ahead), now_ms=NOW_MS)["last-sequence-number"] == 2
    assert BORN_MS < NOW_MS


def test_times_cannot_be_pushed_ahead_step_by_step() -> None:
    base = with_snapshots(2, 1)
    ahead = numbered(2, 2, parent=1, **{"timestamp-ms": NOW_MS + 9 * MINUTE_MS})
    made = after(base, add_snapshot(ahead), set_ref(2), now_ms=NOW_MS)
    further = numbered(2, 3, parent=2, **{"timestamp-ms": NOW_MS + 18 * MINUTE_MS})
    with pytest.raises(InvalidUpdate, match="ahead of the catalog's clock"):
        fold(made, add_snapshot(further), set_ref(3), now_ms=NOW_MS)


# --- snapshots without a sequence number ---


@pytest.mark.parametrize("parent", [2, None])
def test_a_snapshot_without_a_sequence_number_gets_the_next_one(parent: int | None) -> None:
    sent = snapshot(3, parent=parent)
    made = after(with_snapshots(2, 1, 2), add_snapshot(sent), set_ref(3))
    assert (made["snapshots"][-1]["sequence-number"], made["last-sequence-number"]) == (3, 3)
    assert "sequence-number" not in sent, "the request is not changed"


def test_several_snapshots_without_numbers_in_one_request_are_numbered_one_after_another() -> None:
    sent = [add_snapshot(snapshot(3, parent=2)), add_snapshot(snapshot(4, parent=3)), set_ref(4)]
    made = after(with_snapshots(2, 1, 2), *sent)
    assert [one["sequence-number"] for one in made["snapshots"]][-2:] == [3, 4]


def test_a_snapshot_without_a_number_on_a_parent_that_others_have_built_upon_is_stale() -> None:
    with pytest.raises(StaleUpdate, match="please retry") as refused:
        fold(with_snapshots(2, 1, 2), add_snapshot(snapshot(3, parent=1)), set_ref(3))
    assert (refused.value.field, refused.value.sent, refused.value.actual) == ("parent-snapshot-id", 1, 2)

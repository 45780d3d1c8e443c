"""What is new in a table follows from its metadata and the last position, or is an error."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact import pipelines as dp
from lakepact.pipelines.positions import MOST_RUNS, Position, Progress, Range, range_of

UUID = "u-1"


def table(*operations: str, first: int = 1, uuid: str = UUID) -> dict[str, Any]:
    """A table with one snapshot an operation, numbered from 1; those before `first` have expired."""
    snapshots = [
        {
            "snapshot-id": number,
            "parent-snapshot-id": number - 1 if number > 1 else None,
            "summary": {"operation": operation},
        }
        for number, operation in enumerate(operations, 1)
        if number >= first
    ]
    return {"table-uuid": uuid, "current-snapshot-id": len(operations) or -1, "snapshots": snapshots}


def new_in(metadata: dict[str, Any], last: int | None, **options: bool) -> Range:
    position = None if last is None else Position(UUID, last or None)
    return range_of("raw.orders", metadata, position, **{"skip_changes": False, **options})


def test_the_first_time_everything_is_new() -> None:
    assert new_in(table("append", "overwrite"), None) == Range(Position(UUID, 2))


def test_afterwards_what_lies_between() -> None:
    assert new_in(table("append", "append", "append"), 1) == Range(Position(UUID, 3), since=1)
    assert new_in(table("append"), 1) == Range(Position(UUID, 1), since=1, is_empty=True)
    assert new_in(table(), None).is_empty
    assert new_in(table("append"), 0) == Range(Position(UUID, 1))


def test_compaction_is_no_change() -> None:
    assert new_in(table("append", "replace"), 1) == Range(Position(UUID, 2), since=1, is_empty=True)
    assert new_in(table("append", "replace", "append"), 1) == Range(Position(UUID, 3), since=1)


@pytest.mark.parametrize("operation", ["overwrite", "delete"])
def test_a_change_is_an_error_unless_it_does_not_matter(operation: str) -> None:
    with pytest.raises(dp.PositionLost, match="skip_changes=True"):
        new_in(table("append", operation, "append"), 1)
    assert new_in(table("append", operation, "append"), 1, skip_changes=True) == Range(Position(UUID, 3), since=1)


def test_a_position_that_is_gone_is_an_error() -> None:
    with pytest.raises(dp.PositionLost, match="no longer leads back to snapshot 1"):
        new_in(table("append", "append", "append", first=3), 1)
    with pytest.raises(dp.PositionLost, match="no longer leads back to snapshot 9"):
        new_in(table("append"), 9)
    with pytest.raises(dp.PositionLost, match="created again"):
        new_in(table("append", uuid="another"), 1)


def test_progress_goes_through_json_and_ids_keep_their_64_bits() -> None:
    big = 2**63 - 1
    progress = Progress().after("run-1", "tx-1", {("a.t", "raw.orders"): Position(UUID, big)})
    again = Progress.from_json(progress.to_json())
    assert again == progress
    assert progress.to_json()["positions"]["a.t"]["raw.orders"]["snapshot-id"] == str(big)
    assert again.transaction_of("run-1") == "tx-1"
    assert again.transaction_of("run-2") is None


def test_stages_that_did_not_run_keep_their_positions() -> None:
    progress = Progress().after("1", "t", {("a", "x"): Position(UUID, 1), ("b", "x"): Position(UUID, 1)})
    later = progress.after("2", "t", {("b", "x"): Position(UUID, 2)})
    assert later.positions == {"a": {"x": Position(UUID, 1)}, "b": {"x": Position(UUID, 2)}}
    assert later.without(["b"]).positions == {"a": {"x": Position(UUID, 1)}}


def test_the_document_is_bounded() -> None:
    progress = Progress()
    for number in range(MOST_RUNS + 5):
        progress = progress.after(str(number), "t", {})
    assert len(progress.runs) == MOST_RUNS
    assert progress.transaction_of("4") is None
    assert progress.transaction_of("5") == "t"


def test_a_document_of_a_newer_release_is_left_alone() -> None:
    with pytest.raises(dp.RunFailed, match="format 2"):
        Progress.from_json({"format": 2})

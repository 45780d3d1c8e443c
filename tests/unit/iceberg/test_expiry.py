"""Which snapshots a table lets go of, by its own properties."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lakepact.iceberg.expiry import Expired, expired

DAY = 86_400_000
NOW = 100 * DAY


def table(ages: Mapping[int, float], refs: dict[str, Any] | None = None, **properties: str) -> dict[str, Any]:
    """Snapshots by id, each the child of the one before, with their ages in days."""
    parents = [None, *ages]
    return {
        "snapshots": [
            {"snapshot-id": one, "timestamp-ms": NOW - int(age * DAY), "parent-snapshot-id": parent}
            for (one, age), parent in zip(ages.items(), parents, strict=False)
        ],
        "refs": refs or {"main": {"type": "branch", "snapshot-id": list(ages)[-1]}},
        "properties": {f"history.expire.{name.replace('_', '-')}": value for name, value in properties.items()},
    }


def branch(snapshot_id: int, **more: int) -> dict[str, Any]:
    kept = {name.replace("_", "-"): value for name, value in more.items()}
    return {"type": "branch", "snapshot-id": snapshot_id, **kept}


FIVE = {1: 20, 2: 10, 3: 6, 4: 2, 5: 1}


@pytest.mark.parametrize(
    ("document", "snapshots", "refs"),
    [
        # Five days, unless the table says otherwise; always at least one.
        (table(FIVE), (1, 2, 3), ()),
        (table({1: 30, 2: 20}), (1,), ()),
        (table(FIVE, max_snapshot_age_ms=str(8 * DAY)), (1, 2), ()),
        (table(FIVE, max_snapshot_age_ms="0"), (1, 2, 3, 4), ()),
        (table(FIVE, max_snapshot_age_ms="0", min_snapshots_to_keep="3"), (1, 2), ()),
        # A branch may say otherwise, and keeps what is its own.
        (table(FIVE, {"main": branch(5, min_snapshots_to_keep=4, max_snapshot_age_ms=1)}), (1,), ()),
        (table(FIVE, {"main": branch(5), "old": branch(2, max_snapshot_age_ms=50 * DAY)}), (3,), ()),
        # A tag keeps one snapshot, and not what came before it.
        (table(FIVE, {"main": branch(5), "t": {"type": "tag", "snapshot-id": 2}}), (1, 3), ()),
        # Refs grow old by what they point to; main never does.
        (
            table(FIVE, {"main": branch(5), "t": {"type": "tag", "snapshot-id": 2, "max-ref-age-ms": DAY}}),
            (1, 2, 3),
            ("t",),
        ),
        (table({1: 20, 2: 10}, max_ref_age_ms="1"), (1,), ()),
        # What nothing leads to is kept while it is young.
        (table({1: 20, 2: 1, 3: 1}, {"main": branch(1)}), (), ()),
        (table({1: 20, 2: 6, 3: 1}, {"main": branch(1)}), (2,), ()),
        # A slip of the pen deletes nothing.
        (table(FIVE, max_snapshot_age_ms="soon"), (), ()),
        ({"snapshots": [], "refs": {}}, (), ()),
        ({}, (), ()),
    ],
)
def test_what_goes(document: dict[str, Any], snapshots: tuple[int, ...], refs: tuple[str, ...]) -> None:
    assert expired(document, NOW) == Expired(snapshots, refs)


def test_what_is_in_use_stays_and_so_does_what_leads_to_it() -> None:
    refs = {"main": branch(5), "t": {"type": "tag", "snapshot-id": 2, "max-ref-age-ms": DAY}}
    assert expired(table(FIVE, refs), NOW, in_use={2, 3}) == Expired((1,), ())

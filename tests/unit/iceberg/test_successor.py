"""A whole metadata document follows another one, or is refused for what it lost, or for what it was made from."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.iceberg.errors import InvalidUpdate, StaleUpdate
from lakepact.iceberg.successor import check_successor

FIELD = {"id": 1, "name": "id", "required": True, "type": "long"}
BASE: dict[str, Any] = {
    "format-version": 2,
    "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
    "last-sequence-number": 3,
    "last-updated-ms": 1_700_000_000_000,
    "last-column-id": 1,
    "last-partition-id": 1_000,
    "schemas": [{"type": "struct", "schema-id": 0, "fields": [FIELD]}],
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "sort-orders": [{"order-id": 0, "fields": []}],
    "snapshots": [{"snapshot-id": 1, "sequence-number": 3, "manifest-list": "a"}],
}


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"properties": {"a": "b"}},
        {"table-uuid": BASE["table-uuid"].upper()},
        {"format-version": 3},
        # Clocks differ.
        {"last-updated-ms": BASE["last-updated-ms"] - 1_000},
        {
            "last-sequence-number": 4,
            "snapshots": [*BASE["snapshots"], {"snapshot-id": 2, "sequence-number": 4, "manifest-list": "b"}],
        },
        {"schemas": [*BASE["schemas"], {"type": "struct", "schema-id": 1, "fields": []}]},
    ],
)
def test_what_adds_and_keeps_follows(changed: dict[str, Any]) -> None:
    check_successor(BASE, {**BASE, **changed})


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"table-uuid": "other"}, "table-uuid"),
        ({"format-version": 1}, "format version"),
        ({"snapshots": []}, "snapshot 1 is missing"),
        ({"snapshots": [{"snapshot-id": 1, "sequence-number": 3, "manifest-list": "z"}]}, "other manifests"),
        ({"schemas": [{"type": "struct", "schema-id": 0, "fields": []}]}, "schema-id 0 means something else"),
        (
            {
                "partition-specs": [
                    {
                        "spec-id": 0,
                        "fields": [{"source-id": 1, "field-id": 1_000, "name": "p", "transform": "identity"}],
                    }
                ]
            },
            "spec-id 0",
        ),
    ],
)
def test_what_changes_or_loses_something_is_refused(changed: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidUpdate, match=told):
        check_successor(BASE, {**BASE, **changed})


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"last-sequence-number": 2}, "last-sequence-number"),
        ({"last-column-id": 0}, "last-column-id"),
        ({"last-partition-id": 999}, "last-partition-id"),
        ({"last-updated-ms": BASE["last-updated-ms"] - 120_000}, "last-updated-ms"),
        (
            {"snapshots": [*BASE["snapshots"], {"snapshot-id": 2, "sequence-number": 3, "manifest-list": "b"}]},
            "snapshot 2: sequence-number",
        ),
    ],
)
def test_what_was_made_from_an_older_version_is_stale(changed: dict[str, Any], field: str) -> None:
    with pytest.raises(StaleUpdate) as raised:
        check_successor(BASE, {**BASE, **changed})
    assert raised.value.field == field

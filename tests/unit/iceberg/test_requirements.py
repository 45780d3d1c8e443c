"""Every requirement, when it holds and what is said when it does not."""

from __future__ import annotations

import pytest

from lakepact.iceberg import requirements
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.parse import parse_table_requirements, parse_view_requirements
from lakepact.iceberg.requirements import Failure
from tests.unit.iceberg.tables import BY_DAY, OTHER_UUID, UUID, after, order, set_ref, with_snapshots

TABLE = after(
    with_snapshots(2, 1, 2, **{"partition-spec": BY_DAY, "write-order": order((1, "identity"))}),
    set_ref(1, "v1", "tag"),
)


def check(sent: JsonObject, metadata: JsonObject | None = TABLE) -> Failure | None:
    [parsed] = parse_table_requirements([sent])
    return requirements.check(metadata, parsed)


@pytest.mark.parametrize(
    "sent",
    [
        {"type": "assert-table-uuid", "uuid": UUID},
        {"type": "assert-table-uuid", "uuid": UUID.upper()},
        {"type": "Assert-Table-UUID", "uuid": UUID},
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 2},
        {"type": "assert-ref-snapshot-id", "ref": "v1", "snapshot-id": 1},
        {"type": "assert-ref-snapshot-id", "ref": "nope", "snapshot-id": None},
        {"type": "assert-ref-snapshot-id", "ref": "nope"},
        {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 3},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 1000},
        {"type": "assert-default-spec-id", "default-spec-id": 0},
        {"type": "assert-default-sort-order-id", "default-sort-order-id": 1},
    ],
)
def test_what_holds_says_nothing(sent: JsonObject) -> None:
    assert check(sent) is None


@pytest.mark.parametrize(
    ("sent", "actual", "message"),
    [
        ({"type": "assert-create"}, {"exists": True, "uuid": UUID}, "table already exists"),
        (
            {"type": "assert-table-uuid", "uuid": OTHER_UUID},
            {"uuid": UUID},
            f"UUID does not match: expected {UUID} != {OTHER_UUID}",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": 1},
            {"ref": "main", "snapshot-id": 2},
            "branch main has changed: expected id 1 != 2",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "v1", "snapshot-id": None},
            {"ref": "v1", "snapshot-id": 1},
            "tag v1 was created concurrently",
        ),
        (
            {"type": "assert-ref-snapshot-id", "ref": "nope", "snapshot-id": 1},
            {"ref": "nope", "snapshot-id": None},
            "branch or tag nope is missing, expected 1",
        ),
        (
            {"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2},
            {"last-assigned-field-id": 3},
            "last assigned field id changed: expected id 2 != 3",
        ),
        (
            {"type": "assert-current-schema-id", "current-schema-id": 1},
            {"current-schema-id": 0},
            "current schema changed: expected id 1 != 0",
        ),
        (
            {"type": "assert-last-assigned-partition-id", "last-assigned-partition-id": 999},
            {"last-assigned-partition-id": 1000},
            "last assigned partition id changed: expected id 999 != 1000",
        ),
        (
            {"type": "assert-default-spec-id", "default-spec-id": 1},
            {"default-spec-id": 0},
            "default partition spec changed: expected id 1 != 0",
        ),
        (
            {"type": "assert-default-sort-order-id", "default-sort-order-id": 0},
            {"default-sort-order-id": 1},
            "default sort order changed: expected id 0 != 1",
        ),
    ],
)
def test_what_does_not_hold_says_what_is_there(sent: JsonObject, actual: JsonObject, message: str) -> None:
    failure = check(sent)
    assert failure is not None
    assert failure.requirement.body == sent
    assert failure.actual == actual
    assert failure.message == f"Requirement failed: {message}"
    expected = {name: value for name, value in sent.items() if name != "type"}
    assert failure.expected == (expected or {"exists": False})


def test_of_a_table_that_does_not_exist_only_its_creation_holds() -> None:
    assert check({"type": "assert-create"}, None) is None
    failure = check({"type": "assert-table-uuid", "uuid": UUID}, None)
    assert failure is not None
    assert failure.message == "Requirement failed: table does not exist"


def test_every_failure_is_collected_in_order() -> None:
    sent = [
        {"type": "assert-table-uuid", "uuid": OTHER_UUID},
        {"type": "assert-current-schema-id", "current-schema-id": 0},
        {"type": "assert-default-spec-id", "default-spec-id": 7},
    ]
    failures = requirements.check_all(TABLE, parse_table_requirements(sent))
    assert [failure.requirement.body for failure in failures] == [sent[0], sent[2]]


def test_a_creation_requires_nothing_else() -> None:
    create = parse_table_requirements([{"type": "assert-create"}])
    uuid = parse_table_requirements([{"type": "assert-table-uuid", "uuid": UUID}])
    assert requirements.is_creation(create)
    assert not requirements.is_creation(uuid)
    assert not requirements.is_creation([])
    with pytest.raises(InvalidUpdate, match="Invalid create requirements: assert-table-uuid"):
        requirements.is_creation([*create, *uuid])


def test_the_uuid_of_a_view() -> None:
    [same, other] = parse_view_requirements(
        [{"type": "assert-view-uuid", "uuid": UUID}, {"type": "assert-view-uuid", "uuid": OTHER_UUID}]
    )
    view = {"view-uuid": UUID.upper()}
    assert requirements.check(view, same) is None
    failure = requirements.check(view, other)
    assert failure is not None
    assert failure.message.startswith("Requirement failed: view UUID does not match: expected")
    missing = requirements.check(None, same)
    assert missing is not None
    assert missing.message == "Requirement failed: view does not exist"

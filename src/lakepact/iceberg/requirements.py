"""What a client requires of the table or view its updates were computed on. All failures are collected, none is raised.

The messages are those that Iceberg's clients and its compatibility kit compare. Beside the message a failure carries
what was expected and what is there, in the words of the requirement, so that a client can tell without parsing text.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lakepact.iceberg import names
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.parse import Requirement

_COMPARED: Final = {
    names.ASSERT_LAST_ASSIGNED_FIELD_ID: ("last-column-id", "last assigned field id changed"),
    names.ASSERT_CURRENT_SCHEMA_ID: ("current-schema-id", "current schema changed"),
    names.ASSERT_LAST_ASSIGNED_PARTITION_ID: ("last-partition-id", "last assigned partition id changed"),
    names.ASSERT_DEFAULT_SPEC_ID: ("default-spec-id", "default partition spec changed"),
    names.ASSERT_DEFAULT_SORT_ORDER_ID: ("default-sort-order-id", "default sort order changed"),
}
"""Requirements that compare one number: where it is in the metadata, and what the message says."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A requirement that does not hold. An answer lists `requirement.body`, `expected` and `actual`."""

    requirement: Requirement
    expected: JsonObject
    actual: JsonObject
    message: str


def check_all(metadata: JsonObject | None, requirements: Iterable[Requirement]) -> tuple[Failure, ...]:
    """Every requirement that does not hold on this metadata (None: there is no such table), in order."""
    found = (check(metadata, requirement) for requirement in requirements)
    return tuple(failure for failure in found if failure is not None)


def check(metadata: JsonObject | None, requirement: Requirement) -> Failure | None:
    if requirement.type == names.ASSERT_CREATE:
        return _check_create(metadata, requirement)
    if metadata is None:
        missing = "view does not exist" if requirement.type == names.ASSERT_VIEW_UUID else "table does not exist"
        return Failure(requirement, {"exists": True}, {"exists": False}, f"Requirement failed: {missing}")
    match requirement.type:
        case names.ASSERT_TABLE_UUID:
            return _check_uuid(metadata.get("table-uuid"), requirement, "UUID does not match")
        case names.ASSERT_VIEW_UUID:
            return _check_uuid(metadata.get("view-uuid"), requirement, "view UUID does not match")
        case names.ASSERT_REF_SNAPSHOT_ID:
            return _check_ref(metadata, requirement)
        case _:
            return _check_number(metadata, requirement)


def is_creation(requirements: Iterable[Requirement]) -> bool:
    """Whether this commit creates a table. Beside `assert-create` such a commit can require nothing else."""
    kinds = [requirement.type for requirement in requirements]
    if names.ASSERT_CREATE not in kinds:
        return False
    others = [kind for kind in kinds if kind != names.ASSERT_CREATE]
    if others:
        raise InvalidUpdate(
            f"Invalid create requirements: {', '.join(others)}. A table that is to be created has nothing they could "
            f"hold for; send only assert-create"
        )
    return True


def _check_create(metadata: JsonObject | None, requirement: Requirement) -> Failure | None:
    if metadata is None:
        return None
    actual = {"exists": True, "uuid": metadata.get("table-uuid") or metadata.get("view-uuid")}
    return Failure(requirement, {"exists": False}, actual, "Requirement failed: table already exists")


def _check_uuid(actual: str | None, requirement: Requirement, what: str) -> Failure | None:
    expected: str = requirement.body["uuid"]
    if actual is not None and expected.lower() == actual.lower():
        return None
    # The order of the two is the one clients know: first what is there, then what was asked for.
    message = f"Requirement failed: {what}: expected {actual} != {expected}"
    return Failure(requirement, {"uuid": expected}, {"uuid": actual}, message)


def _check_ref(metadata: JsonObject, requirement: Requirement) -> Failure | None:
    name: str = requirement.body["ref"]
    expected: int | None = requirement.body.get("snapshot-id")
    ref = (metadata.get("refs") or {}).get(name)
    actual: int | None = None if ref is None else ref["snapshot-id"]
    if expected == actual:
        return None
    if ref is None:
        problem = f"branch or tag {name} is missing, expected {expected}"
    elif expected is None:
        problem = f"{ref['type']} {name} was created concurrently"
    else:
        problem = f"{ref['type']} {name} has changed: expected id {expected} != {actual}"
    return Failure(
        requirement,
        {"ref": name, "snapshot-id": expected},
        {"ref": name, "snapshot-id": actual},
        f"Requirement failed: {problem}",
    )


def _check_number(metadata: JsonObject, requirement: Requirement) -> Failure | None:
    field, changed = _COMPARED[requirement.type]
    name = requirement.type.removeprefix("assert-")
    expected, actual = requirement.body[name], metadata[field]
    if expected == actual:
        return None
    message = f"Requirement failed: {changed}: expected id {expected} != {actual}"
    return Failure(requirement, {name: expected}, {name: actual}, message)

"""Whole bodies: the documented examples are understood, and nothing else gets through."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.iceberg.errors import InvalidIceberg, Malformed, UnknownNames
from lakepact.iceberg.fields import JsonObject, check_depth
from lakepact.iceberg.requests import (
    Identifier,
    parse_commit_table,
    parse_commit_transaction,
    parse_commit_view,
    parse_create_table,
    parse_create_view,
)
from tests.unit.iceberg.tables import SCHEMA, UUID, WIDER, add_snapshot, order, set_ref, snapshot, spec


def change(
    name: str, *, requirements: list[JsonObject] | None = None, updates: list[JsonObject] | None = None
) -> JsonObject:
    return {
        "identifier": {"namespace": ["analytics"], "name": name},
        "requirements": [{"type": "assert-table-uuid", "uuid": UUID}] if requirements is None else requirements,
        "updates": updates or [{"action": "set-properties", "updates": {"owner": "new-team"}}],
    }


def test_a_pipeline_a_migration_and_a_bulk_update_are_understood() -> None:
    pipeline = [
        change("events", updates=[add_snapshot(snapshot(123456790, parent=123456789)), set_ref(123456790)]),
        change("event_counts", updates=[add_snapshot(snapshot(987654322)), set_ref(987654322)]),
    ]
    migration = change(
        "users",
        requirements=[{"type": "assert-current-schema-id", "current-schema-id": 0}],
        updates=[{"action": "add-schema", "schema": WIDER}, {"action": "set-current-schema", "schema-id": 1}],
    )
    bulk = change("table1", requirements=[])
    commits = parse_commit_transaction({"table-changes": [*pipeline, migration, bulk]})
    assert [commit.identifier for commit in commits] == [
        Identifier(("analytics",), name) for name in ("events", "event_counts", "users", "table1")
    ]
    assert [update.action for update in commits[0].updates] == ["add-snapshot", "set-snapshot-ref"]
    assert commits[3].requirements == ()


def test_unknown_names_of_all_tables_are_named_at_once() -> None:
    changes = [
        change("a", updates=[{"action": "fly"}]),
        change("b", requirements=[{"type": "assert-sunshine"}], updates=[{"action": "add-view-version"}]),
    ]
    with pytest.raises(UnknownNames) as refused:
        parse_commit_transaction({"table-changes": changes})
    assert refused.value.names == ("fly", "assert-sunshine", "add-view-version")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "expected an object"),
        ({}, "table-changes: expected an array"),
        ({"table-changes": [5]}, r"table-changes\[0\]: expected an object"),
        ({"table-changes": [change("a"), change("a")]}, "table analytics.a is named twice"),
        ({"table-changes": [change("a") | {"identifier": None}]}, "'identifier' is missing"),
        ({"table-changes": [change("a") | {"identifier": {"namespace": "x", "name": "a"}}]}, "expected an array"),
        ({"table-changes": [change("a") | {"identifier": {"namespace": [""], "name": "a"}}]}, "is empty"),
        ({"table-changes": [change("a") | {"identifier": {"namespace": ["x"]}}]}, "'name' is missing"),
        ({"table-changes": [change("a") | {"updates": None}]}, "updates: expected an array"),
        ({"table-changes": [change("a") | {"requirements": {}}]}, "requirements: expected an array"),
    ],
)
def test_a_transaction_that_is_not_one_is_refused(body: Any, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        parse_commit_transaction(body)


def test_a_commit_to_its_own_path_needs_no_identifier() -> None:
    body = change("a")
    del body["identifier"]
    assert parse_commit_table(body).identifier is None
    with pytest.raises(UnknownNames, match="fly"):
        parse_commit_table(body | {"updates": [{"action": "fly"}]})


def test_a_table_is_asked_for_with_little_or_with_everything() -> None:
    asked = parse_create_table({"name": "t", "schema": SCHEMA})
    assert (asked.spec["fields"], asked.order["fields"], asked.properties, asked.stage) == ([], [], {}, False)
    assert asked.location is None
    asked = parse_create_table(
        {
            "name": "t",
            "schema": SCHEMA,
            "location": "s3://b/t",
            "partition-spec": spec(),
            "write-order": order((1, "identity")),
            "stage-create": True,
            "properties": {"a": "b"},
        }
    )
    assert (asked.stage, asked.location, asked.properties) == (True, "s3://b/t", {"a": "b"})


@pytest.mark.parametrize(
    "body",
    [
        {"schema": SCHEMA},
        {"name": "", "schema": SCHEMA},
        {"name": "t"},
        {"name": "t", "schema": SCHEMA, "stage-create": "yes"},
        {"name": "t", "schema": SCHEMA, "location": 5},
        {"name": "t", "schema": SCHEMA, "properties": {"a": 1}},
        {"name": "t", "schema": SCHEMA, "write-order": []},
    ],
)
def test_a_creation_that_is_not_one_is_refused(body: JsonObject) -> None:
    with pytest.raises(InvalidIceberg):
        parse_create_table(body)


def test_bodies_that_nest_too_deeply_are_refused_without_recursion() -> None:
    deep: Any = "int"
    for number in range(5_000):
        deep = {"type": "list", "element-id": number + 2, "element": deep, "element-required": False}
    body = {
        "name": "t",
        "schema": {"type": "struct", "fields": [{"id": 1, "name": "a", "required": False, "type": deep}]},
    }
    with pytest.raises(Malformed, match="nested more than 100 levels deep"):
        parse_create_table(body)
    with pytest.raises(Malformed, match="nested more than 100 levels"):
        parse_commit_table(change("a") | {"x": deep})
    flat: Any = 1
    for _ in range(99):
        flat = [flat]
    check_depth(flat, "here")


def test_views() -> None:
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
        "default-catalog": None,
        "default-namespace": [],
    }
    asked = parse_create_view({"name": "v", "schema": SCHEMA, "view-version": version, "properties": {}})
    assert "default-catalog" not in asked.version
    commit = parse_commit_view({"updates": [{"action": "add-view-version", "view-version": version}]})
    assert commit.requirements == ()
    for broken in (
        version | {"representations": [{"type": "sql", "sql": "x"}]},
        version | {"representations": [5]},
        version | {"default-namespace": None},
        version | {"summary": {"a": 1}},
        version | {"version-id": "1"},
    ):
        with pytest.raises(Malformed):
            parse_create_view({"name": "v", "schema": SCHEMA, "view-version": broken})

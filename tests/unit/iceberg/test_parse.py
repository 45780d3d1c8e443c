"""What clients send is checked before anything is looked up: unknown names first, then every field."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.iceberg import names, parse, updates, views
from lakepact.iceberg.errors import Malformed, UnknownNames
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.parse import parse_table_requirements, parse_table_updates, parse_view_updates
from tests.unit.iceberg.tables import UUID, schema, set_ref, snapshot

SPECIFIED = [
    "assign-uuid",
    "upgrade-format-version",
    "add-schema",
    "set-current-schema",
    "add-spec",
    "set-default-spec",
    "add-sort-order",
    "set-default-sort-order",
    "add-snapshot",
    "set-snapshot-ref",
    "remove-snapshots",
    "remove-snapshot-ref",
    "set-location",
    "set-properties",
    "remove-properties",
    "set-statistics",
    "remove-statistics",
    "set-partition-statistics",
    "remove-partition-statistics",
    "remove-partition-specs",
    "remove-schemas",
    "add-encryption-key",
    "remove-encryption-key",
]


def test_all_23_table_updates_of_the_specification_can_be_parsed_and_applied() -> None:
    assert len(SPECIFIED) == 23
    assert set(SPECIFIED) == names.TABLE_ACTIONS == set(updates._ACTIONS)
    assert set(parse._BODIES) == names.TABLE_ACTIONS | names.VIEW_ACTIONS


def test_all_8_view_updates_of_the_specification_can_be_applied() -> None:
    assert len(names.VIEW_ACTIONS) == 8
    assert set(views._ACTIONS) == names.VIEW_ACTIONS


def test_unknown_actions_are_named_all_at_once_before_any_field_is_looked_at() -> None:
    sent = [{"action": "set-location"}, {"action": "fly"}, {"action": "enable-row-lineage"}, {"action": "fly"}]
    with pytest.raises(UnknownNames, match="fly, enable-row-lineage") as refused:
        parse_table_updates(sent)
    assert refused.value.names == ("fly", "enable-row-lineage")
    assert "add-snapshot" in str(refused.value)


def test_what_is_for_views_is_unknown_to_tables_and_the_other_way_round() -> None:
    with pytest.raises(UnknownNames, match="add-view-version"):
        parse_table_updates([{"action": "add-view-version"}])
    with pytest.raises(UnknownNames, match="add-snapshot"):
        parse_view_updates([{"action": "add-snapshot"}])
    with pytest.raises(UnknownNames, match="assert-view-uuid"):
        parse_table_requirements([{"type": "assert-view-uuid", "uuid": UUID}])
    with pytest.raises(UnknownNames, match="assert-nothing"):
        parse_table_requirements([{"type": "assert-nothing"}])


def test_the_words_of_old_clients_are_understood() -> None:
    [set_, removed, both] = parse_table_updates(
        [
            {"action": "set-properties", "updated": {"a": "b"}},
            {"action": "remove-properties", "removed": ["a"]},
            {"action": "set-properties", "updated": {"a": "b"}, "updates": {"c": "d"}},
        ]
    )
    assert (set_.body, removed.body, both.body) == (
        {"updates": {"a": "b"}},
        {"removals": ["a"]},
        {"updates": {"c": "d"}},
    )


def test_case_does_not_matter_in_an_action() -> None:
    [update] = parse_table_updates([{"action": "Set-Location", "location": "x"}])
    assert update.action == "set-location"


STATISTICS = {"snapshot-id": 1, "statistics-path": "p", "file-size-in-bytes": 1, "file-footer-size-in-bytes": 1}


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (7, "expected an object"),
        ({}, "'action' is missing"),
        ({"action": 5}, "'action' must be a string"),
        ({"action": "assign-uuid", "uuid": "x"}, "is not a UUID"),
        ({"action": "assign-uuid", "uuid": UUID + "\n"}, "is not a UUID"),
        ({"action": "upgrade-format-version", "format-version": "2"}, "must be a whole number, found the string '2'"),
        ({"action": "upgrade-format-version", "format-version": True}, "must be a whole number, found a boolean"),
        ({"action": "upgrade-format-version", "format-version": 2.0}, "must be a whole number, found the number 2.0"),
        ({"action": "set-current-schema", "schema-id": 2**31}, "must be between"),
        ({"action": "add-schema"}, "expected an object, found null"),
        ({"action": "add-schema", "schema": schema() | {"type": "list"}}, "a schema is of type 'struct'"),
        ({"action": "add-spec", "spec": {"fields": {}}}, "expected an array"),
        ({"action": "add-spec", "spec": {"fields": [{"name": ""}]}}, "'name' must not be empty"),
        (
            {
                "action": "add-spec",
                "spec": {
                    "fields": [
                        {"name": "a", "source-id": 1, "transform": "identity", "field-id": 1000},
                        {"name": "b", "source-id": 1, "transform": "identity"},
                    ]
                },
            },
            "1 of 2 fields have no 'field-id'",
        ),
        (
            {"action": "add-spec", "spec": {"fields": [{"name": "a", "source-id": 1, "transform": "identity"}] * 2}},
            "two partition fields named 'a'",
        ),
        (
            {"action": "add-spec", "spec": {"fields": [{"name": "a", "source-id": 1, "transform": "bucket[0]"}]}},
            "the width must be between",
        ),
        ({"action": "add-sort-order", "sort-order": {"order-id": 3, "fields": []}}, "its order-id is 0, not 3"),
        (
            {
                "action": "add-sort-order",
                "sort-order": {
                    "order-id": 0,
                    "fields": [
                        {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-last"}
                    ],
                },
            },
            "order-id 0 means unsorted",
        ),
        (
            {"action": "add-sort-order", "sort-order": {"fields": [{"source-id": 1, "direction": "up"}]}},
            "'direction' is asc or desc",
        ),
        (
            {
                "action": "add-sort-order",
                "sort-order": {"fields": [{"source-id": 1, "direction": "asc", "null-order": "first"}]},
            },
            "'null-order' is nulls-first or nulls-last",
        ),
        ({"action": "add-snapshot", "snapshot": snapshot(-1)}, "-1 means that there is no snapshot"),
        ({"action": "add-snapshot", "snapshot": snapshot(2**63)}, "must be between"),
        ({"action": "add-snapshot", "snapshot": snapshot(1, **{"manifest-list": None})}, "'manifest-list' is missing"),
        ({"action": "add-snapshot", "snapshot": snapshot(1, summary={"a": 1})}, "the value of 'a' must be a string"),
        ({"action": "add-snapshot", "snapshot": snapshot(1, **{"first-row-id": 0})}, "needs 'added-rows'"),
        ({"action": "add-snapshot", "snapshot": snapshot(1, **{"added-rows": -1})}, "must not be negative"),
        (set_ref(1, "main", "twig"), "'type' is branch or tag"),
        (set_ref(1, ""), "'ref-name' must not be empty"),
        (set_ref(1, **{"min-snapshots-to-keep": 0}), "must be greater than 0"),
        (set_ref(1, "v", "tag", **{"min-snapshots-to-keep": 1}), "is for branches"),
        (set_ref(1, "v", "tag", **{"max-snapshot-age-ms": 1}), "is for branches"),
        (
            {"action": "remove-snapshots", "snapshot-ids": [1, "2"]},
            "an element of 'snapshot-ids' must be a whole number",
        ),
        ({"action": "remove-snapshots"}, "'snapshot-ids' is missing"),
        ({"action": "set-location", "location": ""}, "'location' must not be empty"),
        ({"action": "set-properties", "updates": {"a": None}}, "the value of 'a' must be a string, found null"),
        ({"action": "set-properties", "updates": ["a"]}, "expected an object"),
        ({"action": "remove-properties", "removals": [1]}, "must be strings"),
        ({"action": "set-statistics", "statistics": STATISTICS}, "'blob-metadata': expected an array"),
        ({"action": "set-statistics", "statistics": STATISTICS | {"blob-metadata": [{}]}}, "'type' is missing"),
        ({"action": "set-partition-statistics", "partition-statistics": {}}, "'snapshot-id' is missing"),
        ({"action": "remove-statistics", "snapshot-id": None}, "'snapshot-id' is missing"),
        (
            {"action": "add-encryption-key", "encryption-key": {"key-id": "k", "encrypted-key-metadata": "%"}},
            "not base64",
        ),
        ({"action": "remove-encryption-key", "key-id": ""}, "must not be empty"),
    ],
)
def test_a_wrong_field_is_named_with_its_place(sent: Any, message: str) -> None:
    with pytest.raises(Malformed, match=message) as refused:
        parse_table_updates([{"action": "set-location", "location": "x"}, sent])
    assert "updates[1]" in str(refused.value)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ({"type": "assert-table-uuid"}, r"requirements\[0\] \(assert-table-uuid\): 'uuid' is missing"),
        ({"type": "assert-ref-snapshot-id", "snapshot-id": 1}, "'ref' is missing"),
        ({"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": "1"}, "must be a whole number"),
        ({"type": "assert-default-spec-id", "default-spec-id": None}, "'default-spec-id' is missing"),
        ({"type": "assert-last-assigned-field-id", "last-assigned-field-id": 2.5}, "must be a whole number"),
    ],
)
def test_a_wrong_requirement_is_named_with_its_place(sent: JsonObject, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        parse_table_requirements([sent])


@pytest.mark.parametrize("values", [None, {}, "add-snapshot", 3])
def test_updates_and_requirements_are_lists(values: object) -> None:
    with pytest.raises(Malformed, match="expected an array"):
        parse_table_updates(values)
    with pytest.raises(Malformed, match="expected an array"):
        parse_table_requirements(values)

"""View metadata: versions are numbered, reused, logged and let go."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from lakepact.errors import Unreadable
from lakepact.iceberg.errors import InvalidUpdate
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.finish import Applied
from lakepact.iceberg.parse import parse_view_updates
from lakepact.iceberg.requests import parse_create_view
from lakepact.iceberg.views import apply_to_view, create_view_metadata, read_view
from tests.unit.iceberg.tables import ID, LOCATION, NOW_MS, OTHER_UUID, SCHEMA, UUID, schema


def version(number: int = 1, *, schema_id: int = 0, sql: str = "select 1", **more: Any) -> JsonObject:
    return {
        "version-id": number,
        "timestamp-ms": NOW_MS + number,
        "schema-id": schema_id,
        "summary": {"engine-name": "spark"},
        "representations": [{"type": "sql", "sql": sql, "dialect": "spark"}],
        "default-namespace": ["db"],
        **more,
    }


def create(**request: Any) -> JsonObject:
    body = {"name": "v", "schema": SCHEMA, "view-version": version(), "properties": {}} | request
    asked = parse_create_view(body)
    return create_view_metadata(
        schema=asked.schema,
        version=asked.version,
        properties=asked.properties,
        location=LOCATION,
        uuid=UUID,
        now_ms=NOW_MS,
    )


def add(made: JsonObject) -> JsonObject:
    return {"action": "add-view-version", "view-version": made}


def make_current(number: int = -1) -> JsonObject:
    return {"action": "set-current-view-version", "view-version-id": number}


def fold(view: JsonObject, *sent: JsonObject, now_ms: int = NOW_MS + 9_000) -> Applied:
    before = deepcopy(view)
    applied = apply_to_view(view, parse_view_updates(list(sent)), now_ms)
    assert view == before
    return applied


def after(view: JsonObject, *sent: JsonObject, **context: Any) -> JsonObject:
    applied = fold(view, *sent, **context)
    assert applied.changed
    return applied.metadata


def version_ids(view: JsonObject) -> list[int]:
    return [one["version-id"] for one in view["versions"]]


def test_a_new_view_has_version_1_of_schema_0() -> None:
    made = create(**{"view-version": version(7, schema_id=12), "schema": SCHEMA | {"schema-id": 4}})
    assert made == {
        "view-uuid": UUID,
        "format-version": 1,
        "location": LOCATION,
        "properties": {},
        "schemas": [SCHEMA],
        "current-version-id": 1,
        "versions": [version(7) | {"version-id": 1}],
        "version-log": [{"timestamp-ms": NOW_MS + 7, "version-id": 1}],
    }
    assert read_view(made) is made


def test_a_replacement_adds_a_schema_and_a_version_and_logs_it_at_the_versions_time() -> None:
    wider = schema(ID)
    made = after(
        create(), {"action": "add-schema", "schema": wider}, add(version(2, schema_id=-1, sql="x")), make_current()
    )
    assert [one["schema-id"] for one in made["schemas"]] == [0, 1]
    assert made["versions"][1]["schema-id"] == 1
    assert made["current-version-id"] == 2
    assert made["version-log"][1] == {"timestamp-ms": NOW_MS + 2, "version-id": 2}


def test_an_equal_version_is_reused_and_going_back_happens_now() -> None:
    two = after(create(), add(version(2, sql="x")), make_current())
    assert not fold(two, add(version(9, sql="x"))).changed
    back = after(two, add(version(3)), make_current(1))
    assert version_ids(back) == [1, 2]
    assert back["version-log"][2] == {"timestamp-ms": NOW_MS + 9_000, "version-id": 1}
    with pytest.raises(InvalidUpdate, match="Cannot set last version id"):
        fold(two, add(version(3)), make_current())


def test_versions_get_the_next_id() -> None:
    made = after(create(), add(version(1, sql="x")), add(version(1, sql="y")), make_current())
    assert version_ids(made) == [1, 2, 3]
    assert made["current-version-id"] == 3
    assert [entry["version-id"] for entry in made["version-log"]] == [1, 3]


@pytest.mark.parametrize("what", ["summary", "default-catalog", "default-namespace"])
def test_what_makes_a_version_different(what: str) -> None:
    other = {"summary": {}, "default-catalog": "c", "default-namespace": []}[what]
    assert version_ids(after(create(), add(version(2) | {what: other}))) == [1, 2]


def test_an_equal_schema_is_reused_and_minus_one_does_not_name_it() -> None:
    view = create()
    assert not fold(view, {"action": "add-schema", "schema": SCHEMA | {"schema-id": 8}}).changed
    with pytest.raises(InvalidUpdate, match="Cannot set last added schema: no schema has been added"):
        fold(view, {"action": "add-schema", "schema": SCHEMA}, add(version(2, schema_id=-1, sql="x")))


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ([add(version(2, schema_id=9, sql="x"))], "there is no schema 9"),
        ([make_current(9)], "there is no version 9"),
        ([make_current()], "no current version id has been set"),
        ([{"action": "assign-uuid", "uuid": OTHER_UUID}], "Cannot reassign uuid"),
        ([{"action": "upgrade-format-version", "format-version": 2}], "views have format 1"),
        ([{"action": "set-properties", "updates": {"version.history.num-entries": "0"}}], "greater than 0"),
        ([{"action": "set-properties", "updates": {"version.history.num-entries": "x"}}], "whole number"),
        (
            [
                add(
                    version(2)
                    | {
                        "representations": [
                            {"type": "sql", "sql": s, "dialect": d} for s, d in (("a", "Trino"), ("b", "trino"))
                        ]
                    }
                )
            ],
            "Invalid view version: Cannot add multiple queries for dialect trino",
        ),
        ([add(version(2**31 - 1, sql="x")), add(version(1, sql="y"))], "out of range"),
    ],
)
def test_what_does_not_fit_is_refused(sent: list[JsonObject], message: str) -> None:
    with pytest.raises(InvalidUpdate, match=message):
        fold(create(), *sent)


def test_a_dialect_is_lost_only_if_the_view_allows_it() -> None:
    trino = version(2) | {"representations": [{"type": "sql", "sql": "x", "dialect": "trino"}]}
    with pytest.raises(InvalidUpdate) as refused:
        fold(create(), add(trino), make_current())
    assert str(refused.value) == (
        "Cannot replace view due to loss of view dialects (replace.drop-dialect.allowed=false):\n"
        "Previous dialects: [spark]\nNew dialects: [trino]"
    )
    allow = {"action": "set-properties", "updates": {"replace.drop-dialect.allowed": "TRUE"}}
    assert after(create(), add(trino), make_current(), allow)["current-version-id"] == 2
    both = trino | {"representations": [*trino["representations"], *version()["representations"]]}
    assert after(create(), add(both), make_current())["current-version-id"] == 2


def test_properties_location_and_what_changes_nothing() -> None:
    view = create(properties={"comment": "c"})
    made = after(view, {"action": "set-properties", "updates": {"a": "b"}}, {"action": "set-location", "location": "x"})
    assert (made["properties"], made["location"]) == ({"comment": "c", "a": "b"}, "x")
    assert after(made, {"action": "remove-properties", "removals": ["a", "z"]})["properties"] == {"comment": "c"}
    for sent in (
        {"action": "set-properties", "updates": {"comment": "c"}},
        {"action": "remove-properties", "removals": ["z"]},
        {"action": "set-location", "location": LOCATION},
        {"action": "assign-uuid", "uuid": UUID.upper()},
        {"action": "upgrade-format-version", "format-version": 1},
        make_current(1),
    ):
        applied = fold(view, sent)
        assert not applied.changed
        assert applied.metadata is view


def many(count: int, keep: str = "3") -> JsonObject:
    view = create(properties={"version.history.num-entries": keep})
    for number in range(2, count + 1):
        view = after(view, add(version(number, sql=str(number))), make_current())
    return view


def test_old_versions_and_the_history_before_them_are_let_go() -> None:
    view = many(5)
    assert version_ids(view) == [5, 4, 3]
    assert [entry["version-id"] for entry in view["version-log"]] == [3, 4, 5]


def test_ten_versions_stay_unless_the_view_says_otherwise() -> None:
    view = create()
    for number in range(2, 14):
        view = after(view, add(version(number, sql=str(number))), make_current())
    assert version_ids(view) == list(range(13, 3, -1))


def test_the_current_version_stays_however_old_it_is() -> None:
    view = after(many(3), make_current(1))
    view = after(view, add(version(4, sql="4")))
    assert version_ids(view) == [1, 4, 3]
    # Version 2 is gone, and with it what was before it in the log.
    assert [entry["version-id"] for entry in view["version-log"]] == [3, 1]


def test_everything_a_request_adds_stays() -> None:
    sent = [add(version(number, sql=str(number))) for number in range(2, 6)]
    view = after(create(properties={"version.history.num-entries": "1"}), *sent)
    assert version_ids(view) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "broken",
    [None, {}, {"format-version": 2}, {"versions": None}, {"current-version-id": 9}, {"view-uuid": 5}, {"schemas": {}}],
)
def test_what_is_no_view_metadata_is_not_guessed_at(broken: Any) -> None:
    with pytest.raises(Unreadable):
        read_view({**create(), **broken} if broken else broken)


def test_a_view_needs_a_query() -> None:
    with pytest.raises(InvalidUpdate, match="at least one representation"):
        create(**{"view-version": version() | {"representations": []}})

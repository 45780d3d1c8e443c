"""Structural limits: what the docs say, how a refusal reads, and that checks are linear in their input."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakepact.access.rules import Rights, Role
from lakepact.errors import InvalidRequest
from lakepact.iceberg.draft import Context
from lakepact.iceberg.errors import Malformed
from lakepact.iceberg.requests import parse_commit_table, parse_create_table, parse_identifier
from lakepact.iceberg.types import comparable, spelled
from lakepact.iceberg.updates import apply
from lakepact.limits import (
    COLUMN_NAME_CHARACTERS,
    COLUMN_PATH_CHARACTERS,
    LAYOUT_FIELDS,
    LIMITS,
    NAME_CHARACTERS,
    NAMESPACE_LEVELS,
    REQUEST_COLUMNS,
    SCHEMA_COLUMNS,
    TABLE_PROPERTIES,
    TYPE_CHARACTERS,
    Limit,
    LimitExceeded,
    check_schema_size,
)
from lakepact.server.ui.told import edges_of
from tests.support.costly_requests import delta_schema, doubling_report, schema, struct

ROOT = Path(__file__).parents[2]


def cpu_s(work: Callable[[], Any]) -> float:
    """CPU time of the fastest of three runs, without garbage collection, whose cost depends on the whole process."""
    taken = []
    gc.disable()
    try:
        for _ in range(3):
            began = time.process_time()
            work()
            taken.append(time.process_time() - began)
    finally:
        gc.enable()
    return min(taken)


def assert_linear(work: Callable[[int], Any], size: int) -> None:
    """Four times the input takes at most twelve times as long: a quadratic step would take sixteen times, and more
    where it matters. Short times are not compared: they are all overhead."""
    small, large = cpu_s(lambda: work(size)), cpu_s(lambda: work(4 * size))
    assert large < max(12 * small, 0.1), f"{small * 1000:.1f} ms for {size:,}, {large * 1000:.1f} ms for {4 * size:,}"


@pytest.mark.parametrize("page", ["rest.md", "operations.md"])
def test_the_docs_list_exactly_the_limits(page: str) -> None:
    text = (ROOT / "docs" / page).read_text()
    rows = re.findall(r"^\| `([a-z]+-[a-z-]+)` \| ([\d,]+ .+?) \| (.+?) \|$", text, re.MULTILINE)
    assert rows == [(limit.name, f"{limit.most:,} {limit.unit}", limit.applies_to) for limit in LIMITS]


def test_the_decision_names_every_limit() -> None:
    [decision] = (ROOT / "docs" / "decisions").glob("0029-*.md")
    assert {limit.name for limit in LIMITS} <= set(re.findall(r"`([a-z-]+)`", decision.read_text()))


def test_a_refusal_names_the_object_the_actual_value_the_limit_and_what_to_do() -> None:
    with pytest.raises(LimitExceeded) as refused:
        NAMESPACE_LEVELS.check(100, "the namespace of the path")
    assert isinstance(refused.value, InvalidRequest)
    assert str(refused.value) == (
        "the namespace of the path: 100 levels; the limit is 64 (namespace-levels). Use a flatter namespace"
    )
    NAMESPACE_LEVELS.check(64, "the namespace of the path")


# --- types ---


@pytest.mark.parametrize("kind", ["geometry", "geography"])
@pytest.mark.parametrize("text", ["{}({}", "{}{}", "{}(a,{}", "{}(a,b{}", "{}({}a{}", "{}(a{},b{})x"])
def test_patterns_of_types_never_backtrack(kind: str, text: str) -> None:
    def check(size: int) -> None:
        with pytest.raises((LimitExceeded, Malformed)):
            spelled(text.replace("{}", kind, 1).replace("{}", " " * size), "a column")
        comparable(text.replace("{}", kind, 1).replace("{}", " " * size))

    assert_linear(check, 20_000)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("geometry", "geometry"),
        ("GEOMETRY ( srid:4326 )", "geometry(srid:4326)"),
        ("geography(OGC:CRS84)", "geography(OGC:CRS84)"),
        ("Geography (  OGC:CRS84  ,  Karney  )", "geography(OGC:CRS84, karney)"),
    ],
)
def test_spatial_types_have_one_spelling(written: str, canonical: str) -> None:
    assert spelled(written, "a column") == canonical


@pytest.mark.parametrize("written", ["geometry()", "geography(a, b)", "geography(a,)", "geometry(a))", "geography( )"])
def test_invalid_spatial_types_are_refused(written: str) -> None:
    with pytest.raises(Malformed):
        spelled(written, "a column")


# --- schemas ---


def refused(limit: Limit, body: dict[str, Any]) -> None:
    with pytest.raises(LimitExceeded, match=limit.name):
        parse_create_table({"name": "t", **body})


def test_schemas_beyond_a_limit_are_refused_and_those_at_it_are_not() -> None:
    parse_create_table({"name": "t", "schema": schema(SCHEMA_COLUMNS.most)})
    refused(SCHEMA_COLUMNS, {"schema": schema(SCHEMA_COLUMNS.most + 1)})
    inner = {"type": "struct", "fields": schema(5)["fields"]}
    parse_create_table({"name": "t", "schema": struct(inner, "n" * COLUMN_NAME_CHARACTERS.most)})
    refused(COLUMN_NAME_CHARACTERS, {"schema": struct(inner, "n" * (COLUMN_NAME_CHARACTERS.most + 1))})
    wide = {"type": "struct", "fields": schema(COLUMN_PATH_CHARACTERS.most // 1_000)["fields"]}
    refused(COLUMN_PATH_CHARACTERS, {"schema": struct(wide, "n" * 1_000)})
    refused(TYPE_CHARACTERS, {"schema": schema(1, "x" * (TYPE_CHARACTERS.most + 1))})


def test_names_specs_orders_and_properties_have_limits() -> None:
    refused(NAME_CHARACTERS, {"name": "n" * (NAME_CHARACTERS.most + 1), "schema": schema(1)})
    fields = [{"name": f"p{n}", "source-id": 1, "transform": "void"} for n in range(LAYOUT_FIELDS.most + 1)]
    refused(LAYOUT_FIELDS, {"schema": schema(1), "partition-spec": {"fields": fields}})
    sorted_by = {"source-id": 1, "transform": "identity", "direction": "asc", "null-order": "nulls-first"}
    refused(LAYOUT_FIELDS, {"schema": schema(1), "write-order": {"fields": [sorted_by] * (LAYOUT_FIELDS.most + 1)}})
    many = {f"p{number}": "" for number in range(TABLE_PROPERTIES.most + 1)}
    refused(TABLE_PROPERTIES, {"schema": schema(1), "properties": many})
    with pytest.raises(LimitExceeded, match=NAMESPACE_LEVELS.name):
        parse_identifier({"namespace": ["a"] * (NAMESPACE_LEVELS.most + 1), "name": "t"}, "a table")


def test_the_schemas_of_one_request_are_counted_together() -> None:
    added = [{"action": "add-schema", "schema": schema(5_000)} for _ in range(REQUEST_COLUMNS.most // 5_000 + 1)]
    with pytest.raises(LimitExceeded, match=REQUEST_COLUMNS.name):
        parse_commit_table({"requirements": [], "updates": added})


_TYPES = st.recursive(
    st.sampled_from(["long", "string", 7, None]),
    lambda inner: st.one_of(
        st.builds(lambda one: {"type": "list", "element": one}, inner),
        st.builds(lambda one, two: {"type": "map", "key": one, "value": two}, inner, inner),
        st.builds(
            lambda many: {"type": "struct", "fields": [{"name": f"n{n}", "type": one} for n, one in enumerate(many)]},
            st.lists(inner, max_size=4),
        ),
    ),
    max_leaves=30,
)


@given(_TYPES)
def test_columns_are_counted_as_they_are_walked(type_: Any) -> None:
    def count(one: Any) -> int:
        if not isinstance(one, dict):
            return 0
        below = [field["type"] for field in one.get("fields", ())]
        below += [one[part] for part in ("element", "key", "value") if part in one]
        return len(below) + sum(map(count, below))

    assert check_schema_size(type_, "a schema") == count(type_)


def test_delta_schemas_are_counted_alike() -> None:
    assert check_schema_size(delta_schema(7), "a schema") == 7
    nested = {"type": "array", "elementType": {"type": "map", "keyType": "long", "valueType": delta_schema(2)}}
    assert check_schema_size(nested, "a schema") == 5


# --- folds ---


def test_many_updates_cost_what_they_add() -> None:
    context = Context(1_000, new_uuid="u", new_location="file:///t")

    def commit(size: int) -> None:
        updates: list[dict[str, Any]] = [
            {"action": "add-schema", "schema": schema(10, first=number)} for number in range(size)
        ]
        updates.append({"action": "set-current-schema", "schema-id": 0})
        fields = [{"name": "p", "source-id": 1, "transform": "void"}]
        for number in range(size):
            spec = {"fields": [{**fields[0], "name": f"p{number}"}]}
            order = {
                "source-id": 1,
                "transform": f"bucket[{number + 1}]",
                "direction": "asc",
                "null-order": "nulls-first",
            }
            updates.append({"action": "add-spec", "spec": spec})
            updates.append({"action": "add-sort-order", "sort-order": {"fields": [order]}})
        updates.append({"action": "set-default-spec", "spec-id": -1})
        updates.append({"action": "set-default-sort-order", "sort-order-id": -1})
        parsed = parse_commit_table({"requirements": [{"type": "assert-create"}], "updates": updates})
        made = apply(None, parsed.updates, context).metadata
        assert [len(made[name]) for name in ("schemas", "partition-specs", "sort-orders")] == [size] * 3

    assert_linear(commit, 100)


def test_the_role_on_a_deep_namespace_costs_no_more_than_the_limit_allows() -> None:
    rights = Rights(None, {("a",): Role.READ, ("a", "b"): Role.WRITE})
    assert rights.on_namespace(("a",) * 40_000) is Role.READ
    assert_linear(lambda size: [rights.on_namespace(("a",) * size) for _ in range(20)], 10_000)


# --- run reports ---


def test_views_of_a_run_report_are_resolved_once() -> None:
    assert edges_of(doubling_report(1_000)) == [("db.t", "db.wide")]
    assert_linear(lambda size: edges_of(doubling_report(size)), 500)


def test_views_that_read_each_other_end() -> None:
    report = {
        "stages": [
            {"name": "a", "target": None, "reads": ["b", "db.x"]},
            {"name": "b", "target": None, "reads": ["a", "db.y"]},
            {"name": "out", "target": "db.out", "reads": ["a", "b"]},
        ]
    }
    assert edges_of(report) == [("db.x", "db.out"), ("db.y", "db.out")]

"""Types, columns, defaults and identifiers: what is a schema, and when two are the same."""

from __future__ import annotations

from typing import Any

import pytest

from lakepact.iceberg import transforms, types
from lakepact.iceberg.columns import columns_of
from lakepact.iceberg.errors import Malformed
from lakepact.iceberg.fields import JsonObject
from lakepact.iceberg.schemas import check_schema, same_schema
from tests.unit.iceberg.tables import field, schema


def list_of(element_id: int, element: Any, *, required: bool = False) -> JsonObject:
    return {"type": "list", "element-id": element_id, "element": element, "element-required": required}


def map_of(key_id: int, key: Any, value_id: int, value: Any) -> JsonObject:
    return {"type": "map", "key-id": key_id, "key": key, "value-id": value_id, "value": value, "value-required": False}


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("Long", "long"),
        ("decimal(9,2)", "decimal(9, 2)"),
        ("DECIMAL( 38 , 0 )", "decimal(38, 0)"),
        ("fixed[ 16 ]", "fixed[16]"),
        ("timestamptz_ns", "timestamptz_ns"),
        ("variant", "variant"),
        ("geometry", "geometry"),
        ("Geometry( EPSG:4326 )", "geometry(EPSG:4326)"),
        ("geography(OGC:CRS84, Karney)", "geography(OGC:CRS84, karney)"),
        ("geography(srid:4326)", "geography(srid:4326)"),
    ],
)
def test_types_have_one_spelling(name: str, spelled: str) -> None:
    assert types.spelled(name, "here") == spelled
    assert types.spelled(spelled, "here") == spelled


@pytest.mark.parametrize(
    "name", ["", "integer", "decimal", "decimal(39, 2)", "fixed", "fixed[x]", "geometry()", "geography(a, b)", "struct"]
)
def test_what_is_no_type_is_refused(name: str) -> None:
    with pytest.raises(Malformed):
        types.spelled(name, "here")


def test_coordinate_systems_are_compared_without_case_and_with_their_default() -> None:
    assert types.comparable("geometry") == types.comparable("geometry(ogc:crs84)")
    assert types.comparable("geography") == types.comparable("geography(OGC:CRS84, spherical)")
    assert types.comparable("geography") != types.comparable("geography(OGC:CRS84, karney)")


def test_nested_columns_have_long_names_and_short_ones() -> None:
    points = list_of(2, schema(field(3, "x"), field(4, "deep", list_of(5, "int"))))
    places = map_of(7, schema(field(8, "k")), 9, schema(field(10, "v")))
    columns = columns_of(check_schema(schema(field(1, "points", points), field(6, "places", places)), "schema"))
    for name, column_id in {
        "points": 1,
        "points.element": 2,
        "points.element.x": 3,
        "points.x": 3,
        "points.deep": 4,
        "points.element.deep.element": 5,
        "points.deep.element": 5,
        "places.key": 7,
        "places.key.k": 8,
        "places.value.v": 10,
        "places.v": 10,
    }.items():
        found = columns.named(name)
        assert found is not None, name
        assert found.id == column_id
    assert columns.named("places.k") is None
    assert columns.highest_id == 10
    deepest = columns.by_id[5]
    assert [above.id for above in columns.ancestors(deepest)] == [4, 2, 1]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (schema(field(1, "a"), field(1, "b")), "id 1 is used twice, by 'a' and 'b'"),
        (schema(field(1, "a"), field(2, "a")), "two columns named 'a'"),
        (schema(field(1, "a"), field(2, "a.b"), field(3, "x", schema(field(4, "y")))) | {"fields": None}, "an array"),
        (schema(field(1, "a.b"), field(2, "a", schema(field(3, "b")))), "two columns named 'a.b'"),
        (schema(field(1, "a", list_of(1, "int"))), "id 1 is used twice"),
        (schema(field(1, "a", "unknown", required=True)), "cannot be required"),
        (schema(field(1, "a", {"type": "set"})), "'set' is not a type"),
        (schema(field(1, "a", 5)), "'type': expected an object"),
        (schema({"id": 1, "name": "a", "type": "int"}), "'required' is missing"),
        (schema({"id": 2**31, "name": "a", "type": "int", "required": False}), "must be between"),
        (schema(field(1, "a", list_of(2, "int")), **{"identifier-field-ids": [2]}), "it is optional"),
        (
            schema(field(1, "a", list_of(2, "int", required=True), required=True), **{"identifier-field-ids": [2]}),
            "in a list",
        ),
        (schema(field(1, "a", "double", required=True), **{"identifier-field-ids": [1]}), "floating point"),
        (
            schema(field(1, "a", schema(field(2, "b", required=True))), **{"identifier-field-ids": [2]}),
            "optional struct",
        ),
        (schema(field(1, "a", schema(), required=True), **{"identifier-field-ids": [1]}), "primitive type"),
        (schema(field(1, "a"), **{"identifier-field-ids": [3]}), "there is no column 3"),
    ],
)
def test_a_schema_that_contradicts_itself_is_refused(made: JsonObject, message: str) -> None:
    with pytest.raises(Malformed, match=message):
        check_schema(made, "schema")


GOOD_DEFAULTS: list[tuple[str, Any]] = [
    ("boolean", True),
    ("int", -5),
    ("long", 2**40),
    ("float", 1.5),
    ("double", 1.0),
    ("string", ""),
    ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7"),
    ("binary", "0aFF"),
    ("fixed[2]", "0aff"),
    ("decimal(9, 2)", "14.20"),
    ("date", "2024-02-29"),
    ("time", "22:31:08.123456"),
    ("timestamp", "2007-12-03T10:15:30"),
    ("timestamp_ns", "2007-12-03T10:15:30.123456789"),
    ("timestamptz", "2007-12-03T10:15:30.5+00:00"),
    ("timestamptz_ns", "2007-12-03T10:15:30Z"),
]
BAD_DEFAULTS: list[tuple[str, Any]] = [
    ("boolean", 1),
    ("int", True),
    ("int", 2**31),
    ("long", "5"),
    ("double", 1),
    ("string", 5),
    ("uuid", "f79c3e09"),
    ("binary", "abc"),
    ("fixed[2]", "0a"),
    ("decimal(9, 2)", "14.2"),
    ("decimal(9, 2)", "NaN"),
    ("decimal(9, 2)", 14.2),
    ("date", "2023-02-29"),
    ("time", "25:00:00"),
    ("timestamp", "2007-12-03T10:15:30Z"),
    ("timestamp", "2007-12-03"),
    ("timestamptz", "2007-12-03T10:15:30+01:00"),
    ("timestamptz", "2007-12-03T10:15:30"),
    ("variant", "x"),
    ("geometry", "POINT (1 1)"),
    ("unknown", "x"),
]


@pytest.mark.parametrize(("type_", "value"), GOOD_DEFAULTS)
def test_a_default_is_a_value_of_its_type(type_: str, value: Any) -> None:
    made = check_schema(schema(field(1, "a", type_, **{"initial-default": value, "write-default": value})), "schema")
    assert made["fields"][0]["write-default"] == value


@pytest.mark.parametrize(("type_", "value"), BAD_DEFAULTS)
def test_a_default_that_readers_could_not_read_is_refused(type_: str, value: Any) -> None:
    with pytest.raises(Malformed, match="is not a value of type"):
        check_schema(schema(field(1, "a", type_, **{"write-default": value})), "schema")


def test_nested_columns_have_no_default_and_null_is_none() -> None:
    with pytest.raises(Malformed, match="must be null"):
        check_schema(schema(field(1, "a", schema(), **{"initial-default": {}})), "schema")
    made = check_schema(schema(field(1, "a", "variant", **{"initial-default": None, "doc": None})), "schema")
    assert made["fields"] == [field(1, "a", "variant")]


def test_one_and_true_are_different_defaults() -> None:
    one = check_schema(schema(field(1, "a", "double", **{"write-default": 1.0})), "schema")
    other = {**one, "fields": [{**one["fields"][0], "write-default": 1}]}
    assert not same_schema(one, other)


def test_fields_nobody_knows_may_have_any_name() -> None:
    one = check_schema(schema(field(1, "a", key=[1], value=2, element=None, fields=3)), "schema")
    assert same_schema(one, one)


@pytest.mark.parametrize(
    ("transform", "type_", "takes"),
    [
        ("identity", "long", True),
        ("identity", "variant", False),
        ("identity", "geometry(EPSG:1)", False),
        ("bucket[4]", "decimal(9, 2)", True),
        ("bucket[4]", "double", False),
        ("truncate[4]", "binary", True),
        ("truncate[4]", "date", False),
        ("year", "date", True),
        ("hour", "date", False),
        ("hour", "timestamptz_ns", True),
        ("void", "double", True),
        ("zorder", "double", True),
    ],
)
def test_which_types_a_transform_takes(transform: str, type_: str, takes: bool) -> None:
    assert transforms.takes(transform, type_) == takes

"""Partition values: strings in actions and in directories, values when they are compared."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from lakepact.delta.errors import BadAction
from lakepact.delta.partitions import canonical_text, typed, value_text
from lakepact.delta.paths import decode_path, encode_path, partition_path, partition_values
from lakepact.delta.schema import Array, Primitive

MOMENT = dt.datetime(2026, 1, 31, 12, 0, 0, 500, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "type_", "text"),
    [
        (None, "string", None),
        ("", "string", None),
        ("a:b", "string", "a:b"),
        (True, "boolean", "true"),
        (5, "long", "5"),
        (1.5, "double", "1.5"),
        (float("nan"), "double", "NaN"),
        (float("-inf"), "float", "-Infinity"),
        (Decimal("1.50"), "decimal(5,2)", "1.50"),
        (dt.date(2026, 1, 31), "date", "2026-01-31"),
        (MOMENT, "timestamp", "2026-01-31T12:00:00.000500Z"),
        (MOMENT.astimezone(dt.timezone(dt.timedelta(hours=2))), "timestamp", "2026-01-31T12:00:00.000500Z"),
        (MOMENT.replace(tzinfo=None), "timestamp_ntz", "2026-01-31 12:00:00.000500"),
    ],
)
def test_values_as_actions_spell_them(value: object, type_: str, text: str | None) -> None:
    assert value_text(value, Primitive(type_)) == text


@pytest.mark.parametrize(
    ("one", "two", "type_"),
    [
        ("2026-01-31 12:00:00", "2026-01-31T12:00:00.000000Z", "timestamp"),
        ("2026-01-31T14:00:00+02:00", "2026-01-31T12:00:00Z", "timestamp"),
        ("2026-01-31", "2026-01-31 00:00:00.0", "timestamp_ntz"),
        ("1.0", "1", "double"),
        ("1.50", "1.5", "decimal(5,2)"),
        ("007", "7", "long"),
        ("TRUE", "true", "boolean"),
        ("", None, "string"),
        ("NaN", "nan", "float"),
    ],
)
def test_two_spellings_of_one_value_are_equal(one: str, two: str | None, type_: str) -> None:
    assert typed(one, Primitive(type_)) == typed(two, Primitive(type_))


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("x", "long"),
        ("300", "byte"),
        ("1_0", "long"),
        ("yes", "boolean"),
        ("2026-02-30", "date"),
        ("1000", "decimal(5,2)"),
        ("NaN", "decimal(5,2)"),
        ("noon", "timestamp"),
        ("2026-01-31T12:00:00Z", "timestamp_ntz"),
    ],
)
def test_what_is_not_a_value_of_the_column_is_refused(text: str, type_: str) -> None:
    with pytest.raises(BadAction, match="is not a"):
        typed(text, Primitive(type_))


def test_values_that_cannot_be_spelled_are_refused() -> None:
    with pytest.raises(BadAction, match="needs its time zone"):
        value_text(MOMENT.replace(tzinfo=None), Primitive("timestamp"))
    with pytest.raises(BadAction, match="cannot partition a table"):
        value_text("x", Array(Primitive("long")))
    with pytest.raises(BadAction, match="type list"):
        value_text([], Primitive("string"))


def test_times_in_directories_are_in_the_zone_of_the_session() -> None:
    berlin = dt.timezone(dt.timedelta(hours=1))
    assert canonical_text("2026-01-31 12:00:00.5", Primitive("timestamp")) == "2026-01-31T12:00:00.500000Z"
    assert canonical_text("2026-01-31 12:00:00", Primitive("timestamp"), berlin) == "2026-01-31T11:00:00.000000Z"
    assert canonical_text("a", Primitive("string")) == "a"
    assert canonical_text("", Primitive("string")) is None


def test_directories_as_spark_names_them() -> None:
    values = {"p": "a:b c/é=%", "t": "2020-01-01 01:02:03.5", "e": None}
    path = "p=a%3Ab c%2Fé%3D%25/t=2020-01-01 01%3A02%3A03.5/e=__HIVE_DEFAULT_PARTITION__"
    assert partition_path(values, ["p", "t", "e"]) == path
    assert partition_values(f"data/x/{path}/part-0.parquet", ["p", "t", "e"]) == values
    with pytest.raises(BadAction, match="partition column 'q'"):
        partition_values(f"{path}/part-0.parquet", ["q"])


def test_a_path_is_encoded_once_more_than_on_disk() -> None:
    assert encode_path("p=a%3Ab c/é.parquet") == "p=a%253Ab%20c/%C3%A9.parquet"
    assert decode_path(encode_path("p=a%3Ab c/é.parquet")) == "p=a%3Ab c/é.parquet"
    with pytest.raises(BadAction, match="relative to the table"):
        encode_path("/x")

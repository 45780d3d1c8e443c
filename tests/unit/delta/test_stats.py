"""Statistics never promise more than the footer knows: wrong ones lose rows."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakepact.delta import engine_types
from lakepact.delta.schema import Field, Primitive, Struct
from lakepact.delta.stats import add_action, cut_maximum, cut_minimum, file_stats, num_records


def footer(table: pa.Table, **options: Any) -> pq.FileMetaData:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return pq.read_metadata(io.BytesIO(sink.getvalue()))


def stats(table: pa.Table, schema: Struct | None = None, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(
        file_stats(footer(table, **options), engine_types.from_arrow(table.schema) if schema is None else schema)
    )
    return found


def test_every_type_that_has_bounds_has_them() -> None:
    table = pa.table(
        {
            "byte": pa.array([1, -2], pa.int8()),
            "long": pa.array([2**60, None]),
            "text": ["b", "é"],
            "day": [dt.date(2026, 1, 31), dt.date(1, 1, 1)],
            "dec": pa.array([Decimal("-1.50"), Decimal("99999999999999999999.25")], pa.decimal128(38, 2)),
            "small": pa.array([Decimal("1.5"), Decimal("2.5")], pa.decimal128(5, 1)),
        }
    )
    assert stats(table, row_group_size=1) == {
        "numRecords": 2,
        "minValues": {"byte": -2, "long": 2**60, "text": "b", "day": "0001-01-01", "dec": -1.5, "small": 1.5},
        "maxValues": {"byte": 1, "long": 2**60, "text": "é", "day": "2026-01-31", "dec": 1e20, "small": 2.5},
        "nullCount": {"byte": 0, "long": 1, "text": 0, "day": 0, "dec": 0, "small": 0},
    }
    # A decimal is written digit for digit.
    assert '"dec":99999999999999999999.25' in file_stats(footer(table), engine_types.from_arrow(table.schema))


def test_timestamps_are_cut_to_milliseconds_outwards() -> None:
    moments = [1_500, -1_500]
    table = pa.table({"t": pa.array(moments, pa.timestamp("us", "UTC")), "n": pa.array(moments, pa.timestamp("us"))})
    found = stats(table)
    assert found["minValues"] == {"t": "1969-12-31T23:59:59.998Z", "n": "1969-12-31T23:59:59.998"}
    assert found["maxValues"] == {"t": "1970-01-01T00:00:00.002Z", "n": "1970-01-01T00:00:00.002"}


def test_a_time_without_a_zone_says_nothing_of_one_with() -> None:
    table = pa.table({"t": pa.array([1], pa.timestamp("us"))})
    found = stats(table, Struct((Field("t", Primitive("timestamp")),)))
    assert found["minValues"] == {} and found["nullCount"] == {"t": 0}


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1.0, float("nan")]),
        pa.array([1.0, 2.0]),
        pa.array([b"x"]),
        pa.array([True]),
        pa.array([[1]]),
        pa.array([{"x": 1}]),
        pa.array([None], pa.int64()),
    ],
)
def test_what_has_no_bounds(array: pa.Array) -> None:
    found = stats(pa.table({"c": array}))
    assert found["minValues"] == {} and found["maxValues"] == {}


def test_nested_columns_have_no_statistics_at_all() -> None:
    assert stats(pa.table({"c": pa.array([{"x": 1}, None])}))["nullCount"] == {}


def test_one_row_group_without_bounds_takes_them_from_all_and_one_of_nulls_does_not() -> None:
    nulls = pa.table({"c": pa.array([5, None], pa.int64())})
    assert stats(nulls, row_group_size=1)["maxValues"] == {"c": 5}
    found = stats(nulls, write_statistics=False)
    assert found == {"numRecords": 2, "minValues": {}, "maxValues": {}, "nullCount": {}}


def footer_by(writer: str, least: float, most: float) -> Any:
    """A footer with one column of doubles, as another writer would have made it."""
    numbers = SimpleNamespace(has_min_max=True, has_null_count=True, null_count=0, min_raw=least, max_raw=most)
    chunk = SimpleNamespace(is_stats_set=True, statistics=numbers)
    group = SimpleNamespace(num_rows=2, column=lambda _: chunk)
    column = SimpleNamespace(
        name="f",
        path="f",
        max_repetition_level=0,
        max_definition_level=1,
        physical_type="DOUBLE",
        logical_type="None",
    )
    schema = SimpleNamespace(column=lambda _: column)
    return SimpleNamespace(
        created_by=writer, num_rows=2, num_columns=1, num_row_groups=1, schema=schema, row_group=lambda _: group
    )


@pytest.mark.parametrize(
    ("writer", "most", "known"),
    [
        ("parquet-mr version 1.16.0 (build 402c)", 2.0, True),
        ("parquet-mr version 1.16.0 (build 402c)", float("nan"), False),
        ("parquet-mr version 1.8.3", 2.0, False),
        ("parquet-cpp-arrow version 26.0.1", 2.0, False),
        ("", 2.0, False),
    ],
)
def test_doubles_have_bounds_if_their_writer_would_have_shown_a_nan(writer: str, most: float, known: bool) -> None:
    schema = Struct((Field("f", Primitive("double")),))
    found = orjson.loads(file_stats(footer_by(writer, 1.0, most), schema))
    assert found["maxValues"] == ({"f": most} if known else {})
    assert bool(found["minValues"]) == known


def test_doubles_have_bounds_if_somebody_knows_that_there_is_no_nan() -> None:
    table = pa.table({"f": [1.5, 2.5], "g": [1.5, float("inf")], "h": [1.0, 2.0]})
    schema = engine_types.from_arrow(table.schema)
    found = orjson.loads(file_stats(footer(table), schema, without_nan={"f", "g"}))
    assert found["minValues"] == {"f": 1.5, "g": 1.5} and found["maxValues"] == {"f": 2.5}


def test_a_column_that_the_file_is_older_than_is_null_everywhere() -> None:
    schema = Struct((Field("a", Primitive("long")), Field("new", Primitive("string"))))
    assert stats(pa.table({"a": [1, 2]}), schema)["nullCount"] == {"a": 0, "new": 2}


def test_only_the_first_columns_have_statistics_and_partitions_have_none() -> None:
    table = pa.table({f"c{number}": [number] for number in range(40)})
    text = file_stats(footer(table), engine_types.from_arrow(table.schema), partition_columns=["c0"])
    assert list(orjson.loads(text)["minValues"]) == [f"c{number}" for number in range(1, 33)]


def test_long_strings_are_cut_and_still_bound_what_they_were() -> None:
    found = stats(pa.table({"s": ["a" * 100, "é" * 100]}))
    assert found["minValues"]["s"] == "a" * 32
    assert found["maxValues"]["s"] == "é" * 31 + "ê"


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("abc", "abc"),
        ("abcd", "abd"),
        ("ab\U0010ffffd", "ac"),
        ("\U0010ffff" * 4, None),
        ("ab\ud7ffd", "ab\ue000"),
    ],
)
def test_a_maximum_is_cut_upwards(text: str, cut: str | None) -> None:
    assert cut_maximum(text, 3) == cut
    assert cut is None or cut.encode() >= text.encode()
    assert cut_minimum(text, 3) <= text


def test_the_action_of_a_file() -> None:
    table = pa.table({"id": [1, 2]})
    schema = Struct((Field("id", Primitive("long")), Field("p", Primitive("string"))))
    found = add_action(
        "p=a%3Ab/x y.parquet", footer(table), schema, size=9, modification_time=8, partition_values={"p": "a:b"}
    )
    assert found.path == "p=a%253Ab/x%20y.parquet"
    assert (found.size, found.modification_time, found.partition_values) == (9, 8, {"p": "a:b"})
    assert found.stats == '{"numRecords":2,"minValues":{"id":1},"maxValues":{"id":2},"nullCount":{"id":0}}'
    assert num_records(found.stats) == 2
    assert num_records(None) is None and num_records("{") is None and num_records("[]") is None

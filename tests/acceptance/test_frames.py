"""Rows in and out of tables, with pandas, Polars, Arrow and DuckDB, in both formats, on a real server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakepact
from lakepact.client import AlreadyExists, Lake, NotFound
from tests.support.server import running_server

ROWS: dict[str, list[Any]] = {
    "id": [1, 2, 3],
    "day": ["mon", None, "a:b/c"],
    "amount": [9.5, 12.0, None],
    "at": [dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)] * 3,
}
ARROW = pa.table(ROWS)
FORMATS = ("iceberg", "delta")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with running_server(tmp_path_factory.mktemp("server")) as server, lakepact.connect(server.url) as lake:
        yield lake


@pytest.fixture
def space(lake: Lake, request: pytest.FixtureRequest) -> str:
    name = f"s{abs(hash(request.node.name)):x}"
    lake.namespaces.create(name)
    return name


def rows(table: Any) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: int(row["id"]))


EXPECTED = ARROW.to_pylist()


@pytest.mark.parametrize("table_format", FORMATS)
def test_rows_of_every_library_come_back_as_every_type_of_frame(lake: Lake, space: str, table_format: Any) -> None:
    table = f"{space}.orders"
    pandas = pd.DataFrame(ROWS)
    polars = pl.DataFrame(ROWS)
    sources: list[Any] = [pandas, polars, polars.lazy(), ARROW, ARROW.to_batches()[0], ROWS, EXPECTED]
    relation = duckdb.connect().from_arrow(ARROW)
    lake.write(table, ARROW, mode="create", format=table_format)
    for source in [*sources, relation, ARROW.to_reader()]:
        lake.write(table, source, mode="overwrite")
        assert rows(lake.read(table)) == EXPECTED, type(source)
    as_pandas = lake.read(table, as_="pandas")
    assert isinstance(as_pandas, pd.DataFrame) and sorted(as_pandas["id"]) == [1, 2, 3]
    as_polars = lake.read(table, as_="polars")
    assert isinstance(as_polars, pl.DataFrame) and as_polars.sort("id")["day"].to_list() == ["mon", None, "a:b/c"]
    as_duckdb = lake.read(table, as_="duckdb")
    assert as_duckdb.aggregate("sum(id)").fetchall() == [(6,)]
    assert lake.read(table, columns=["day", "id"]).column_names in (["day", "id"], ["id", "day"])


@pytest.mark.parametrize("table_format", FORMATS)
def test_appended_rows_are_cast_to_the_types_of_the_table(lake: Lake, space: str, table_format: Any) -> None:
    table = f"{space}.orders"
    lake.write(table, ARROW, mode="create", format=table_format)
    categories = pd.DataFrame({"id": [4], "day": pd.Categorical(["tue"]), "at": pd.to_datetime(["2026-01-02T00:00Z"])})
    lake.write(table, categories)
    last = rows(lake.read(table))[-1]
    assert last == {"id": 4, "day": "tue", "amount": None, "at": dt.datetime(2026, 1, 2, tzinfo=dt.UTC)}
    with pytest.raises(ValueError, match="has no column 'color'; it has id, day, amount, at"):
        lake.write(table, {"id": [5], "color": ["red"]})
    with pytest.raises(ValueError, match=r"column 'id' is double and cannot become int64"):
        lake.write(table, {"id": [5.5]})
    assert lake.read(table).num_rows == 4


@pytest.mark.parametrize("table_format", FORMATS)
def test_partitions_are_written_and_read_back(lake: Lake, space: str, table_format: Any) -> None:
    table = f"{space}.orders"
    lake.write(table, ARROW, mode="create", format=table_format, partition_by=["day"])
    lake.write(table, {"id": [4], "day": ["mon"]})
    assert rows(lake.read(table))[:3] == EXPECTED
    if table_format == "delta":
        assert {one.partition_values["day"] for one in lake.delta.load(table).files} == {"mon", None, "a:b/c"}


def test_both_formats_are_written_in_one_transaction_and_read_in_it(lake: Lake, space: str) -> None:
    lake.write(f"{space}.features", ARROW, mode="create")
    lake.write(f"{space}.labels", ARROW, mode="create", format="delta")
    with lake.transaction() as tx:
        for name in ("features", "labels"):
            tx.write(f"{space}.{name}", {"id": [4]})
            assert tx.read(f"{space}.{name}").num_rows == 4
            assert lake.read(f"{space}.{name}").num_rows == 3
        tx.write(f"{space}.new", ARROW, mode="create")
        with pytest.raises(NotFound):
            lake.read(f"{space}.new")
    assert len(tx.results) == 3
    assert [lake.read(f"{space}.{name}").num_rows for name in ("features", "labels", "new")] == [4, 4, 3]


def test_what_write_and_read_do_not_understand_is_refused(lake: Lake, space: str) -> None:
    table = f"{space}.orders"
    lake.write(table, ARROW, mode="create")
    with pytest.raises(AlreadyExists):
        lake.write(table, ARROW, mode="create", format="delta")
    with pytest.raises(NotFound, match="Create it with mode='create'"):
        lake.write(f"{space}.none", ARROW)
    with pytest.raises(ValueError, match="mode is one of 'append', 'overwrite', 'create', not 'replace'"):
        lake.write(table, ARROW, mode="replace")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is a table in the format iceberg, not delta"):
        lake.write(table, ARROW, format="delta")
    with pytest.raises(ValueError, match="as_ is one of 'arrow', 'pandas', 'polars', 'duckdb', not 'spark'"):
        lake.read(table, as_="spark")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot write int"):
        lake.write(table, 5)
    with pytest.raises(TypeError, match="columns is a list"):
        lake.read(table, columns="id")


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_is_read_as_it_was_at_a_time(lake: Lake, space: str, table_format: Any) -> None:
    table = f"{space}.orders"
    lake.write(table, ARROW, mode="create", format=table_format)
    if table_format == "delta":
        first_ms = lake.delta.load(table).timestamp_ms
    else:
        first_ms = lake.tables.load(table).metadata["snapshot-log"][-1]["timestamp-ms"]
    lake.write(table, {"id": [4]})
    then = dt.datetime.fromtimestamp(first_ms / 1000, dt.UTC)
    assert lake.read(table, at=then).num_rows == 3
    assert lake.read(table).num_rows == 4
    if table_format == "iceberg":
        assert lake.read_at(table, at=then)[table].pyiceberg().scan().to_arrow().num_rows == 3


def test_a_missing_library_is_named_with_the_command_that_installs_it(lake: Lake, monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(ImportError, match="this needs polars: pip install polars"):
        lake.read("a.b", as_="polars")


def test_writers_that_append_at_once_lose_nothing(lake: Lake, space: str, tmp_path: Path) -> None:
    table = f"{space}.orders"
    lake.write(table, ARROW, mode="create")
    for number in range(3):
        lake.write(table, {"id": [10 + number]})
    assert lake.read(table).num_rows == 6

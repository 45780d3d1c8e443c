"""Views as text: everything quoted, every partition a constant, and a reason for what cannot be shown."""

from __future__ import annotations

import json

import duckdb
import pytest

from lakepact.delta.actions import Metadata
from lakepact.mirrors.duckdb_file import Shown, extensions_for, read_state, write_file
from lakepact.mirrors.views import (
    MOST_BRANCHES,
    CannotShow,
    Column,
    LiveFile,
    delta_view,
    iceberg_columns,
    iceberg_type,
    iceberg_view,
)


def metadata(
    *fields: tuple[str, str], partitions: tuple[str, ...] = (), configuration: dict[str, str] | None = None
) -> Metadata:
    listed = [{"name": name, "type": type_, "nullable": True, "metadata": {}} for name, type_ in fields]
    return Metadata("id", json.dumps({"type": "struct", "fields": listed}), partitions, configuration or {})


def test_a_table_without_files_has_its_columns() -> None:
    query = delta_view(metadata(("id", "long"), ("d", "decimal(10,2)")), [])
    assert duckdb.sql(f"DESCRIBE {query}").fetchall()[1][:2] == ("d", "DECIMAL(10,2)")
    assert duckdb.sql(query).fetchall() == []


def test_names_and_values_are_quoted() -> None:
    odd = metadata(("it's", "string"), ('q"q', "string"), partitions=('q"q',))
    query = delta_view(odd, [LiveFile("/a'b.parquet", ("'; DROP --",))])
    assert "'/a''b.parquet'" in query and "CAST('''; DROP --' AS VARCHAR)" in query and '"q""q"' in query


def test_what_looks_like_a_pattern_is_a_name() -> None:
    query = delta_view(metadata(("id", "long")), [LiveFile("/a[1]*?.parquet")])
    assert "'/a[[]1][*][?].parquet'" in query


def test_each_combination_of_partition_values_is_a_branch_unless_there_are_many() -> None:
    shape = metadata(("id", "long"), ("p", "integer"), partitions=("p",))
    few = [LiveFile(f"/{number}.parquet", (str(number % 3),)) for number in range(9)]
    many = [LiveFile(f"/{number}.parquet", (str(number),)) for number in range(MOST_BRANCHES + 1)]
    assert delta_view(shape, few).count("UNION ALL") == 2
    assert "UNION ALL" not in delta_view(shape, many) and " JOIN " in delta_view(shape, many)


@pytest.mark.parametrize(("configuration", "reason"), [({"delta.columnMapping.mode": "name"}, "delta.columnMapping")])
def test_a_delta_table_that_cannot_be_shown_says_why(configuration: dict[str, str], reason: str) -> None:
    with pytest.raises(CannotShow, match=reason):
        delta_view(metadata(("id", "long"), configuration=configuration), [])


def test_iceberg_columns_are_found_by_id() -> None:
    schema = {
        "fields": [
            {"id": 3, "name": "a", "type": "long", "required": False},
            {"id": 7, "name": "b", "type": "decimal(9, 2)", "required": False, "initial-default": "1.50"},
        ]
    }
    columns = iceberg_columns(schema, evolved=True)
    assert columns == [Column("a", "BIGINT", 3), Column("b", "DECIMAL(9,2)", 7, "'1.50'")]
    query = iceberg_view(columns, [LiveFile("/x.parquet")])
    assert "3: {'name': 'a'" in query and "'default_value': '1.50'" in query


def test_iceberg_types_are_duckdb_types() -> None:
    nested = {
        "type": "struct",
        "fields": [
            {"id": 1, "name": "l", "type": {"type": "list", "element": "timestamptz"}},
            {"id": 2, "name": "m", "type": {"type": "map", "key": "string", "value": "fixed[4]"}},
        ],
    }
    assert iceberg_type(nested) == 'STRUCT("l" TIMESTAMP WITH TIME ZONE[], "m" MAP(VARCHAR, BLOB))'
    with pytest.raises(CannotShow, match="variant"):
        iceberg_type("variant")
    with pytest.raises(CannotShow, match="nested"):
        iceberg_columns({"fields": [{"id": 1, "name": "s", "type": nested}]}, evolved=True)


def shown(name: str, made_from: str = "1", schema: str = "db", reason: str | None = None) -> Shown:
    return Shown(schema, name, "delta", f"file:///{name}", 1, made_from, reason)


def test_a_file_is_made_of_another_and_remembers_what_is_in_it() -> None:
    one = [shown("a"), shown("b"), shown("c", schema="Gone")]
    queries = {(each.schema, each.name): f"SELECT '{each.name}' AS x" for each in one}
    data, refused = write_file(None, [], one, queries, taken_ms=5)
    assert refused == {}
    state = read_state(data)
    assert state is not None and set(state) == set(one)
    two = [shown("a"), shown("b", "2"), shown("d", reason="no luck")]
    data, refused = write_file(data, one, two, {("db", "b"): "SELECT 'B' AS x"}, taken_ms=6)
    state = read_state(data)
    assert state is not None and set(state) == set(two)


def test_a_view_that_duckdb_refuses_is_left_out_and_the_others_are_not() -> None:
    now = [shown("a"), shown("bad"), shown("z")]
    queries = {
        ("db", "a"): "SELECT 1 AS x",
        ("db", "bad"): "SELECT * FROM read_parquet(['/nowhere.parquet'])",
        ("db", "z"): "SELECT 2 AS x",
    }
    data, refused = write_file(None, [], now, queries, taken_ms=5)
    assert list(refused) == [("db", "bad")] and "nowhere.parquet" in refused["db", "bad"]
    state = read_state(data)
    assert state is not None
    assert sorted((one.name, one.reason is None) for one in state) == [("a", True), ("bad", False), ("z", True)]


def test_a_file_that_is_none_of_ours_has_no_state() -> None:
    assert read_state(b"anything") is None


def test_object_stores_need_extensions() -> None:
    assert extensions_for(["/a", "file:///b"]) == frozenset()
    assert extensions_for(["s3://b/c"]) == extensions_for(["gs://b/c"]) == {"httpfs"}
    assert extensions_for(["abfss://c@a/b"]) == {"azure"}

"""Outputs of one run never disagree: a stage reads tables of its own run as the run stages them, or the run fails."""

# Fixtures that come from a module beside look to ruff like names that are taken twice.
# ruff: noqa: F811

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakepact import pipelines as dp
from lakepact.pipelines.errors import StaleRead
from lakepact.pipelines.results import State
from lakepact.spark import SparkLake
from tests.interop.pipelines import name, raw, receipt, rows, shared  # noqa: F401
from tests.support.spark import Lake

HELPERS = """
from pyspark.sql import SparkSession

spark = None


def by_table(name):
    return spark.table(name)


def by_sql(name):
    return spark.sql(f"SELECT * FROM {name}")


def by_reader(name):
    return spark.read.table(name)


def by_load(name):
    return spark.read.format("iceberg").load(f"lake.{name}")


def by_active_session(name):
    return SparkSession.active().table(name)


def counted(name):
    return spark.table(name).count()
"""

HOW = ["by_table", "by_sql", "by_reader", "by_load", "by_active_session"]


@pytest.fixture
def helpers(lake: Lake) -> Iterator[Any]:
    """A module of its own that keeps the user's session, as helpers of a project do."""
    module: Any = ModuleType("helpers_of_a_project")
    exec(HELPERS, module.__dict__)
    module.spark = lake.spark
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


def declared(name: str, db: str, read: Callable[[str], DataFrame], *, format: str | None = None) -> dp.Pipeline:
    """`b` counts the rows of `a`, which is added to, and nothing in the declarations says so."""
    with dp.Pipeline(name, namespace=db) as pipeline:
        # Without a source to look into, as at a prompt.
        scope: dict[str, Any] = {"dp": dp, "read": read, "F": F, "db": db}
        exec("def b():\n    return read(db + '.a').agg(F.count('*').alias('n'))\n", scope)
        dp.materialized_view(name="b")(scope["b"])
        dp.table(name="a", format=format, sql="SELECT id FROM raw_customers")
    assert pipeline.graph().steps[f"{db}.b"].reads == ()
    return pipeline


@pytest.mark.parametrize("how", HOW)
def test_a_read_of_a_table_of_the_run_waits_for_it_and_gets_what_is_staged(
    lake: Lake, shared: SparkLake, raw: str, name: str, helpers: Any, how: str
) -> None:
    pipeline = declared(name, raw, getattr(helpers, how))
    for run in (1, 2):
        result = dp.run(pipeline, shared)
        assert result.state is State.COMMITTED
        assert len(rows(lake, f"{raw}.a")) == 2 * run
        assert rows(lake, f"{raw}.b") == [(2 * run,)]
        [read] = [one for one in result.inputs if one.table == f"{raw}.a"]
        assert read.used_by == (f"{raw}.b",) and read.staged
        assert read.snapshot_id == lake.metadata(f"{raw}.a")["current-snapshot-id"]


def test_a_value_that_is_computed_on_the_way_is_of_what_is_staged(
    lake: Lake, shared: SparkLake, raw: str, name: str, helpers: Any
) -> None:
    with dp.Pipeline(name, namespace=raw) as pipeline:
        scope: dict[str, Any] = {"helpers": helpers, "db": raw}
        exec("def b(spark):\n    return spark.range(helpers.counted(db + '.a'))\n", scope)
        dp.materialized_view(name="b")(scope["b"])
        dp.table(name="a", sql="SELECT id FROM raw_customers")
    for run in (1, 2):
        dp.run(pipeline, shared)
        assert len(rows(lake, f"{raw}.b")) == 2 * run
    assert [one["table"] for one in receipt(lake, f"{raw}.b")["inputs"]] == [f"{raw}.a"]


def test_a_view_of_the_catalog_over_a_table_of_the_run_shows_what_is_staged(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    lake.sql(f"CREATE TABLE {raw}.a (id INT)")
    lake.sql(f"CREATE VIEW {raw}.over_a AS SELECT * FROM {raw}.a")
    with dp.Pipeline(name, namespace=raw) as pipeline:
        dp.materialized_view(name="b", sql="SELECT count(*) AS n FROM over_a")
        dp.table(name="a", sql="SELECT id FROM raw_customers")
    dp.run(pipeline, shared)
    assert rows(lake, f"{raw}.b") == [(2,)]


def test_an_undeclared_read_of_a_delta_table_of_the_run_gets_what_is_staged(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    pipeline = declared(name, raw, dp.read, format="delta")
    for run in (1, 2):
        assert dp.run(pipeline, shared).state is State.COMMITTED
        assert rows(lake, f"{raw}.b") == [(2 * run,)]


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_query_text_that_names_a_delta_table_of_the_run_waits_for_it(
    lake: Lake, shared: SparkLake, raw: str, name: str, parallel: int
) -> None:
    """`b` begins before `a`, or together with it, and the declarations have no edge between them."""
    with dp.Pipeline(name, namespace=raw, parallel=parallel) as pipeline:
        # Without a source to look into, as at a prompt.
        scope: dict[str, Any] = {}
        exec("def b():\n    return 'SELECT count(*) AS n FROM a'\n", scope)
        dp.materialized_view(name="b")(scope["b"])
        dp.table(name="a", format="delta", sql="SELECT id FROM raw_customers")
    assert pipeline.graph().steps[f"{raw}.b"].reads == ()
    events: list[tuple[str, str]] = []
    for run in (1, 2):
        result = dp.run(pipeline, shared, on_event=lambda stage, what, _: events.append((stage, what)))
        assert result.state is State.COMMITTED
        assert rows(lake, f"{raw}.b") == [(2 * run,)]
        assert parallel > 1 or events.count((f"{raw}.b", "waits")) == run


def test_undeclared_reads_in_a_circle_are_refused_and_publish_nothing(
    lake: Lake, shared: SparkLake, db: str, name: str, helpers: Any
) -> None:
    lake.fill(f"{db}.a", 1)
    lake.fill(f"{db}.b", 1)
    with dp.Pipeline(name, namespace=db) as pipeline:
        for one, other in (("a", "b"), ("b", "a")):
            scope: dict[str, Any] = {"helpers": helpers, "other": f"{db}.{other}"}
            exec("def query():\n    return helpers.by_table(other)\n", scope)
            dp.table(name=one)(scope["query"])
    with pytest.raises(dp.InvalidPipeline, match="made of each other"):
        dp.run(pipeline, shared)
    assert lake.ids(f"other.{db}.a") == lake.ids(f"other.{db}.b") == [1]


@pytest.mark.parametrize(
    ("how", "format"),
    [("frame", "iceberg"), ("frame", "delta"), ("cached frame", "iceberg"), ("temporary view", "iceberg")],
)
def test_a_query_that_was_made_before_the_run_fails_it_with_the_fix(
    lake: Lake, shared: SparkLake, raw: str, name: str, how: str, format: str
) -> None:
    with dp.Pipeline(name, namespace=raw) as first:
        dp.table(name="a", format=format, sql="SELECT id FROM raw_customers")
    dp.run(first, shared)
    before = shared.table(f"{raw}.a") if how == "frame" else lake.spark.table(f"other.{raw}.a")
    if how == "cached frame":
        before.cache().count()
    before.createOrReplaceTempView("rows_before")
    with dp.Pipeline(name, namespace=raw) as pipeline:
        dp.table(name="a", sql="SELECT id FROM raw_customers")
        if how == "temporary view":
            dp.materialized_view(name="b", sql="SELECT count(*) AS n FROM rows_before")
        else:
            dp.materialized_view(name="b")(lambda: before.agg(F.count("*").alias("n")))
    try:
        with pytest.raises(StaleRead, match=rf"stage {raw}.b reads {raw}.a at .*inputs=\['{raw}.a'\]"):
            dp.run(pipeline, shared)
    finally:
        before.unpersist()
        lake.spark.catalog.dropTempView("rows_before")
    assert shared.table(f"{raw}.a").count() == 2 and "b" not in lake.tables(raw)


def test_temporary_views_of_the_session_are_inputs_like_any_other(
    lake: Lake, shared: SparkLake, db: str, name: str
) -> None:
    lake.spark.range(3).createOrReplaceTempView("session_rows")
    try:
        with dp.Pipeline(name, namespace=db) as pipeline:
            dp.materialized_view(name="by_sql", sql="SELECT count(*) AS n FROM session_rows")

            @dp.materialized_view
            def by_parameter(session_rows: DataFrame) -> DataFrame:
                return session_rows

        dp.run(pipeline, shared)
    finally:
        lake.spark.catalog.dropTempView("session_rows")
    assert rows(lake, f"{db}.by_sql") == [(3,)] and len(rows(lake, f"{db}.by_parameter")) == 3
    with pytest.raises(dp.InvalidPipeline, match="nor temporary views of the session"):
        dp.run(pipeline, shared)


def test_a_version_that_the_query_names_is_read_as_it_says(lake: Lake, shared: SparkLake, raw: str, name: str) -> None:
    lake.sql(f"CREATE TABLE {raw}.a AS SELECT 1 AS id")
    before = lake.metadata(f"{raw}.a")["current-snapshot-id"]
    with dp.Pipeline(name, namespace=raw) as pipeline:
        dp.table(name="a", sql="SELECT id FROM raw_customers")
        dp.materialized_view(name="b", sql=f"SELECT count(*) AS n FROM a VERSION AS OF {before}")
    result = dp.run(pipeline, shared)
    assert rows(lake, f"{raw}.b") == [(1,)]
    assert [(one.snapshot_id, one.staged) for one in result.inputs if one.table == f"{raw}.a"] == [(before, False)]


def test_a_check_that_reads_an_unfinished_table_of_the_run_fails_it_with_the_fix(
    lake: Lake, shared: SparkLake, raw: str, name: str, helpers: Any
) -> None:
    lake.sql(f"CREATE TABLE {raw}.a (id INT)")
    with dp.Pipeline(name, namespace=raw, parallel=1) as pipeline:
        dp.materialized_view(name="b", sql="SELECT count(*) AS n FROM raw_customers")
        dp.materialized_view(name="a", sql="SELECT id, n FROM raw_customers, b")

        @dp.check("b")
        def agrees(b: DataFrame) -> bool:
            return bool(b.collect()[0][0] == helpers.counted(f"{raw}.a"))

    with pytest.raises(dp.InvalidPipeline, match=r"check agrees of .*\.b reads .*\.a.*def agrees\(b, a\)"):
        dp.run(pipeline, shared)
    assert "b" not in lake.tables(raw)

"""Projects of Spark Declarative Pipelines, as `spark-pipelines init` makes them: all tables in one commit, or none."""

# Fixtures that come from a module beside look to ruff like names that are taken twice.
# ruff: noqa: F811

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.pipelines.init_cli import init

import lakepact.client
from lakepact.spark import SparkLake
from tests.interop.pipelines import name, receipt, shared  # noqa: F401
from tests.interop.test_pipeline_kills import restarting_server
from tests.support import jars
from tests.support.quick_spark import as_options, quick_settings, without_spark
from tests.support.spark import Lake

TIMEOUT_S = 900
LONG = bool(os.environ.get("LAKEPACT_LONG"))
STREAMING = """
from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table
def landed() -> DataFrame:
    return spark.readStream.table("raw")


@dp.materialized_view
def counted() -> DataFrame:
    return spark.table("landed").groupBy().count()
"""
# It fails while it runs, when the stream has ended and all that it needs is staged.
FAILING = (
    "CREATE MATERIALIZED VIEW broken AS "
    "SELECT CAST(raise_error(concat('out of luck ', count)) AS BIGINT) AS more FROM counted"
)
MENDED = "CREATE MATERIALIZED VIEW broken AS SELECT count + 1 AS more FROM counted"
SINK = """
from pyspark import pipelines as dp

dp.create_sink("elsewhere", "console", {})
"""


def lakepact_run(lake: Lake, project: Path, *options: str, uri: str | None = None) -> subprocess.CompletedProcess[str]:
    folder = jars.resolve(jars.SPARK_ICEBERG)[0].parent
    file = str(project / "spark-pipeline.yml")
    command = [sys.executable, "-m", "lakepact", "run", file, "--uri", uri or lake.server.url]
    conf = as_options(quick_settings(project))
    return subprocess.run(
        [*command, "--master", "local[2]", "--jars", str(folder), *options, *conf],
        cwd=project,
        env=without_spark(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def done(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr[-6000:]
    return dict(orjson.loads(result.stdout))


@pytest.fixture
def stock(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    init("stock")
    yield tmp_path / "stock"
    if lake.rest("GET", "namespaces/default").status == 404:
        return
    for table in lake.tables("default"):
        lake.rest("DELETE", f"namespaces/default/tables/{table}")
    lake.rest("DELETE", "namespaces/default")


def test_a_stock_project_is_published_in_one_commit(lake: Lake, shared: SparkLake, stock: Path) -> None:
    first = done(lakepact_run(lake, stock, "--run-id", "monday", "--json"))
    assert (first["state"], first["run_id"], first["pipeline"]) == ("committed", "monday", "stock")
    assert lake.ids("other.default.example_python_materialized_view") == list(range(10))
    assert lake.ids("other.default.example_sql_materialized_view") == [0, 2, 4, 6, 8]
    assert {stage["name"]: stage["figures"]["rows"] for stage in first["stages"]} == {
        "default.example_python_materialized_view": 10,
        "default.example_sql_materialized_view": 5,
    }
    both = ("default.example_python_materialized_view", "default.example_sql_materialized_view")
    assert len({lake.metadata(table)["last-updated-ms"] for table in both}) == 1
    for table in both:
        found = receipt(lake, table)
        assert found["transaction-id"] == first["transaction_id"]
        assert (found["source"]["kind"], found["source"]["run-id"]) == ("pipeline", "monday")

    again = done(lakepact_run(lake, stock, "--run-id", "monday", "--json"))
    assert (again["state"], again["transaction_id"]) == ("already-committed", first["transaction_id"])


def test_a_flow_that_fails_publishes_nothing_and_its_streams_have_read_nothing(
    lake: Lake, db: str, name: str, tmp_path: Path
) -> None:
    lake.sql(f"CREATE TABLE {db}.raw (id BIGINT)")
    lake.sql(f"INSERT INTO {db}.raw VALUES (1), (2)")
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "streaming.py").write_text(STREAMING)
    sql = tmp_path / "transformations" / "broken.sql"
    sql.write_text(FAILING)
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: {name}\nstorage: file://{tmp_path}/storage\ndatabase: {db}\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    failed = lakepact_run(lake, tmp_path)
    assert failed.returncode == 1, failed.stderr[-6000:]
    assert "out of luck 2" in failed.stderr and "nothing of the run was published" in failed.stderr
    assert lake.tables(db) == ["raw"]

    sql.write_text(MENDED)
    assert done(lakepact_run(lake, tmp_path, "--json"))["state"] == "committed"
    assert lake.ids(f"other.{db}.landed") == [1, 2]
    assert lake.one(f"SELECT * FROM other.{db}.broken") == 3
    if not LONG:
        return
    # The next run goes on from there.
    lake.sql(f"INSERT INTO other.{db}.raw VALUES (3)")
    assert done(lakepact_run(lake, tmp_path, "--json"))["state"] == "committed"
    assert lake.ids(f"other.{db}.landed") == [1, 2, 3]
    assert lake.one(f"SELECT * FROM other.{db}.counted") == 3
    assert lake.one(f"SELECT * FROM other.{db}.broken") == 4


@pytest.mark.long
def test_a_sink_outside_of_the_lake_is_refused(lake: Lake, db: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "sink.py").write_text(SINK)
    (tmp_path / "spark-pipeline.yml").write_text(
        f"name: {name}\nstorage: file://{tmp_path}/storage\ndatabase: {db}\n"
        "libraries:\n  - glob:\n      include: sink.py\n"
    )
    refused = lakepact_run(lake, tmp_path)
    assert refused.returncode == 2, refused.stderr[-6000:]
    assert "sink elsewhere is outside of the lake" in refused.stderr
    assert lake.tables(db) == []


def test_a_project_survives_a_restart_of_the_server(lake: Lake, stock: Path, tmp_path: Path) -> None:
    with restarting_server(tmp_path) as (proxy, running, crash):
        # While a flow stages its table, through Spark's own client.
        proxy.after_answer, proxy.cut, proxy.met = False, crash, "POST /v1/main@"
        result = done(lakepact_run(lake, stock, "--json", uri=proxy.url))
        assert (result["state"], result["attempts"]) == ("committed", 2)
        assert len(running) == 2
        with lakepact.client.connect(proxy.url) as catalog:
            both = ("example_python_materialized_view", "example_sql_materialized_view")
            tables = [catalog.tables.load(("default", table)) for table in both]
        assert [int(table.metadata["snapshots"][-1]["summary"]["total-records"]) for table in tables] == [10, 5]

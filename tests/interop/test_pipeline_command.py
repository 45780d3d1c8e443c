"""`lakepact run` and `lakepact history`: what they print, and how they end."""

# Fixtures that come from a module beside look to ruff like names that are taken twice.
# ruff: noqa: F811

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from lakepact.cli import app
from tests.interop.pipelines import name, raw, receipt  # noqa: F401
from tests.support.spark import Lake

FILE = """
from pyspark.sql import DataFrame, SparkSession

from lakepact import pipelines as dp

spark = SparkSession.active()
dp.pipeline(namespace=dp.param("db"))


@dp.table
@dp.expect_rows(at_least=dp.param("least", 1), over="added")
def copies() -> DataFrame:
    return spark.table("raw_customers")


@dp.materialized_view
def counted(copies: DataFrame) -> str:
    return "SELECT count(*) AS n FROM copies"
"""


@pytest.fixture
def file(lake: Lake, name: str) -> Path:
    made = lake.folder / f"{name}.py"
    made.write_text(FILE)
    return made


def test_the_command_runs_reports_and_says_how_it_ended_by_its_exit_code(lake: Lake, raw: str, file: Path) -> None:
    def command(*more: str) -> Any:
        return CliRunner().invoke(app, [*more, "--uri", lake.server.url])

    arguments = ("run", str(file), "--param", f"db={raw}")
    failed = command(*arguments, "--param", "least=3")
    assert failed.exit_code == 1
    assert "check-failed" in failed.stderr
    assert "2 rows, and at least 3 were expected" in failed.stderr

    done = command(*arguments, "--run-id", "monday", "--json")
    assert done.exit_code == 0, done.stderr
    found = orjson.loads(done.stdout)
    assert (found["state"], found["run_id"], found["quality"]) == ("committed", "monday", "passed")
    again = command(*arguments, "--run-id", "monday")
    assert again.exit_code == 0
    assert "was committed before" in again.stdout
    assert command("run", str(file)).exit_code == 2
    # The session is not the command's own, so it is still there, and has no catalog of a Delta that it has not.
    assert lake.one("SELECT 1") == 1
    assert lake.spark.conf.get("spark.sql.catalog.spark_catalog", None) is None

    lake.sql(f"INSERT INTO other.{raw}.copies VALUES (50, 'from outside')")
    # History is told by receipts, which come a moment after the answer.
    assert receipt(lake, f"{raw}.copies")
    shown = command("history", f"{raw}.copies")
    assert shown.exit_code == 0, shown.stderr
    outside, by_run = shown.stdout.split("\n\n")
    assert "external" in outside and "unknown (external write)" in outside and "no checks" in outside
    assert f"pipeline {file.stem}, run monday" in by_run
    assert f"{raw}.raw_customers@" in by_run and "(verified)" in by_run
    assert "passed, 1 check\n" in by_run
    assert "2 added, 2 in all" in by_run

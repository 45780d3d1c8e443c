"""Pipelines on a real Spark: all outputs become visible at one instant, or none does."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from typer.testing import CliRunner

from lakepact import pipelines as dp
from lakepact import spark as lp
from lakepact.cli import app
from lakepact.pipelines.results import State, Status
from lakepact.spark import SparkLake
from tests.support import jars
from tests.support.spark import Lake

pytestmark = pytest.mark.timeout(600)

_NAMES = itertools.count(1)


@pytest.fixture(scope="session")
def shared(lake: Lake) -> SparkLake:
    return lp.connect(lake.spark)


@pytest.fixture
def name() -> str:
    """A pipeline of its own for each test: positions go by the name."""
    return f"pipeline-{next(_NAMES)}"


@pytest.fixture
def raw(lake: Lake, db: str) -> Iterator[str]:
    """Orders and customers; the third order is of nobody."""
    orders = "VALUES (1, 10, 5D), (2, 11, 7.5D), (3, 99, 1D) t(id, customer, amount)"
    lake.sql(f"CREATE TABLE {db}.raw_orders AS SELECT * FROM {orders}")
    lake.sql(f"CREATE TABLE {db}.raw_customers AS SELECT * FROM VALUES (10, 'Ann'), (11, 'Bob') t(id, name)")
    yield db


def rows(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    return sorted(lake.sql(f"SELECT * FROM other.{table}"), key=str)


def receipt(lake: Lake, table: str) -> dict[str, Any]:
    """The receipt of the table's newest version."""
    from lakepact.catalog.receipts import commit_key

    key = commit_key(lake.loaded(table)["metadata-location"])
    warehouse = lake.server.folder / "data"
    [found] = warehouse.rglob(f"{key}.json")
    return dict(orjson.loads(found.read_bytes()))


def shop(name: str, db: str, spark: SparkSession, *, known_only: bool = True) -> dp.Pipeline:
    """Two branches that run side by side, a table made of both, and a summary. `spark` is read through as a file that
    was written for `pyspark.pipelines` would."""
    with dp.Pipeline(name, namespace=db) as pipeline:

        @dp.temporary_view
        @dp.expect_or_drop("is of somebody", "customer < 99" if known_only else "true")
        def clean() -> DataFrame:
            return spark.read.table("raw_orders")

        @dp.table(mode="merge", keys=["id"], comment="who buys")
        @dp.expect_unique("id")
        def customers(raw_customers: DataFrame) -> DataFrame:
            return raw_customers.withColumn("letters", F.length("name"))

        @dp.table(partition_cols=["bucket(4, id)"], table_properties={"team": "shop"})
        @dp.expect_references("customer", "customers", "id")
        @dp.expect_not_null("id", "amount")
        def facts() -> DataFrame:
            return spark.sql("SELECT o.*, c.name FROM clean o LEFT JOIN customers c ON o.customer = c.id")

        @dp.materialized_view
        @dp.expect_rows(between=(1, 10))
        @dp.expect("cheap", "total < 6")
        def daily(facts: DataFrame) -> DataFrame:
            return facts.groupBy("name").agg(F.sum("amount").alias("total"))

        @dp.check("daily")
        def sums_agree(daily: DataFrame, facts: DataFrame) -> bool:
            return bool(daily.agg(F.sum("total")).first() == facts.agg(F.sum("amount")).first())

    return pipeline


def test_a_graph_runs_as_one_transaction_and_stages_read_what_others_have_staged(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    before = {
        table: lake.metadata(f"{raw}.{table}")["current-snapshot-id"] for table in ("raw_orders", "raw_customers")
    }
    result = dp.run(shop(name, raw, lake.spark), shared)

    assert result.state is State.COMMITTED
    assert rows(lake, f"{raw}.daily") == [("Ann", 5), ("Bob", 7.5)]
    assert rows(lake, f"{raw}.facts") == [(1, 10, 5, "Ann"), (2, 11, 7.5, "Bob")]
    assert "clean" not in lake.tables(raw)
    assert not lake.spark.catalog.tableExists("clean")

    # One transaction, so one instant.
    instants = {lake.metadata(f"{raw}.{table}")["last-updated-ms"] for table in ("customers", "facts", "daily")}
    assert len(instants) == 1
    assert lake.metadata(f"{raw}.facts")["properties"]["team"] == "shop"
    assert lake.metadata(f"{raw}.customers")["properties"]["comment"] == "who buys"
    assert [field["transform"] for field in lake.metadata(f"{raw}.facts")["partition-specs"][-1]["fields"]] == [
        "bucket[4]"
    ]

    # What was checked, and how it went.
    statuses = {check.name: check.status for check in result.checks}
    assert statuses == {
        "is of somebody": Status.DROPPED,
        "id unique": Status.PASSED,
        "id, amount not null": Status.PASSED,
        "customer in customers": Status.PASSED,
        "number of rows": Status.PASSED,
        "cheap": Status.WARNED,
        "sums agree": Status.PASSED,
    }
    stages = {stage.name: stage for stage in result.stages}
    assert stages[f"{raw}.facts"].figures.rows == 2
    assert stages[f"{raw}.facts"].figures.files >= 1
    assert stages[f"{raw}.facts"].figures.bytes > 0

    # What was read is what the transaction has loaded, at the snapshots it saw; the receipts say so.
    assert {one.table: one.snapshot_id for one in result.inputs} == {
        f"{raw}.{table}": id for table, id in before.items()
    }
    found = receipt(lake, f"{raw}.daily")
    assert (found["lineage"], found["quality"]) == ("verified", "passed")
    assert found["source"]["kind"] == "pipeline"
    assert (found["source"]["pipeline"], found["source"]["run-id"]) == (name, result.run_id)
    assert {one["table"] for one in found["inputs"]} == {f"{raw}.raw_orders", f"{raw}.raw_customers"}
    assert len(found["checks"]) == len(result.checks)
    summary = lake.metadata(f"{raw}.facts")["snapshots"][-1]["summary"]
    assert summary["lakepact.run-id"] == result.run_id
    assert summary["lakepact.stage"] == f"{raw}.facts"


def test_a_failing_expectation_publishes_nothing_and_shows_rows(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    with pytest.raises(dp.CheckFailed) as caught:
        dp.run(shop(name, raw, lake.spark, known_only=False), shared)
    [failed] = caught.value.results
    assert (failed.table, failed.kind, failed.violations, failed.rows) == (f"{raw}.facts", "references", 1, 3)
    assert orjson.loads(failed.sample[0])["customer"] == 99
    assert "99" in str(caught.value)
    assert sorted(lake.tables(raw)) == ["raw_customers", "raw_orders"]
    assert shared.plain.state.get(f"runs/{name}") is None


def test_independent_stages_run_side_by_side_and_a_failing_one_publishes_nothing(
    lake: Lake, shared: SparkLake, db: str, name: str
) -> None:
    meeting = threading.Barrier(2, timeout=60)

    def pipeline(*, fails: bool) -> dp.Pipeline:
        with dp.Pipeline(name, namespace=db) as made:

            @dp.materialized_view
            def left(spark: SparkSession) -> DataFrame:
                meeting.wait()
                return spark.range(3)

            @dp.materialized_view
            def right() -> DataFrame:
                # Also the session that is active in the thread is the stage's own.
                meeting.wait()
                assert (
                    SparkSession.active().conf.get("spark.sql.iceberg.snapshot-property.lakepact.stage")
                    == f"{db}.right"
                )
                return SparkSession.active().createDataFrame([(one,) for one in range(4)], "id INT")

            @dp.materialized_view
            def both(left: DataFrame, right: DataFrame) -> str | DataFrame:
                if fails:
                    raise RuntimeError("out of luck")
                return "SELECT count(*) AS n FROM left, right"

        return made

    with pytest.raises(dp.StageFailed, match=rf"stage {db}.both failed.*\n?.*out of luck"):
        dp.run(pipeline(fails=True), shared)
    assert lake.tables(db) == []
    assert dp.run(pipeline(fails=False), shared).state is State.COMMITTED
    assert rows(lake, f"{db}.both") == [(12,)]
    # And outside of stages it is what it was.
    assert SparkSession.active().conf.get("spark.sql.iceberg.snapshot-property.lakepact.stage", None) is None


def test_a_dry_run_does_everything_and_publishes_nothing(lake: Lake, shared: SparkLake, raw: str, name: str) -> None:
    result = dp.run(shop(name, raw, lake.spark), shared, dry_run=True)
    assert result.state is State.DRY_RUN
    assert len(result.checks) == 7
    assert sorted(lake.tables(raw)) == ["raw_customers", "raw_orders"]


def test_the_same_run_is_committed_once(lake: Lake, shared: SparkLake, raw: str, name: str) -> None:
    with dp.Pipeline(name, namespace=raw) as pipeline:
        dp.table(name="copies", sql="SELECT * FROM raw_customers")
    first = dp.run(pipeline, shared, run_id="2026-07-01")
    again = dp.run(pipeline, shared, run_id="2026-07-01")
    assert (first.state, again.state) == (State.COMMITTED, State.ALREADY_COMMITTED)
    assert again.transaction_id == first.transaction_id
    assert len(rows(lake, f"{raw}.copies")) == 2
    assert dp.run(pipeline, shared, run_id="2026-07-02").state is State.COMMITTED
    assert len(rows(lake, f"{raw}.copies")) == 4


def test_the_same_run_twice_at_once_is_committed_once(lake: Lake, shared: SparkLake, raw: str, name: str) -> None:
    attempts: list[str] = []

    def pipeline(who: str, *, other_first: bool) -> dp.Pipeline:
        with dp.Pipeline(name, namespace=raw) as made:

            @dp.table
            def copies(raw_customers: DataFrame) -> DataFrame:
                attempts.append(who)
                if other_first and attempts == [who]:
                    # Somebody else does the same run while this one is at it.
                    thread = threading.Thread(
                        target=dp.run, args=(pipeline("other", other_first=False), shared), kwargs={"run_id": "r"}
                    )
                    thread.start()
                    thread.join()
                return raw_customers

        return made

    result = dp.run(pipeline("one", other_first=True), shared, run_id="r")
    assert result.state is State.ALREADY_COMMITTED
    assert attempts == ["one", "other"]
    assert len(rows(lake, f"{raw}.copies")) == 2


def test_a_run_is_done_again_when_an_outside_writer_was_faster(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    lake.sql(f"CREATE TABLE {raw}.copies AS SELECT * FROM {raw}.raw_customers")
    tries: list[int] = []
    with dp.Pipeline(name, namespace=raw) as pipeline:

        @dp.table
        def copies(raw_customers: DataFrame) -> DataFrame:
            tries.append(1)
            if len(tries) == 1:
                lake.sql(f"INSERT INTO other.{raw}.copies VALUES (50, 'from outside')")
            return raw_customers

    result = dp.run(pipeline, shared)
    assert (result.state, result.attempts) == (State.COMMITTED, 2)
    assert len(rows(lake, f"{raw}.copies")) == 2 + 1 + 2


def test_inputs_may_grow_meanwhile_unless_the_pipeline_is_serializable(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    tries: list[int] = []

    def pipeline(isolation: Any) -> dp.Pipeline:
        tries.clear()
        with dp.Pipeline(f"{name}-{isolation}", namespace=raw, isolation=isolation) as made:

            @dp.materialized_view
            def counted(raw_customers: DataFrame) -> DataFrame:
                tries.append(1)
                if len(tries) == 1:
                    lake.sql(f"INSERT INTO other.{raw}.raw_customers VALUES (50, 'late')")
                return raw_customers.agg(F.count("*").alias("n"))

        return made

    assert dp.run(pipeline("snapshot"), shared).attempts == 1
    assert rows(lake, f"{raw}.counted") == [(2,)]
    assert dp.run(pipeline("serializable"), shared).attempts == 2
    assert rows(lake, f"{raw}.counted") == [(4,)]


def test_incremental_runs_neither_lose_nor_repeat_a_row(lake: Lake, shared: SparkLake, db: str, name: str) -> None:
    """Ten runs over an input that grows, some of which die before they are committed."""
    lake.sql(f"CREATE TABLE {db}.raw (id BIGINT)")
    dies: list[bool] = [False]

    with dp.Pipeline(name, namespace=db) as pipeline:

        @dp.table
        def rows_in() -> DataFrame:
            return dp.read_new("raw")

        @dp.table
        def counted(rows_in: DataFrame) -> DataFrame:
            if dies[0]:
                raise RuntimeError("dies")
            # What is new in a table of the run itself is what the run has staged.
            return dp.read_new("rows_in").agg(F.count("*").alias("n"))

    expected: list[int] = []
    for number in range(10):
        if number % 4 != 3:
            lake.sql(f"INSERT INTO other.{db}.raw VALUES ({2 * number}), ({2 * number + 1})")
            expected += [2 * number, 2 * number + 1]
        dies[0] = number % 3 == 1
        if dies[0]:
            with pytest.raises(dp.StageFailed, match="dies"):
                dp.run(pipeline, shared)
        else:
            result = dp.run(pipeline, shared)
            assert lake.ids(f"other.{db}.rows_in") == expected
            assert lake.one(f"SELECT sum(n) FROM other.{db}.counted") == len(expected)
    [since] = [one.since_snapshot_id for one in result.inputs if one.table == f"{db}.raw"]
    assert since is not None

    lake.sql(f"DELETE FROM other.{db}.raw WHERE id = 0")
    with pytest.raises(dp.PositionLost, match="skip_changes"):
        dp.run(pipeline, shared)


def test_the_schema_grows_with_the_query_in_the_same_commit(lake: Lake, shared: SparkLake, raw: str, name: str) -> None:
    def pipeline(columns: str) -> dp.Pipeline:
        with dp.Pipeline(name, namespace=raw) as made:
            dp.table(name="added", sql=f"SELECT {columns} FROM raw_customers")
            dp.table(name="merged", mode="merge", keys=["id"], sql=f"SELECT {columns} FROM raw_customers")
            dp.materialized_view(name="anew", sql=f"SELECT {columns} FROM added")
        return made

    dp.run(pipeline("id"), shared)
    dp.run(pipeline("id, name"), shared)
    assert rows(lake, f"{raw}.merged") == [(10, "Ann"), (11, "Bob")]
    assert rows(lake, f"{raw}.added") == [(10, "Ann"), (10, None), (11, "Bob"), (11, None)]
    assert len(rows(lake, f"{raw}.anew")) == 4


def test_a_table_may_read_what_it_was_before(lake: Lake, shared: SparkLake, raw: str, name: str) -> None:
    with dp.Pipeline(name, namespace=raw) as pipeline:

        @dp.table(schema="id INT, name STRING")
        def seen() -> DataFrame:
            return dp.read("raw_customers").join(dp.read("seen"), "id", "left_anti")

    assert [stage.figures.rows for stage in dp.run(pipeline, shared).stages] == [2]
    before = lake.metadata(f"{raw}.seen")["current-snapshot-id"]
    lake.sql(f"INSERT INTO other.{raw}.raw_customers VALUES (12, 'Cid')")
    result = dp.run(pipeline, shared)
    assert [stage.figures.rows for stage in result.stages] == [1]
    assert lake.ids(f"other.{raw}.seen") == [10, 11, 12]
    assert (f"{raw}.seen", before) in [(one.table, one.snapshot_id) for one in result.inputs]


def test_only_a_part_may_run_and_reads_other_tables_as_they_are(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    pipeline = shop(name, raw, lake.spark)
    dp.run(pipeline, shared)
    lake.sql(f"INSERT INTO other.{raw}.raw_orders VALUES (4, 10, 100)")
    result = dp.run(pipeline, shared, only=["facts"])
    assert [stage.name for stage in result.stages] == ["clean", f"{raw}.facts"]
    assert len(rows(lake, f"{raw}.facts")) == 2 + 3
    assert rows(lake, f"{raw}.daily") == [("Ann", 5), ("Bob", 7.5)]


def test_a_part_must_not_take_new_rows_away_from_others(shared: SparkLake, raw: str, name: str) -> None:
    with dp.Pipeline(name, namespace=raw) as pipeline:

        @dp.temporary_view
        def new() -> DataFrame:
            return dp.read_new("raw_orders")

        dp.table(name="one", sql="SELECT * FROM new")
        dp.table(name="two", sql="SELECT * FROM new")

    with pytest.raises(dp.InvalidPipeline, match=rf"also for {raw}\.two.*Run them together"):
        dp.run(pipeline, shared, only=["one"])


def test_unknown_inputs_are_an_error_before_anything_runs(shared: SparkLake, db: str, name: str) -> None:
    with dp.Pipeline(name, namespace=db) as pipeline:

        @dp.table
        def out(missing: DataFrame) -> DataFrame:
            raise AssertionError("it must not run")

    with pytest.raises(dp.InvalidPipeline, match=rf"unknown inputs: {db}\.missing \(read by {db}\.out\)"):
        dp.run(pipeline, shared)


def test_a_stream_that_is_restarted_is_in_both_tables_exactly_once(
    lake: Lake, shared: SparkLake, db: str, name: str
) -> None:
    source, checkpoint = lake.folder / name / "source", lake.folder / name / "checkpoint"
    source.mkdir(parents=True)
    lake.sql(f"CREATE TABLE {db}.orders (id BIGINT, day STRING)")
    lake.sql(f"CREATE TABLE {db}.counts (day STRING, n BIGINT)")
    dies: list[str] = []
    calls: list[int] = []

    def write(tx: lp.SparkTransaction, batch: DataFrame) -> None:
        calls.append(1)
        tx.write(batch, f"{db}.orders")
        if dies == ["before"]:
            raise RuntimeError("dies before the commit")
        tx.write(batch.groupBy("day").agg(F.count("*").alias("n")), f"{db}.counts")

    sink = dp.sink(shared, name, write)

    def each(batch: DataFrame, batch_id: int) -> None:
        sink(batch, batch_id)
        if dies == ["after"]:
            raise RuntimeError("dies after the commit")

    def feed(number: int) -> None:
        (source / f"{number}.json").write_text(f'{{"id": {number}, "day": "d{number % 2}"}}\n')

    def run() -> None:
        stream = lake.spark.readStream.schema("id BIGINT, day STRING").json(str(source))
        query = (
            stream.writeStream.foreachBatch(each)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        finally:
            query.stop()

    feed(1)
    run()
    for how in ("before", "after"):
        feed(2 if how == "before" else 3)
        dies.append(how)
        with pytest.raises(Exception, match="dies"):
            run()
        dies.clear()
        run()
    assert lake.ids(f"other.{db}.orders") == [1, 2, 3]
    assert sorted(lake.sql(f"SELECT day, sum(n) FROM other.{db}.counts GROUP BY day")) == [("d0", 1), ("d1", 2)]
    # The batch that was in already was not computed again.
    assert len(calls) == 1 + 2 + 1
    document = shared.plain.state[f"streams/{name}"]
    assert document["batch-id"] == 2
    assert len(document["query-id"]) == 36


# --- the command ---

FILE = """
import os
import signal

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
    if dp.param("die", False):
        assert dp.read("copies").count() == 2
        os.kill(os.getpid(), signal.SIGKILL)
    return "SELECT count(*) AS n FROM copies"
"""


@pytest.fixture
def file(lake: Lake, name: str) -> Path:
    made = lake.folder / f"{name}.py"
    made.write_text(FILE)
    return made


def test_a_killed_driver_leaves_nothing_and_the_rerun_succeeds(
    lake: Lake, shared: SparkLake, raw: str, file: Path
) -> None:
    folder = jars.resolve(jars.SPARK_ICEBERG)[0].parent
    where = ["--uri", lake.server.url, "--master", "local[1]", "--jars", str(folder)]
    told = ["--param", f"db={raw}", "--param", "die=true", "--run-id", "r1"]
    quick = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
    }
    conf = [word for name, value in quick.items() for word in ("--conf", f"{name}={value}")]
    killed = subprocess.run(
        [sys.executable, "-m", "lakepact", "run", str(file), *where, *told, *conf],
        cwd=lake.folder,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert f"{raw}.copies: staged, 2 rows" in killed.stderr
    assert sorted(lake.tables(raw)) == ["raw_customers", "raw_orders"]

    # What it has begun is still open, and in nobody's way.
    assert any(one.properties.get("run-id") == "r1" for one in shared.plain.transactions.list("open"))
    result = dp.run(file, shared, params={"db": raw}, run_id="r1")
    assert result.state is State.COMMITTED
    assert rows(lake, f"{raw}.counted") == [(2,)]
    assert lake.scan_everything()[f"{raw}.copies"] == 2


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
    # The session is not the command's own, so it is still there.
    assert lake.one("SELECT 1") == 1

    lake.sql(f"INSERT INTO other.{raw}.copies VALUES (50, 'from outside')")
    shown = command("history", f"{raw}.copies")
    assert shown.exit_code == 0, shown.stderr
    outside, by_run = shown.stdout.split("\n\n")
    assert "external" in outside and "declared-unverified" in outside and "not-checked" in outside
    assert f"pipeline {file.stem}, run monday" in by_run
    assert f"{raw}.raw_customers@" in by_run and "(verified)" in by_run
    assert "passed, 1 checks" in by_run
    assert "2 added, 2 in all" in by_run

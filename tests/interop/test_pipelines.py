"""Pipelines on a real Spark: all outputs become visible at one instant, or none does.

What is new, streams and the example are in test_pipeline_positions.py, kills in test_pipeline_kills.py, the command in
test_pipeline_command.py, projects of Spark's own in test_pipeline_projects.py.

What is left is one file, for one Spark.
"""

# Fixtures that come from a module beside look to ruff like names that are taken twice.
# ruff: noqa: F811

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakepact import pipelines as dp
from lakepact.catalog.receipts import commit_key
from lakepact.client import DeltaTable
from lakepact.pipelines.results import State, Status
from lakepact.spark import SparkLake
from tests.interop.pipelines import name, raw, receipt, rows, shared, soon  # noqa: F401
from tests.support.spark import Lake
from tests.support.waiting import PATIENCE_S


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


def elsewhere(work: Callable[[], object]) -> None:
    """Do this as another program would: in the thread of a stage all sessions are the stage's."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def report(lake: Lake, pipeline: str) -> dict[str, Any]:
    """What the newest run of this pipeline has told of itself."""
    told = [orjson.loads(one.read_bytes()) for one in (lake.server.folder / "data").rglob("_catalog/runs/*/*.json")]
    return max((one for one in told if one["pipeline"] == pipeline), key=lambda one: str(one["transaction-id"]))


def test_a_run_tells_how_it_went_well_or_not(lake: Lake, shared: SparkLake, raw: str, name: str) -> None:
    result = dp.run(shop(name, raw, lake.spark), shared)
    told = report(lake, name)
    assert (told["state"], told["run-id"], told["transaction-id"]) == (
        "committed",
        result.run_id,
        result.transaction_id,
    )
    stages = {stage["name"]: stage for stage in told["stages"]}
    assert set(stages) == {"clean", f"{raw}.customers", f"{raw}.facts", f"{raw}.daily"}
    assert all(stage["state"] == "done" and stage["seconds"] > 0 for stage in stages.values())
    assert stages["clean"]["target"] is None and stages[f"{raw}.facts"]["rows"] == 2
    assert set(stages[f"{raw}.facts"]["reads"]) == {"clean", f"{raw}.customers"}
    [dropped] = [check for check in told["checks"] if check["status"] == "dropped"]
    assert [orjson.loads(row)["id"] for row in dropped["sample"]] == [3]

    unchecked = shop(f"{name}-bad", raw, lake.spark, known_only=False)
    unchecked.configure(samples=False)
    with pytest.raises(dp.CheckFailed):
        dp.run(unchecked, shared)
    told = report(lake, f"{name}-bad")
    assert told["state"] == "failed" and told["error"]["type"] == "CheckFailed"
    assert any(check["status"] == "failed" for check in told["checks"])
    assert "sample" not in orjson.dumps(told).decode() and "99" not in told["error"]["message"]


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
    assert {one.table: one.snapshot_id for one in result.inputs if not one.staged} == {
        f"{raw}.{table}": id for table, id in before.items()
    }
    found = receipt(lake, f"{raw}.daily")
    assert (found["lineage"], found["quality"]) == ("verified", "warned")
    assert found["source"]["kind"] == "pipeline"
    assert (found["source"]["pipeline"], found["source"]["run-id"]) == (name, result.run_id)

    # Each table has the inputs of its own stage, those of the same run at the staged snapshot; and its own checks.
    def made_of(table: str) -> set[tuple[str, str]]:
        return {(one["table"], one["snapshot-id"]) for one in receipt(lake, f"{raw}.{table}")["inputs"]}

    at = {f"{raw}.{table}": str(lake.metadata(f"{raw}.{table}")["current-snapshot-id"]) for table in lake.tables(raw)}
    assert made_of("daily") == {(f"{raw}.facts", at[f"{raw}.facts"])}
    assert made_of("customers") == {(f"{raw}.raw_customers", at[f"{raw}.raw_customers"])}
    assert {table for table, _ in made_of("facts")} == {f"{raw}.raw_orders", f"{raw}.customers"}
    assert [one["name"] for one in found["checks"]] == ["number of rows", "cheap", "sums agree"]
    assert receipt(lake, f"{raw}.customers")["quality"] == "passed"
    assert "is of somebody" in [one["name"] for one in receipt(lake, f"{raw}.facts")["checks"]]
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
    meeting = threading.Barrier(2, timeout=PATIENCE_S)

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
                elsewhere(lambda: lake.sql(f"INSERT INTO other.{raw}.copies VALUES (50, 'from outside')"))
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
                    elsewhere(lambda: lake.sql(f"INSERT INTO other.{raw}.raw_customers VALUES (50, 'late')"))
                return raw_customers.agg(F.count("*").alias("n"))

        return made

    assert dp.run(pipeline("snapshot"), shared).attempts == 1
    assert rows(lake, f"{raw}.counted") == [(2,)]
    assert receipt(lake, f"{raw}.counted")["lineage"] == "verified"
    assert dp.run(pipeline("serializable"), shared).attempts == 2
    assert rows(lake, f"{raw}.counted") == [(4,)]
    assert receipt(lake, f"{raw}.counted")["lineage"] == "verified"


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


def test_a_run_is_taken_back_in_one_transaction(lake: Lake, shared: SparkLake, db: str, name: str) -> None:
    """As docs/pipelines.md says: also a materialized view, whose snapshots have no common ancestor."""

    def pipeline(rows: int) -> dp.Pipeline:
        with dp.Pipeline(name, namespace=db) as made:
            for declare, table in ((dp.materialized_view, "computed"), (dp.table, "appended")):
                declare(name=table)(lambda spark: spark.range(rows))
        return made

    tables = ("computed", "appended")
    dp.run(pipeline(2), shared)
    before = {table: lake.metadata(f"{db}.{table}")["current-snapshot-id"] for table in tables}
    dp.run(pipeline(3), shared)
    assert lake.ids(f"other.{db}.computed") == [0, 1, 2]
    with shared.transaction() as tx:
        for table in tables:
            tx.sql(f"CALL {tx.catalog}.system.set_current_snapshot('{db}.{table}', {before[table]})")
    assert [lake.ids(f"other.{db}.{table}") for table in tables] == [[0, 1], [0, 1]]


# --- Delta tables ---


def both_formats(name: str, db: str, *, wider: bool = False, smallest: float = 0) -> dp.Pipeline:
    """Iceberg in, Delta and Iceberg out, each made of the other."""
    with dp.Pipeline(name, namespace=db) as pipeline:

        @dp.table(format="delta", partition_cols=["customer"], comment="what was bought")
        @dp.expect("cheap", "amount < 6")
        @dp.expect_unique("id", severity="warn")
        @dp.expect_or_fail("worth it", f"amount > {smallest}")
        def facts(raw_orders: DataFrame) -> DataFrame:
            return raw_orders.withColumn("source", F.lit("shop")) if wider else raw_orders

        @dp.table(mode="merge", keys=["id"], format="delta")
        def customers() -> str:
            return "SELECT id, name FROM raw_customers"

        @dp.temporary_view
        def named() -> str:
            # By the name of the table, by another, without a namespace and with one.
            return f"SELECT facts.id, c.name, amount FROM facts JOIN {db}.customers AS c ON facts.customer = c.id"

        @dp.materialized_view
        def daily(named: DataFrame) -> DataFrame:
            return named.groupBy("name").agg(F.sum("amount").alias("total"))

        @dp.materialized_view(format="delta")
        @dp.expect_references("name", "daily", "name")
        def best(daily: DataFrame) -> DataFrame:
            return daily.orderBy(F.desc("total")).limit(1)

    return pipeline


def test_delta_and_iceberg_tables_are_made_of_each_other_in_one_commit(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    before = {
        table: lake.metadata(f"{raw}.{table}")["current-snapshot-id"] for table in ("raw_orders", "raw_customers")
    }
    result = dp.run(both_formats(name, raw), shared)
    assert result.state is State.COMMITTED
    delta = {table: shared.plain.delta.load(f"{raw}.{table}") for table in ("facts", "customers", "best")}
    assert {table: one.version for table, one in delta.items()} == {"facts": 0, "customers": 0, "best": 0}
    assert (delta["facts"].partition_columns, delta["facts"].metadata["description"]) == (
        ("customer",),
        "what was bought",
    )
    assert {tuple(row) for row in shared.table(f"{raw}.best").collect()} == {("Bob", 7.5)}
    assert rows(lake, f"{raw}.daily") == [("Ann", 5), ("Bob", 7.5)]
    # One transaction, so one instant.
    assert {one.timestamp_ms for one in delta.values()} == {lake.metadata(f"{raw}.daily")["last-updated-ms"]}
    figures = {stage.name: stage.figures for stage in result.stages}[f"{raw}.facts"]
    assert (figures.rows, figures.files) == (3, 3) and figures.bytes > 0
    assert {check.name: check.status for check in result.checks} == {
        "cheap": Status.WARNED,
        "id unique": Status.PASSED,
        "worth it": Status.PASSED,
        "name in daily": Status.PASSED,
    }
    assert {one.table: one.snapshot_id for one in result.inputs if not one.staged} == {
        f"{raw}.{table}": at for table, at in before.items()
    }
    # What a run makes itself is an input of other stages, whatever its format.
    assert {(one.table, one.version) for one in result.inputs if one.staged and one.version is not None} == {
        (f"{raw}.facts", 0),
        (f"{raw}.customers", 0),
    }
    found = delta_receipt(lake, delta["best"])
    assert (found["lineage"], found["quality"]) == ("verified", "passed")
    assert [one["table"] for one in found["inputs"]] == [f"{raw}.daily"]
    assert (found["source"]["pipeline"], found["source"]["run-id"]) == (name, result.run_id)

    # Once more: what is added to is added to, with a new column, what is merged and computed anew is not doubled.
    again = dp.run(both_formats(name, raw, wider=True), shared)
    assert {stage.name: stage.figures.rows for stage in again.stages if stage.target is not None} == {
        f"{raw}.facts": 3,
        f"{raw}.customers": 2,
        f"{raw}.daily": 2,
        f"{raw}.best": 1,
    }
    checks = {check.name: check for check in again.checks}
    assert (checks["cheap"].rows, checks["id unique"].rows, checks["id unique"].status) == (3, 6, Status.WARNED)
    assert shared.table(f"{raw}.facts").where("source IS NULL").count() == 3
    assert shared.table(f"{raw}.customers").count() == 2
    assert {tuple(row) for row in shared.table(f"{raw}.best").collect()} == {("Bob", 15)}
    assert shared.plain.delta.load(f"{raw}.facts").version == 1

    # A check that fails on staged Delta rows publishes nothing of either format.
    with pytest.raises(dp.CheckFailed, match="worth it"):
        dp.run(both_formats(name, raw, smallest=100), shared)
    assert shared.plain.delta.load(f"{raw}.facts").version == 1
    assert rows(lake, f"{raw}.daily") == [("Ann", 10), ("Bob", 15)]


def test_a_delta_input_is_told_by_its_version(lake: Lake, shared: SparkLake, raw: str, name: str) -> None:
    with shared.transaction() as tx:
        tx.write(lake.spark.table(f"{raw}.raw_customers"), f"{raw}.people", "create", format="delta")

    def pipeline(read_new: bool = False) -> dp.Pipeline:
        with dp.Pipeline(name, namespace=raw) as made:

            @dp.table
            def names(people: DataFrame) -> DataFrame:
                return people.select("name")

            @dp.table(format="delta")
            def known() -> DataFrame:
                return dp.read_new("people") if read_new else dp.read("people")

        return made

    result = dp.run(pipeline(), shared)
    table_id = shared.plain.delta.load(f"{raw}.people").table_id
    [found] = result.inputs
    assert (found.table, found.uuid, found.version, found.used_by) == (
        f"{raw}.people",
        table_id,
        0,
        (f"{raw}.known", f"{raw}.names"),
    )
    assert receipt(lake, f"{raw}.names")["inputs"] == [{**found.to_json(), "used-by": [f"{raw}.names"]}]
    assert found.to_json()["version"] == 0
    with pytest.raises(dp.InvalidPipeline, match="Delta table"):
        dp.run(pipeline(read_new=True), shared)
    with dp.Pipeline(name, namespace=raw) as unaware:

        @dp.table
        def unread(spark: SparkSession) -> DataFrame:
            return spark.table("people")

    with pytest.raises(dp.StageFailed, match=r"is a Delta table, .*dp\.read"):
        dp.run(unaware, shared)
    # Declared as something else than what it is.
    with dp.Pipeline(name, namespace=raw) as other:

        @dp.table(format="iceberg", name="known")
        def _known(people: DataFrame) -> DataFrame:
            return people

    with pytest.raises(dp.InvalidPipeline, match="declared as iceberg and is there as delta"):
        dp.run(other, shared)


def test_a_run_is_done_again_when_somebody_has_added_to_its_delta_table(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    """Others' appends do not conflict with ours as such, but the checks have not seen them."""
    dp.run(both_formats(name, raw), shared)
    intruders = [lake.spark.createDataFrame([(9, 11, 1.0)], "id INT, customer INT, amount DOUBLE")]

    def interrupt(stage: str, what: str, _: Any) -> None:
        if what == "committing" and intruders:
            with shared.transaction() as tx:
                tx.write(intruders.pop(), f"{raw}.facts")

    result = dp.run(both_formats(name, raw), shared, on_event=interrupt)
    assert (result.state, result.attempts) == (State.COMMITTED, 2)
    assert rows(lake, f"{raw}.daily") == [("Ann", 10), ("Bob", 16)]
    assert shared.plain.delta.load(f"{raw}.facts").version == 2


def delta_receipt(lake: Lake, table: DeltaTable) -> dict[str, Any]:
    # Its cell has one revision more than the table has versions.
    key = commit_key(f"cell:{table.table_id}:{table.version + 1}")
    [found] = soon(lambda: list((lake.server.folder / "data").rglob(f"{key}.json")))
    return dict(orjson.loads(found.read_bytes()))


def test_unknown_inputs_are_an_error_before_anything_runs(shared: SparkLake, db: str, name: str) -> None:
    with dp.Pipeline(name, namespace=db) as pipeline:

        @dp.table
        def out(missing: DataFrame) -> DataFrame:
            raise AssertionError("it must not run")

    with pytest.raises(dp.InvalidPipeline, match=rf"unknown inputs: {db}\.missing \(read by {db}\.out\)"):
        dp.run(pipeline, shared)

"""Transactions from PySpark: what a block of statements writes appears at once or never, in a session that stays as it
was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import lakepact.spark as lp
from lakepact.client import Conflict, TransactionClosed
from lakepact.errors import InvalidRequest
from tests.interop.pipelines import soon
from tests.support import jars
from tests.support.quick_spark import quick_settings, without_spark
from tests.support.spark import WAREHOUSE, Lake
from tests.support.waiting import PATIENCE_S
from tests.support.witness import Witness

# The first of them starts Spark, and the first of all fetches the runtime.


@pytest.fixture
def pact(lake: Lake) -> lp.SparkLake:
    return lp.connect(lake.spark)


def people(lake: Lake, *rows: tuple[int, str]) -> DataFrame:
    return lake.spark.createDataFrame(list(rows), "id BIGINT, name STRING")


def content(lake: Lake, table: str) -> list[tuple[Any, ...]]:
    """As somebody else sees it."""
    return lake.sql(f"SELECT * FROM other.{table} ORDER BY id")


def staged(tx: lp.SparkTransaction, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in tx.table(table).orderBy("id").collect()]


# --- writing ---


def test_every_way_to_write_is_read_inside_at_once_and_outside_after_the_commit(
    lake: Lake, pact: lp.SparkLake, db: str
) -> None:
    for name in ("appended", "overwritten", "merged", "replaced"):
        lake.fill(f"{db}.{name}", 1)
    lake.sql(f"CREATE TABLE {db}.parts (id BIGINT, name STRING) PARTITIONED BY (name)")
    lake.sql(f"INSERT INTO {db}.parts VALUES (1, 'a'), (2, 'b')")
    outside = {name: content(lake, f"{db}.{name}") for name in ("appended", "overwritten", "merged", "parts")}

    with pact.transaction() as tx:
        tx.write(people(lake, (2, "new")), f"{db}.appended")
        tx.write(people(lake, (2, "new")), f"{db}.overwritten", "overwrite")
        tx.write(people(lake, (3, "b")), f"{db}.parts", "overwrite_partitions")
        tx.write(people(lake, (1, "changed"), (2, "new")), f"{db}.merged", "merge", keys="id")
        tx.write(
            people(lake, (1, "a"), (2, "b")),
            f"{db}.created",
            "create",
            partitioned_by=["bucket(4, id)", "name"],
            properties={"team": "tests"},
        )
        tx.write(people(lake, (9, "z")), f"lake.{db}.replaced", "create_or_replace", partitioned_by="name")
        inside = {
            "appended": [(1, "n1"), (2, "new")],
            "overwritten": [(2, "new")],
            "parts": [(1, "a"), (3, "b")],
            "merged": [(1, "changed"), (2, "new")],
            "created": [(1, "a"), (2, "b")],
            "replaced": [(9, "z")],
        }
        assert {name: staged(tx, f"{db}.{name}") for name in inside} == inside
        assert {name: content(lake, f"{db}.{name}") for name in outside} == outside
        assert lake.rest("HEAD", f"namespaces/{db}/tables/created").status == 404

    assert tx.outcome == "committed" and len(tx.results) == len(inside)
    assert {name: content(lake, f"{db}.{name}") for name in inside} == inside
    # This session's own catalog caches tables, and has been told.
    assert {name: lake.sql(f"SELECT * FROM {db}.{name} ORDER BY id") for name in inside} == inside
    created, replaced = lake.metadata(f"{db}.created"), lake.metadata(f"{db}.replaced")
    assert [one["transform"] for one in created["partition-specs"][-1]["fields"]] == ["bucket[4]", "identity"]
    assert created["properties"]["team"] == "tests"
    assert len(replaced["snapshots"]) == 2


def test_a_merge_takes_nulls_as_keys_and_refuses_columns_it_would_lose(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.sql(f"CREATE TABLE {db}.t (id BIGINT, region STRING, n INT)")
    lake.sql(f"INSERT INTO {db}.t VALUES (1, NULL, 1), (1, 'eu', 2)")
    rows = lake.spark.createDataFrame([(1, None, 10), (2, None, 20)], "id BIGINT, region STRING, n INT")
    with pact.transaction() as tx:
        tx.write(rows, f"{db}.t", "merge", keys=["id", "region"])
    assert lake.sql(f"SELECT n FROM other.{db}.t ORDER BY n") == [(2,), (10,), (20,)]

    with pytest.raises(InvalidRequest, match="has no column extra"), pact.transaction() as tx:
        tx.write(rows.selectExpr("*", "1 AS extra"), f"{db}.t", "merge", keys=["id", "region"])
    with pytest.raises(InvalidRequest, match="have no column n"), pact.transaction() as tx:
        tx.write(rows.drop("n"), f"{db}.t", "merge", keys=["id", "region"])
    assert tx.outcome == "aborted"


def test_sql_sees_the_temporary_views_of_the_session_as_they_are_now(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    merge = (
        f"MERGE INTO {db}.t AS t USING updates AS s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    people(lake, (1, "first")).createOrReplaceTempView("updates")
    with pact.transaction() as tx:
        tx.sql(merge)
        assert staged(tx, f"{db}.t") == [(1, "first")]
        people(lake, (1, "second"), (2, "b")).createOrReplaceTempView("updates")
        tx.sql(merge)
        assert staged(tx, f"{db}.t") == [(1, "second"), (2, "b")]
        # What the transaction makes of its own data is its own.
        tx.table(f"{db}.t").createOrReplaceTempView("updates")
        assert tx.sql("SELECT * FROM updates").count() == 2
        tx.sql(f"INSERT INTO {db}.t SELECT id + :step, name FROM {{rows}}", {"step": 10}, rows=people(lake, (3, "c")))
        lake.spark.catalog.dropTempView("updates")
        assert tx.sql("SELECT * FROM updates").count() == 3
    assert content(lake, f"{db}.t") == [(1, "second"), (2, "b"), (13, "c")]
    assert not lake.spark.catalog.tableExists("updates")


def test_a_name_with_the_catalog_in_it_stays_inside(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    # A frame that is cached outside is no answer inside, and is not disturbed by what is written there.
    cached = lake.spark.table(f"lake.{db}.t").cache()
    assert cached.count() == 1
    with pact.transaction() as tx:
        tx.sql(f"INSERT INTO lake.{db}.t VALUES (2, 'b')")
        tx.sql(f"INSERT INTO other.{db}.t VALUES (3, 'c')")
        assert len(staged(tx, f"{db}.t")) == 3
        assert tx.sql(f"SELECT * FROM lake.{db}.t").count() == 3
        assert content(lake, f"{db}.t") == [(1, "n1")]
        assert cached.count() == 1
    assert len(content(lake, f"{db}.t")) == 3
    assert lake.spark.table(f"lake.{db}.t").count() == 3
    cached.unpersist()


def test_a_view_made_inside_is_a_view_like_any_other_afterwards(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    with pact.transaction() as tx:
        tx.write(people(lake, (2, "b")), f"{db}.t")
        tx.sql(f"CREATE VIEW {db}.v AS SELECT id FROM {db}.t")
        tx.sql(f"CREATE VIEW {db}.w AS SELECT id FROM lake.{db}.t")
        assert tx.sql(f"SELECT * FROM {db}.v").count() == 2
        assert lake.views(db) == []
    for catalog in ("lake", "other"):
        assert lake.ids(f"{catalog}.{db}.v") == lake.ids(f"{catalog}.{db}.w") == [1, 2]


def test_the_history_of_a_table_names_the_transaction_and_the_run(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.fill(f"{db}.t")
    source = {"kind": "pipeline", "run-id": "run-7"}
    with pact.transaction(summary={"lakepact.run-id": "run-7"}, source=source) as tx:
        tx.write(people(lake, (1, "a")), f"{db}.t")
        tx.sql(f"UPDATE {db}.t SET name = 'b' WHERE id = 1")
        stage = tx.stage(summary={"lakepact.task-id": "merge"}, conf={"spark.sql.shuffle.partitions": "1"})
        stage.write(people(lake, (1, "c")), f"{db}.t", "merge", keys="id")
        tx.sql(f"CREATE TABLE {db}.u AS SELECT * FROM {db}.t")
    for table, count in (("t", 3), ("u", 1)):
        summaries = [one["summary"] for one in lake.metadata(f"{db}.{table}")["snapshots"]]
        assert len(summaries) == count
        assert {one["lakepact.transaction-id"] for one in summaries} == {tx.id}
        assert {one["lakepact.run-id"] for one in summaries} == {"run-7"}
    tasks = [one["summary"].get("lakepact.task-id") for one in lake.metadata(f"{db}.t")["snapshots"]]
    assert tasks == [None, None, "merge"]

    [receipt] = soon(lambda: receipts(lake, tx.id, "t"))
    # Nothing but itself was read for it, and the transaction declares no inputs.
    assert (receipt["lineage"], receipt["inputs"]) == ("none", [])
    assert receipt["source"]["run-id"] == "run-7"
    assert receipt["source"]["application-id"] == lake.spark.sparkContext.applicationId


def receipts(lake: Lake, transaction_id: str, table: str) -> list[dict[str, Any]]:
    warehouse = lake.server.folder / "data" / "warehouse"
    found = [orjson.loads(path.read_bytes()) for path in (warehouse / "_catalog" / "events").rglob("*.json")]
    return [one for one in found if one["transaction-id"] == transaction_id and one["name"] == table]


# --- not writing ---


def test_an_error_in_the_block_leaves_nothing(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    with pytest.raises(ZeroDivisionError), pact.transaction() as tx:
        tx.write(people(lake, (2, "b")), f"{db}.t")
        tx.write(people(lake, (2, "b")), f"{db}.u", "create")
        _ = 1 // 0
    assert tx.outcome == "aborted"
    assert content(lake, f"{db}.t") == [(1, "n1")] and lake.tables(db) == ["t"]
    with pytest.raises(TransactionClosed):
        tx.commit()


def test_a_failed_statement_cannot_be_committed_however_it_is_taken(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    with pytest.raises(lp.TransactionUnfit, match="INSERT INTO") as caught, pact.transaction() as tx:
        tx.write(people(lake, (2, "b")), f"{db}.t")
        with pytest.raises(AnalysisException):
            tx.sql(f"INSERT INTO {db}.nowhere VALUES (1)")
        with pytest.raises(lp.TransactionUnfit):
            tx.write(people(lake, (3, "c")), f"{db}.t")
    assert isinstance(caught.value.__cause__, AnalysisException)
    assert tx.outcome == "aborted"
    assert content(lake, f"{db}.t") == [(1, "n1")]

    with pytest.raises(lp.UnsupportedFormat, match="hudi"), pact.transaction() as tx:
        tx.write(people(lake, (2, "b")), f"{db}.d", "create", format="hudi")


def test_a_table_that_is_missing_is_no_failure_of_the_transaction(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    with pact.transaction() as tx:
        with pytest.raises(AnalysisException):
            tx.table(f"{db}.t").count()
        tx.write(people(lake, (1, "a")), f"{db}.t", "create")
    assert content(lake, f"{db}.t") == [(1, "a")]


def test_a_conflict_is_run_again_on_what_is_there_now(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    lake.fill(f"{db}.sums")
    attempts = []

    def work(tx: lp.SparkTransaction) -> int:
        attempts.append(tx.id)
        total: int = tx.table(f"{db}.t").groupBy().sum("id").collect()[0][0]
        if len(attempts) < 3:
            # Somebody else is faster, twice.
            lake.sql(f"INSERT INTO other.{db}.t VALUES ({10 ** len(attempts)}, 'outside')")
        tx.write(people(lake, (total, "sum")), f"{db}.sums")
        tx.write(people(lake, (2, "inside")), f"{db}.t")
        return total

    assert pact.run(work) == 111
    assert len(attempts) == 3
    assert content(lake, f"{db}.sums") == [(111, "sum")]
    assert [row[0] for row in content(lake, f"{db}.t")] == [1, 2, 10, 100]

    def lose(tx: lp.SparkTransaction) -> None:
        tx.write(people(lake, (3, "inside")), f"{db}.t")
        lake.sql(f"INSERT INTO other.{db}.t VALUES (4, 'outside')")

    with pytest.raises(Conflict, match="gave up after 2 attempts"):
        pact.run(lose, attempts=2)
    assert [row[0] for row in content(lake, f"{db}.t")] == [1, 2, 4, 4, 10, 100]


def test_a_commit_whose_answer_is_lost_is_committed_once(lake: Lake, witness: Witness, db: str) -> None:
    lake.fill(f"{db}.t", 1)
    pact = lp.connect(lake.spark, uri=witness.url, warehouse=WAREHOUSE)
    assert pact.catalog in ("hasty", "witnessed")
    with pact.transaction() as tx:
        tx.write(people(lake, (2, "b")), f"{db}.t")
        witness.lose_answers(f"{tx.id}/commit", told=502)
    assert tx.outcome == "committed"
    assert content(lake, f"{db}.t") == [(1, "n1"), (2, "b")]


# --- threads, sessions, processes ---


def test_stages_in_two_threads_do_not_disturb_one_another(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    lake.fill(f"{db}.shared")
    together = threading.Barrier(2, timeout=PATIENCE_S)
    failures: list[BaseException] = []

    def work(tx: lp.SparkTransaction, number: int) -> None:
        people(lake, (number, f"thread {number}")).createOrReplaceTempView(f"rows_{number}")
        stage = tx.stage()
        stage.sql(f"USE {db}")
        stage.sql(f"SET lakepact.tests.number = {number}")
        for round in range(3):
            together.wait()
            tx.sql(f"CREATE TABLE {db}.own_{number}_{round} AS SELECT * FROM rows_{number}")
            stage.sql(f"INSERT INTO shared SELECT * FROM rows_{number}")
            assert stage.table(f"own_{number}_{round}").count() == 1
            assert stage.spark.conf.get("lakepact.tests.number") == str(number)

    def caught(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            together.abort()

    with pact.transaction() as tx:
        threads = [threading.Thread(target=caught, args=(lambda number=number: work(tx, number),)) for number in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        assert lake.tables(db) == ["shared"]
    assert content(lake, f"{db}.shared") == sorted([(1, "thread 1"), (2, "thread 2")] * 3)
    assert len(lake.tables(db)) == 7


def test_the_session_is_left_as_it_was(lake: Lake, pact: lp.SparkLake, db: str) -> None:
    spark = lake.spark
    lake.fill(f"{db}.t", 1)

    def state() -> tuple[object, ...]:
        active = SparkSession.getActiveSession()
        assert active is not None
        return (
            spark.conf.getAll,
            spark.catalog.currentCatalog(),
            spark.catalog.currentDatabase(),
            spark._jsparkSession.sessionState().catalog().getTempViewNames().mkString(),
            sorted(one.name for one in spark.catalog.listCatalogs()),
            active._jsparkSession.equals(spark._jsparkSession),
            SparkSession._activeSession,
            spark.sparkContext.parallelize([(1,)]).toDF(["id"]).sparkSession is spark,
        )

    before = state()
    with pact.transaction() as tx:
        tx.sql(f"USE {db}")
        tx.sql("SET spark.sql.shuffle.partitions = 7")
        tx.stage().sql(f"USE {db}")
        tx.sql(f"INSERT INTO {db}.t VALUES (2, 'b')")
        tx.write(people(lake, (3, "c")), "t", "merge", keys="id")
        tx.table("t").createOrReplaceTempView("inside")
        # PySpark makes the session that a frame is created in the active one; a transaction's never is.
        assert tx.spark.createDataFrame([(4, "d")], "id BIGINT, name STRING").sparkSession is tx.spark
        assert state() == before
    assert state() == before
    with pytest.raises(ZeroDivisionError), pact.transaction():
        _ = 1 // 0
    assert state() == before
    assert len(content(lake, f"{db}.t")) == 3


def test_a_session_that_has_no_catalog_of_the_lake_works_too(lake: Lake, db: str) -> None:
    spark = lake.spark.newSession()
    # The same server, by a name that none of the session's catalogs is at.
    uri = lake.server.url.replace("127.0.0.1", "localhost")
    pact = lp.connect(spark, uri=uri, warehouse=WAREHOUSE)
    assert pact.catalog == "lakepact_0", "the session has a catalog of the usual name"
    rows = spark.range(3).selectExpr("id", "'x' AS name")
    with pact.transaction(isolation="snapshot", ttl=60, properties={"team": "tests"}) as tx:
        tx.write(rows, f"{db}.t", "create")
        assert tx.info.properties == {"team": "tests"}
        tx.state["position"] = {"offset": 7}
    assert len(content(lake, f"{db}.t")) == 3
    assert pact.table(f"{db}.t").count() == pact.sql(f"SELECT * FROM {db}.t").count() == 3
    assert pact.plain.state["position"] == {"offset": 7}
    pact.sql(f"DROP TABLE {db}.t")
    assert lake.tables(db) == []


JOB = """
import sys
import lakepact.spark as lp

def job(tx):
    rows = tx.spark.range(1000).selectExpr("id", "'x' AS name")
    tx.write(rows, "{db}.made", "create")
    tx.write(rows, "{db}.grown")

if __name__ == "__main__":
    spark = lp.session("local[1]", uri="{uri}", jars="{jars}", **{settings})
    assert lp.session(uri="{uri}", jars="{jars}") is spark
    with lp.connect(spark).transaction() as tx:
        job(tx)
        print("staged", flush=True)
        sys.stdin.read()
"""


def test_a_driver_that_is_killed_leaves_nothing_and_the_job_runs_again(
    lake: Lake, pact: lp.SparkLake, db: str, tmp_path: Path
) -> None:
    lake.fill(f"{db}.grown", 1)
    [jar] = jars.resolve(jars.SPARK_ICEBERG)
    script = tmp_path / "job.py"
    script.write_text(JOB.format(db=db, uri=lake.server.url, jars=jar.parent, settings=quick_settings(tmp_path)))
    driver = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=without_spark(),
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"staged\n"
    finally:
        # Python and its JVM, at one blow.
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert lake.tables(db) == ["grown"]
    assert content(lake, f"{db}.grown") == [(1, "n1")]

    names: dict[str, Any] = {"__name__": "job"}
    exec(script.read_text(), names)
    pact.run(names["job"])
    assert len(content(lake, f"{db}.grown")) == 1001
    assert len(content(lake, f"{db}.made")) == 1000


def test_the_examples_in_the_docs_run(lake: Lake, root: Path, tmp_path: Path) -> None:
    [jar] = jars.resolve(jars.SPARK_ICEBERG)
    blocks = (root / "docs" / "spark.md").read_text().split("```python\n")[1:]
    examples = "\n".join(block.split("```", 1)[0] for block in blocks)
    session = 'uri="http://localhost:8181")'
    assert session in examples
    ours = f"uri={lake.server.url!r}, jars={str(jar.parent)!r}, **{quick_settings(tmp_path)!r})"
    (tmp_path / "examples.py").write_text(examples.replace(session, ours))
    result = subprocess.run(
        [sys.executable, "examples.py"], cwd=tmp_path, env=without_spark(), capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-4000:]
    assert {"best", "customers", "daily", "orders", "people", "recent"} <= set(lake.tables("sales"))
    for table in lake.tables("sales"):
        lake.rest("DELETE", f"namespaces/sales/tables/{table}")
    lake.rest("DELETE", "namespaces/sales/delta-tables/labels")
    assert lake.rest("DELETE", "namespaces/sales").status == 204

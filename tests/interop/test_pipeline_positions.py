"""Only what is new, exactly once: incremental inputs, streams, and the example that grows."""

# Fixtures that come from a module beside look to ruff like names that are taken twice.
# ruff: noqa: F811

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakepact import pipelines as dp
from lakepact import spark as lp
from lakepact.pipelines.results import State
from lakepact.spark import SparkLake
from tests.interop.pipelines import drop_namespaces, name, raw, rows, shared  # noqa: F401
from tests.support.spark import Lake


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


def test_a_part_must_not_take_new_rows_away_from_others(shared: SparkLake, raw: str, name: str) -> None:
    with dp.Pipeline(name, namespace=raw) as pipeline:

        @dp.temporary_view
        def new() -> DataFrame:
            return dp.read_new("raw_orders")

        dp.table(name="one", sql="SELECT * FROM new")
        dp.table(name="two", sql="SELECT * FROM new")

    with pytest.raises(dp.InvalidPipeline, match=rf"also for {raw}\.two.*Run them together"):
        dp.run(pipeline, shared, only=["one"])


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


# --- the example ---


@pytest.fixture
def seed(lake: Lake, shared: SparkLake, root: Path) -> Iterator[ModuleType]:
    """The example's raw rows. What it leaves in the lake is dropped."""
    spec = importlib.util.spec_from_file_location("incremental_seed", root / "examples" / "incremental" / "seed.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    drop_namespaces(lake, shared, "shop", "shop_raw")


def test_the_example_takes_only_what_is_new_and_its_tables_agree(
    lake: Lake, shared: SparkLake, root: Path, seed: ModuleType
) -> None:
    pipeline = root / "examples" / "incremental" / "pipeline.py"
    # Every 97th amount is missing, and one order is of nobody.
    right = seed.ROWS - len(range(0, seed.ROWS, 97))
    seed.fill(shared)
    with pytest.raises(dp.CheckFailed, match="999"):
        dp.run(pipeline, shared)
    assert lake.tables("shop_raw") == ["customers", "orders"]
    assert not shared.plain.namespaces.exists("shop")

    for number in (1, 2):
        result = dp.run(pipeline, shared, params={"strict": "false"})
        assert result.state is State.COMMITTED
        [facts] = [stage for stage in result.stages if stage.target == "shop.facts"]
        assert facts.figures.rows == right
        assert lake.one("SELECT count(*) FROM other.shop.facts") == number * right
        assert lake.one("SELECT sum(orders) FROM other.shop.daily") == number * right
        assert lake.one("SELECT sum(orders) FROM other.shop.features") == number * right
        assert shared.table("shop.labels").count() == 50
        assert lake.one("SELECT count(*) FROM other.shop.customers") == 50
        seed.fill(shared)


@pytest.mark.parametrize("format", ["iceberg", "delta"])
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_from_scratch_forgets_the_position_and_replaces_the_rows_in_one_commit(
    lake: Lake, shared: SparkLake, db: str, name: str, format: str, mode: Any
) -> None:
    lake.sql(f"CREATE TABLE {db}.raw AS SELECT * FROM VALUES (1), (2) t(id)")
    with dp.Pipeline(name, namespace=db) as pipeline:

        @dp.table(format=format, mode=mode, keys=["id"] if mode == "merge" else [])
        def rows_in() -> DataFrame:
            return dp.read_new("raw")

    dp.run(pipeline, shared)
    with shared.transaction() as tx:
        # Rows that no query gives any more.
        tx.write(tx.spark.sql("SELECT 99 AS id"), f"{db}.rows_in")
    switches = len(lake.metadata(f"{db}.rows_in")["snapshot-log"]) if format == "iceberg" else 0
    dp.run(pipeline, shared, from_scratch=["rows_in"])
    assert sorted(row.id for row in shared.table(f"{db}.rows_in").collect()) == [1, 2]
    if format == "iceberg":
        log = lake.metadata(f"{db}.rows_in")["snapshot-log"]
        assert len(log) == switches + 1, "the old rows go and the new ones come at one instant"
    dp.run(pipeline, shared)
    assert shared.table(f"{db}.rows_in").count() == 2


def test_from_scratch_through_a_view_names_every_table_that_is_made_of_it(
    lake: Lake, shared: SparkLake, raw: str, name: str
) -> None:
    with dp.Pipeline(name, namespace=raw) as pipeline:

        @dp.temporary_view
        def new() -> DataFrame:
            return dp.read_new("raw_customers")

        dp.table(name="one", sql="SELECT * FROM new")
        dp.table(name="two", sql="SELECT * FROM new")

    dp.run(pipeline, shared)
    for stage in ("one", "new"):
        with pytest.raises(dp.InvalidPipeline, match=rf"--from-scratch {raw}.one --from-scratch {raw}.two"):
            dp.run(pipeline, shared, from_scratch=[stage])
    dp.run(pipeline, shared, from_scratch=["one", "two"])
    assert len(rows(lake, f"{raw}.one")) == len(rows(lake, f"{raw}.two")) == 2

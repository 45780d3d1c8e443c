"""Pipelines on Spark: a run against the same writes outside of it, stages side by side, and what a commit costs.

One server and one warm JVM for everything, two cores of it. What is compared is measured in turns, and who begins
changes with each: a machine that is busy is busy for both. A ratio is that of the medians; behind it stands the least
and the most that single turns gave. Checks are off: they are work of their own, which nobody does outside.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import lakepact.client
import lakepact.spark as lp
from lakepact import pipelines as dp
from tests.bench.report import against, say, table
from tests.bench.rest import running
from tests.support import jars

TURNS = 5
WARM_UP = 2
ROWS = 3_000_000
CUSTOMERS = 200_000
ONE_CORE_ROWS = 2_000_000
SMALL_TURNS = 15
DB = "bench"

Row = tuple[object, ...]


async def run() -> None:
    # Where others take a core, two stages side by side cannot have it.
    say(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with running() as server, two_cores(server.url) as spark:
        lake = lp.connect(spark)
        rows = [_pipeline(lake), _side_by_side(lake), _empty_write(lake)]
        table(
            f"pipelines on Spark (SQLite, local files), warm, median of {TURNS} turns",
            ("", "s", "against", "s", "ratio (least to most)"),
            rows,
        )
        table(
            f"from the commit to the reader, 4 tables, median of {SMALL_TURNS}",
            ("", "ms", "least", "most"),
            _visibility(lake),
        )


@contextmanager
def two_cores(uri: str) -> Iterator[SparkSession]:
    with tempfile.TemporaryDirectory(prefix="lakepact-bench-") as folder:
        settings = {
            "spark.driver.memory": "2g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder} -Dderby.system.home={folder}",
            "spark.local.dir": folder,
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
        }
        runtime = jars.resolve(jars.SPARK_ICEBERG)[0].parent
        spark = lp.session("local[2]", uri=uri, jars=runtime, app_name="lakepact bench", **settings)
        try:
            yield spark
        finally:
            spark.stop()


# --- a run against the same writes outside ---


def facts(spark: SparkSession) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr(
        "id AS order_id",
        f"id * 7919 % {CUSTOMERS} AS customer_id",
        "date_add(DATE'2026-01-01', CAST(id % 365 AS INT)) AS day",
        "(id * 104729 % 100000) / 100D AS amount",
        "concat('order ', id) AS note",
    )


def customers(spark: SparkSession) -> DataFrame:
    return spark.range(0, CUSTOMERS, 1, 2).selectExpr("id AS customer_id", "concat('customer ', id) AS name")


def daily(facts: DataFrame) -> DataFrame:
    return facts.groupBy("day").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


def features(facts: DataFrame) -> DataFrame:
    return facts.groupBy("customer_id").agg(F.count("*").alias("orders"), F.avg("amount").alias("mean_amount"))


def _pipeline(lake: lp.SparkLake) -> Row:
    # One stage after the other, as the writes outside are.
    with dp.Pipeline("bench-run", namespace=DB, parallel=1) as pipeline:
        for stage in (facts, customers, daily, features):
            dp.materialized_view(stage)

    def outside() -> None:
        spark = lake.spark
        stages: dict[str, Callable[[], DataFrame]] = {
            "facts": lambda: facts(spark),
            "customers": lambda: customers(spark),
            "daily": lambda: daily(spark.table(f"{lake.catalog}.{DB}.facts")),
            "features": lambda: features(spark.table(f"{lake.catalog}.{DB}.facts")),
        }
        for name, frame in stages.items():
            frame().writeTo(f"{lake.catalog}.{DB}.{name}").using("iceberg").createOrReplace()

    taken = _in_turns(lambda: dp.run(pipeline, lake), outside)
    what = f"a pipeline of 4 tables, {(ROWS + CUSTOMERS) / 1e6:.1f} million rows and what is made of them"
    # A machine whose turns differ by more than the aim cannot tell it from a tenth.
    aim = 1.05 if taken.most - taken.least <= 0.1 else 1.10
    return taken.row(what, "the same writes, no transaction", f"{aim:.2f}", met=taken.ratio <= aim)


# --- side by side ---


def _side_by_side(lake: lp.SparkLake) -> Row:
    def pipeline(parallel: int) -> dp.Pipeline:
        with dp.Pipeline(f"bench-{parallel}", namespace=DB, parallel=parallel) as made:
            for name in ("left", "right"):
                dp.materialized_view(name=name)(_on_one_core)
        return made

    together, apart = pipeline(2), pipeline(1)
    taken = _in_turns(lambda: dp.run(together, lake), lambda: dp.run(apart, lake))
    return taken.row("2 stages of one core side by side", "one after the other", "0.80", met=taken.ratio <= 0.8)


def _on_one_core(spark: SparkSession) -> DataFrame:
    return spark.range(0, ONE_CORE_ROWS, 1, 1).selectExpr("id", "sha2(CAST(id AS STRING), 256) AS digest")


# --- an empty write ---


def _empty_write(lake: lp.SparkLake) -> Row:
    spark, name = lake.spark, f"{DB}.empty"
    nothing = spark.range(0).toDF("n")
    nothing.writeTo(f"{lake.catalog}.{name}").using("iceberg").createOrReplace()

    def inside() -> None:
        with lake.transaction() as tx:
            tx.write(nothing, name)

    taken = _in_turns(inside, lambda: nothing.writeTo(f"{lake.catalog}.{name}").append(), SMALL_TURNS)
    more_ms = (taken.median - taken.other_median) * 1000
    return taken.row(f"a transaction around an empty write: {more_ms:+.0f} ms", "the write alone", None)


# --- visibility ---


def _visibility(lake: lp.SparkLake) -> list[Row]:
    names = [f"{DB}.seen{number}" for number in range(4)]
    one = lake.spark.range(1).toDF("n")
    for name in names:
        one.writeTo(f"{lake.catalog}.{name}").using("iceberg").createOrReplace()
    commits, seen, after_answer = [], [], []
    with lakepact.client.connect(lake.plain.uri, lake.plain.warehouse) as reader:
        for _ in range(SMALL_TURNS):
            before = _versions(reader, names)
            looked: list[float] = []
            with lake.transaction() as tx:
                for name in names:
                    tx.write(one, name)
                watch = threading.Thread(target=_watch, args=(reader, names, before, looked))
                watch.start()
                began = time.perf_counter()
                tx.plain.commit()
                answered = time.perf_counter()
                watch.join(60)
            commits.append(answered - began)
            seen.append(looked[0] - began)
            after_answer.append(max(0.0, looked[0] - answered))
    return [
        _in_ms("the commit, until it is answered", commits),
        _in_ms("from its sending until a reader has all four at once", seen),
        _in_ms("from its answer until then", after_answer),
    ]


def _versions(reader: lakepact.client.Lake, names: Sequence[str]) -> list[str]:
    cut = reader.read_at(names)
    return [cut[name].metadata_location for name in names]


def _watch(reader: lakepact.client.Lake, names: Sequence[str], before: list[str], looked: list[float]) -> None:
    deadline = time.perf_counter() + 30
    while time.perf_counter() < deadline:
        changed = [one != other for one, other in zip(_versions(reader, names), before, strict=True)]
        assert all(changed) or not any(changed), "a reader has seen half of a commit"
        if all(changed):
            looked.append(time.perf_counter())
            return


# --- figures ---


@dataclass(frozen=True, slots=True)
class Turns:
    taken: Sequence[float]
    other: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.taken)

    @property
    def other_median(self) -> float:
        return statistics.median(self.other)

    @property
    def ratio(self) -> float:
        return self.median / self.other_median

    @property
    def ratios(self) -> list[float]:
        return [one / other for one, other in zip(self.taken, self.other, strict=True)]

    @property
    def least(self) -> float:
        return min(self.ratios)

    @property
    def most(self) -> float:
        return max(self.ratios)

    def row(self, what: str, other: str, aim: str | None, *, met: bool = True) -> Row:
        shown = f"{self.ratio:.2f}" if aim is None else against(self.ratio, aim, met=met)
        spread = f"{shown}, {self.least:.2f} to {self.most:.2f}"
        return (what, f"{self.median:.2f}", other, f"{self.other_median:.2f}", spread)


def _in_turns(one: Callable[[], Any], other: Callable[[], Any], turns: int = TURNS) -> Turns:
    for _ in range(WARM_UP):
        one()
        other()
    taken: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(turns):
        for first in (True, False) if turn % 2 == 0 else (False, True):
            began = time.perf_counter()
            (one if first else other)()
            taken[first].append(time.perf_counter() - began)
    return Turns(taken[True], taken[False])


def _in_ms(what: str, taken: Sequence[float]) -> Row:
    numbers = (statistics.median(taken), min(taken), max(taken))
    return (what, *(f"{one * 1000:.1f}" for one in numbers))

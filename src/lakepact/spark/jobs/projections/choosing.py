"""Which receipts are projected: each of them once, whole transactions only, and not the projections' own.

What is not whole waits until the rest of it is found. A transaction that is not whole after a month never will be,
since by then nothing knows any more what else it had changed: it is projected as it is.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lakepact.spark.jobs.projections.tables import NAMESPACE

JOB: Final = "projections"
SOURCE: Final = {"kind": "upkeep", "job": JOB}
"""What the receipts of our own commits say."""

READY: Final = "ready"
WAITS: Final = "waits"
DAMAGED: Final = "damaged"
OWN: Final = "own"

TOGETHER: Final = "together"
"""The column by which receipts of one transaction are found: its id, or the key of one that knows none."""

_UNKNOWN: Final = "unknown"
"""The kind of a source of which nobody knows any more who it was."""

_WAITS_MS: Final = 31 * 24 * 3600 * 1000


def chosen(receipts: DataFrame, waiting: DataFrame | None, now_ms: int) -> DataFrame:
    """Every receipt once, with its `status`. `waiting` are those that were read before and wait. `partial` are those
    whose transaction is not whole."""
    rows = receipts.withColumn("waited", F.lit(False))
    if waiting is not None:
        rows = rows.unionByName(waiting.withColumn("waited", F.lit(True)))
    # What belongs together lies together from here on: one shuffle for all that follows. Without a transaction's id a
    # receipt stands for itself.
    rows = rows.withColumn(TOGETHER, F.coalesce("transaction_id", "commit_key")).repartition(TOGETHER)
    same = Window.partitionBy(TOGETHER, "commit_key").orderBy(F.col("waited").desc())
    rows = rows.withColumn("nth", F.row_number().over(same)).where("nth = 1").drop("nth")
    together = Window.partitionBy(TOGETHER)
    found = F.count(F.lit(1)).over(together)
    told = F.max(F.coalesce("transaction_tables", F.lit(1))).over(together)
    newest_ms = F.max("committed_ms").over(together)
    rows = rows.select("*", (found < told).alias("partial"), newest_ms.alias("newest_ms"))
    return rows.withColumn("status", _status(now_ms)).drop("newest_ms")


def without_doubles(chosen: DataFrame) -> DataFrame:
    """Without those that do not know their transaction, where there is another of the same change that does."""
    told = chosen.where("transaction_id IS NOT NULL").select("commit_key")
    nameless = chosen.where("transaction_id IS NULL").join(told, "commit_key", "left_anti")
    return chosen.where("transaction_id IS NOT NULL").unionByName(nameless)


def without_settled(found: DataFrame, commits: DataFrame) -> DataFrame:
    """What was chosen, without those whose rows in `commits` stay as they are: where a receipt was lost, and written
    again from nothing but metadata, its row knows more; and what waits need not, if the rest of its transaction was
    projected before."""
    poor = found.where(F.col("source")["kind"] == _UNKNOWN).select("commit_key")
    waits = found.where(F.col("status") == WAITS).select("commit_key")
    settled = poor.join(commits.where(F.col("source_kind") != _UNKNOWN), "commit_key", "left_semi")
    settled = settled.union(waits.join(commits, "commit_key", "left_semi")).localCheckpoint()
    # Of a transaction that loses one here the rest is not all of it any more.
    shortened = found.join(settled, "commit_key", "left_semi").select(TOGETHER, F.lit(True).alias("shortened"))
    left = found.join(settled, "commit_key", "left_anti").join(shortened.distinct(), TOGETHER, "left")
    return left.withColumn("partial", F.col("partial") | F.coalesce("shortened", F.lit(False))).drop("shortened")


def _status(now_ms: int) -> Column:
    waits = F.col("partial") & F.col("transaction_id").isNotNull() & (F.col("newest_ms") >= now_ms - _WAITS_MS)
    return (
        F.when(F.col("damaged"), F.lit(DAMAGED))
        .when(_is_own(), F.lit(OWN))
        .when(waits, F.lit(WAITS))
        .otherwise(F.lit(READY))
    )


def _is_own() -> Column:
    """Both together: what a committer says of himself must not hide what he did elsewhere."""
    by_us = (F.col("source")["kind"] == SOURCE["kind"]) & (F.col("source")["job"] == JOB)
    return F.coalesce(by_us & (F.col("namespace") == F.array(F.lit(NAMESPACE))), F.lit(False))

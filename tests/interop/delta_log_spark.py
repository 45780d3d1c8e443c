"""What delta-spark does, in a process of its own: a JVM belongs to its process, and other suites have another Spark.

    python -m tests.interop.delta_log_spark <folder>

`<folder>/ours` is a table of ours, which it reads and tries to write; it makes tables of its own beside it, and says in
`<folder>/said.json` what it saw.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tests.support import jars
from tests.support.quick_spark import quick_settings

PLAIN = "TBLPROPERTIES ('delta.checkpointInterval' = '3', 'delta.enableInCommitTimestamps' = 'false')"


def main(folder: Path) -> None:
    spark = a_session(folder)
    try:
        said: dict[str, Any] = {"ours": our_table(spark, folder / "ours")}
        said["taken"] = a_table_taken_over(spark, folder / "taken")
        said["plain"] = a_partitioned_table(spark, folder / "plain")
        said["parts"] = checkpoints(spark, folder / "parts", "classic")
        said["sidecars"] = checkpoints(spark, folder / "sidecars", "v2")
        said["vectors"] = deletion_vectors(spark, folder / "vectors")
        mapped(spark, folder / "mapped")
        (folder / "said.json").write_text(json.dumps(said, default=str))
    finally:
        spark.stop()


def a_session(folder: Path) -> SparkSession:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    settings = {
        **quick_settings(folder, f"-Djava.io.tmpdir={folder}"),
        "spark.jars": ",".join(map(str, jars.resolve(jars.SPARK_DELTA))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalogImplementation": "in-memory",
    }
    builder = SparkSession.builder.master("local[2]").appName("lakepact-delta-log")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def outcome(attempt: Callable[[], object]) -> str:
    """What came of it: "done", or what it was refused with."""
    try:
        attempt()
    except Exception as error:
        java = getattr(error, "java_exception", None)
        return str(error) if java is None else str(java.toString())
    return "done"


def our_table(spark: SparkSession, folder: Path) -> dict[str, Any]:
    table = f"delta.`{folder}`"
    frame = spark.read.format("delta").load(str(folder))
    rows = [json.loads(row) for row in frame.toJSON().collect()]
    # One of each file: statistics must not hide it.
    samples = frame.select("at").orderBy("id").collect()[::4]
    by_at = [frame.where(frame["at"] == row["at"]).count() for row in samples]
    at_version = {
        version: spark.read.format("delta").option("versionAsOf", version).load(str(folder)).count()
        for version in (0, 9, 12)
    }
    copy = frame.limit(1)
    writes: dict[str, Callable[[], object]] = {
        "append": lambda: copy.write.format("delta").mode("append").save(str(folder)),
        "overwrite": lambda: copy.write.format("delta").mode("overwrite").save(str(folder)),
        "delete": lambda: spark.sql(f"DELETE FROM {table} WHERE id = 10"),
        "optimize": lambda: spark.sql(f"OPTIMIZE {table}").collect(),
        "vacuum": lambda: spark.sql(f"VACUUM {table}").collect(),
        "alter": lambda: spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('a' = 'b')"),
        "drop feature": lambda: spark.sql(f"ALTER TABLE {table} DROP FEATURE `x-lakepact-managed`"),
        "restore": lambda: spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1"),
    }
    return {
        "rows": rows,
        "by_at": by_at,
        "greater": sorted(row["id"] for row in frame.where("ratio > 1000").collect()),
        "at_version": at_version,
        "history": history(spark, folder),
        "writes": {name: outcome(write) for name, write in writes.items()},
    }


def history(spark: SparkSession, folder: Path) -> list[tuple[int, float]]:
    rows = spark.sql(f"DESCRIBE HISTORY delta.`{folder}`").collect()
    return [(row["version"], row["timestamp"].timestamp()) for row in rows]


def a_table_taken_over(spark: SparkSession, folder: Path) -> dict[str, Any]:
    newest, _ = history(spark, folder)[0]
    return {
        "history": history(spark, folder),
        "states": states(spark, folder, oldest=newest),
        "delete": outcome(lambda: spark.sql(f"DELETE FROM delta.`{folder}` WHERE id = 2")),
    }


def states(spark: SparkSession, folder: Path, oldest: int = 0) -> dict[int, Any]:
    """What a table is at every version, as Spark tells it."""
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{folder}` LIMIT 1").collect()[0]["version"]
    found: dict[int, Any] = {}
    for version in range(oldest, newest + 1):
        frame = spark.read.format("delta").option("versionAsOf", version).load(str(folder))
        found[version] = {"files": sorted(frame.inputFiles()), "schema": frame.schema.json()}
    found[newest]["rows"] = frame.count()
    return found


def a_partitioned_table(spark: SparkSession, folder: Path) -> dict[int, Any]:
    table = f"delta.`{folder}`"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT COMMENT 'which', name STRING, p STRING, q TIMESTAMP) USING delta "
        f"PARTITIONED BY (p, q) {PLAIN}"
    )
    moment = "TIMESTAMP '2026-01-31 12:30:15.123456'"
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a', 'a:b c/é=%', {moment}), (2, 'b', NULL, NULL)")
    spark.sql(f"INSERT INTO {table} VALUES (3, 'c', 'x', {moment}), (4, 'd', 'x', {moment})")
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (later STRUCT<a: INT, b: ARRAY<STRING>>)")
    frame = spark.sql(f"SELECT 5L id, 'e' name, 'y' p, {moment} q, struct(1 a, array('x') b) later")
    frame.write.format("delta").mode("append").option("txnAppId", "loader").option("txnVersion", "7").save(str(folder))
    spark.sql(f"UPDATE {table} SET name = 'z' WHERE id = 5")
    spark.sql(f"INSERT INTO {table} VALUES (6, 'f', 'x', {moment}, NULL)")
    spark.sql(f"OPTIMIZE {table}").collect()
    return states(spark, folder)


def checkpoints(spark: SparkSession, folder: Path, policy: str) -> dict[int, Any]:
    """A table with checkpoints in several files, and without its first commits."""
    spark.conf.set("spark.databricks.delta.checkpoint.partSize", "2")
    table = f"delta.`{folder}`"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, name STRING) USING delta "
        f"TBLPROPERTIES ('delta.checkpointInterval' = '3', 'delta.checkpointPolicy' = '{policy}')"
    )
    for number in range(1, 5):
        spark.sql(f"INSERT INTO {table} VALUES ({number}, 'n{number}')")
    spark.conf.unset("spark.databricks.delta.checkpoint.partSize")
    for version in range(3):
        (folder / "_delta_log" / f"{version:020d}.json").unlink()
    return states(spark, folder, oldest=3)


def deletion_vectors(spark: SparkSession, folder: Path) -> dict[int, Any]:
    """Files with deletion vectors, and a later checkpoint without them."""
    table = f"delta.`{folder}`"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT) USING delta "
        f"TBLPROPERTIES ('delta.enableDeletionVectors' = 'true', 'delta.checkpointInterval' = '3')"
    )
    spark.range(10).coalesce(1).write.format("delta").mode("append").save(str(folder))
    spark.sql(f"DELETE FROM {table} WHERE id = 3")
    spark.sql(f"REORG TABLE {table} APPLY (PURGE)").collect()
    return states(spark, folder, oldest=3)


def mapped(spark: SparkSession, folder: Path) -> None:
    spark.sql(
        f"CREATE TABLE delta.`{folder}` (id BIGINT) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

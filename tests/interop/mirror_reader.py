"""Reads Delta tables by their paths with delta-spark, in a process of its own, and prints what it found as JSON.

    python -m tests.interop.mirror_reader <folder for Spark> '<[[path, version or null], ...]>'

A Spark session belongs to its process, and the other tests have one without Delta's jars.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from tests.support import jars
from tests.support.quick_spark import quick_settings


def main(folder: Path, wanted: list[tuple[str, int | None]]) -> dict[str, Any]:
    os.environ.update(SPARK_HOME=str(Path(pyspark.__file__).parent), SPARK_LOCAL_IP="127.0.0.1")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **quick_settings(folder, f"-Djava.io.tmpdir={folder}", f"-Dderby.system.home={folder}"),
        "spark.jars": ",".join(map(str, jars.resolve(jars.SPARK_DELTA))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[2]").appName("mirror reader")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    found = []
    for path, version in wanted:
        reader = spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        found.append([row.asDict() for row in reader.load(path).orderBy("id").collect()])
    history = [row.asDict() for row in spark.sql(f"DESCRIBE HISTORY delta.`{wanted[1][0]}`").collect()]
    try:
        spark.createDataFrame([(-1, "no")], "id long, v string").write.format("delta").mode("append").save(wanted[0][0])
        refusal = None
    except Exception as error:
        refusal = str(error)[:4_000]
    spark.stop()
    return {"rows": found, "refusal": refusal, "history": history}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2])), default=str))

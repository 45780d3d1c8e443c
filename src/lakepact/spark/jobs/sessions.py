"""A session for a job that reads and deletes files, and no tables: any Spark will do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark import SparkContext
from pyspark.sql import SparkSession


@contextmanager
def plain_session(master: str | None, name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """The session that is there, which outlives this; else one of its own. `master` None: where spark-submit says."""
    own = SparkContext._active_spark_context is None
    builder = SparkSession.builder.appName(name)
    if own and master is not None:
        builder = builder.master(master)
    if own and master is not None and master.startswith("local"):
        # Executors are on this machine, and need what is installed here.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if own:
        for key, value in {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR", **settings}.items():
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        if own:
            spark.stop()

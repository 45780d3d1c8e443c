"""A session for a job that reads and deletes files, and no tables: any Spark will do."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit has started this process: then the master is its business."""


@contextmanager
def plain_session(master: str | None, name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """The session that is there, which outlives this; else one of its own."""
    own = SparkContext._active_spark_context is None
    builder = SparkSession.builder.appName(name)
    where = master or (None if _SUBMITTED in os.environ else "local[*]")
    if own and where is not None:
        builder = builder.master(where)
    if own and where is not None and where.startswith("local"):
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

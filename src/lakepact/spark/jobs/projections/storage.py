"""What the driver itself asks of the warehouse's storage: which folders there are. Never which receipts.

Spark's reader refuses a path that is not there, so somebody has to look before. All that this package asks of Hadoop
beyond PySpark's public interface is asked here.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column

_SPECIAL: Final = re.compile(r"([{}\[\]*?\\])")
_AT_ONCE: Final = 16


class Storage:
    def __init__(self, spark: SparkSession) -> None:
        self._paths: Any = spark._jvm.org.apache.hadoop.fs.Path  # type: ignore[union-attr]
        self._conf: Any = spark._jsc.hadoopConfiguration()

    def matching(self, pattern: str) -> list[str]:
        """What there is under a pattern, in order. `escaped` is for the parts of it that are names."""
        path = self._paths(pattern)
        found = path.getFileSystem(self._conf).globStatus(path)
        return sorted(str(one.getPath().toString()) for one in found or ())

    def existing(self, locations: list[str]) -> list[str]:
        """Those of them that are there."""
        if not locations:
            return []
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            there = threads.map(self._exists, locations)
            return [location for location, is_there in zip(locations, there, strict=True) if is_there]

    def _exists(self, location: str) -> bool:
        path = self._paths(location)
        return bool(path.getFileSystem(self._conf).exists(path))


def input_files(frame: DataFrame) -> DataFrame:
    """Return the files that a frame reads, as rows with the column `file`.

    Spark listed them when the frame was made. Their names stay in the JVM.
    """
    spark = frame.sparkSession
    functions: Any = spark._jvm.org.apache.spark.sql.functions  # type: ignore[union-attr]
    return spark.range(1).select(F.explode(Column(functions.lit(frame._jdf.inputFiles()))).alias("file"))


def estimated_bytes(frame: DataFrame) -> int:
    """Return how large Spark's optimizer takes a frame to be: about the size of the files it reads, as stored."""
    return int(str(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def escaped(location: str) -> str:
    """A location as a pattern that means nothing but it: Spark's reader takes every path for a pattern."""
    return _SPECIAL.sub(r"\\\1", location)


class Root:
    """The warehouse, as the server writes its location and as Spark reaches it."""

    def __init__(self, told: str, reached: str | None = None) -> None:
        self._told = told.rstrip("/")
        self.url = (reached or _of_hadoop(told)).rstrip("/")

    def at(self, location: str) -> str:
        """Where Spark finds what the server calls `location`."""
        if location == self._told or location.startswith(self._told + "/"):
            return self.url + location[len(self._told) :]
        return _of_hadoop(location)


def _of_hadoop(location: str) -> str:
    # Hadoop's own client of S3 goes by another name than S3's.
    return "s3a://" + location.removeprefix("s3://") if location.startswith("s3://") else location

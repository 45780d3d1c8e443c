"""Whether segments are what their manifests say. One that is not must neither end the job nor be believed: it is left
out, and what else is there of its day is read instead.

Spark would read a gzip up to where it breaks, and take what it got for the whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lakepact.spark.jobs.projections.storage import Storage, escaped


class Checks:
    def __init__(self, spark: SparkSession, storage: Storage) -> None:
        self._spark = spark
        self._storage = storage

    def broken(self, segments: Mapping[str, str]) -> set[str]:
        """Those of these files that are not there, or whose content has no SHA-256 that begins like this."""
        if not segments:
            return set()
        try:
            whole = self._whole(list(segments), segments)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            there = self._storage.existing(list(segments))
            whole = self._whole(there, segments) if there else set()
        return {path for path in segments if _place(path) not in whole}

    def _whole(self, paths: list[str], segments: Mapping[str, str]) -> set[str]:
        """The places of those that are as they should be. Two days may hold the same late receipts in the same name."""
        expected = {_place(path): hash for path, hash in segments.items()}

        # A function within a function goes to the executors as it is: they need not have Lakepact.
        def is_whole(file: tuple[str, bytes]) -> bool:
            import gzip
            import hashlib
            import zlib

            try:
                unpacked = gzip.decompress(file[1])
            except (OSError, EOFError, zlib.error):
                return False
            return hashlib.sha256(unpacked).hexdigest().startswith(expected["/".join(file[0].rsplit("/", 2)[1:])])

        files = self._spark.read.format("binaryFile").option("ignoreMissingFiles", "true")
        # As an RDD: its batches go by their size, and those of a function in SQL by the number of rows.
        content = files.load(list(map(escaped, paths))).select("path", "content").rdd.map(tuple)
        return set(map(_place, content.filter(is_whole).map(lambda file: file[0]).collect()))


def _place(path: str) -> str:
    """The day and the name: engines spell what comes before them in several ways."""
    return "/".join(path.rsplit("/", 2)[1:])

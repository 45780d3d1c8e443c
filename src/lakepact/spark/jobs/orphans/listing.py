"""What is there: the files below the folders of tables, listed by executors side by side.

One folder may hold most of the lake, so the first levels are listed one by one and their folders handed round again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from lakepact.spark.jobs.orphans.storage import Storage

SCHEMA: Final = "path string, raw string, size long, modified_ms long"
_Row: TypeAlias = tuple[str, str, bool, int, int]
_LEVELS: Final = 2
_HIDDEN: Final = ("_", ".")


def listing(spark: SparkSession, storage: Storage, folders: Sequence[str], parts: int) -> DataFrame:
    """All files, listed when this returns: what comes to be later is not among them, however often it is looked at."""

    def first_levels(places: Iterable[str]) -> Iterator[_Row]:
        waiting = [(place, 1) for place in places]
        while waiting:
            place, level = waiting.pop()
            for row in _below(storage, place, deep=False):
                if _is_folder(row) and level < _LEVELS:
                    waiting.append((row[0], level + 1))
                else:
                    yield row

    def the_rest(places: Iterable[str]) -> Iterator[_Row]:
        for place in places:
            yield from _below(storage, place, deep=True)

    context = spark.sparkContext
    begun = context.parallelize(list(folders), max(1, min(parts, len(folders))))
    shallow = begun.mapPartitions(first_levels).persist(StorageLevel.MEMORY_AND_DISK)
    deep = shallow.filter(_is_folder).map(_place).repartition(parts).mapPartitions(the_rest)
    files = context.union([shallow, deep]).filter(_is_file).map(_fields)
    frame = spark.createDataFrame(files, SCHEMA, verifySchema=False)
    # Without the way back to the storage: a lost part fails the job instead of listing what has come since.
    listed = frame.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
    shallow.unpersist()
    return listed


def is_hidden(below: str) -> bool:
    """Whether a file, by its path below a folder, is one of those that engines keep for themselves."""
    return any(part.startswith(_HIDDEN) and "=" not in part for part in below.split("/"))


def _below(storage: Storage, place: str, *, deep: bool) -> Iterator[_Row]:
    for one in storage.list(place, recursive=deep):
        if not is_hidden(one.place[len(place) :]):
            yield one.place, one.raw, one.is_folder, one.size, one.modified_ms


def _is_folder(row: _Row) -> bool:
    return row[2]


def _is_file(row: _Row) -> bool:
    return not row[2]


def _place(row: _Row) -> str:
    return row[0]


def _fields(row: _Row) -> tuple[str, str, int, int]:
    return row[0], row[1], row[3], row[4]

"""Receipts as rows: read by Spark itself, with a schema that is known beforehand. Never by the driver.

A file that is not a valid receipt becomes a row too, marked as damaged: the run counts it and continues.

The name of a receipt's file is its commit key. A run that is not a full one compares the names of the files written
since the last run with the keys that are projected, and opens only the files whose keys are new.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Final, Protocol

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakepact.spark.jobs.projections.layout import Layout, Sources, is_day
from lakepact.spark.jobs.projections.storage import Root, Storage, escaped, input_files

_CORRUPT: Final = "_corrupt"
_TYPES: Final = {
    "event-id": "STRING",
    "commit-key": "STRING",
    "kind": "STRING",
    "change": "STRING",
    "id": "STRING",
    "revision": "BIGINT",
    "generation": "BIGINT",
    "namespace": "ARRAY<STRING>",
    "name": "STRING",
    "transaction-id": "STRING",
    "transaction-tables": "INT",
    "operation": "STRING",
    "committed-ms": "BIGINT",
    "metadata-location": "STRING",
    "previous-metadata-location": "STRING",
    "base-metadata-location": "STRING",
    "snapshot-id": "BIGINT",
    "schema-id": "INT",
    "location": "STRING",
    "snapshot-operation": "STRING",
    "summary": "MAP<STRING, STRING>",
    "totals": "MAP<STRING, STRING>",
    "source": "MAP<STRING, STRING>",
    "lineage": "STRING",
    "quality": "STRING",
    "snapshots": (
        "ARRAY<STRUCT<`snapshot-id`: BIGINT, `parent-snapshot-id`: BIGINT, `sequence-number`: BIGINT, "
        "`timestamp-ms`: BIGINT, `schema-id`: INT, operation: STRING, summary: MAP<STRING, STRING>>>"
    ),
    # What committers may have put there in any form is text first, so that it spoils nothing else.
    "inputs": "STRING",
    "checks": "STRING",
}
_RECEIPT: Final = ", ".join(f"`{name}` {kind}" for name, kind in {**_TYPES, _CORRUPT: "STRING"}.items())
_NEEDED: Final = ("commit-key", "kind", "change", "id", "committed-ms")
_NOTE: Final = "receipt STRING, `commit-key` STRING, `committed-ms` BIGINT"
_DAY_OF_PATH: Final = r"_catalog/events/([0-9-]{10})/"
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""

_SLACK_MS: Final = 60 * 60 * 1000
"""Between the clocks of the driver and of the storage."""

_MOST_NOTES: Final = 2_000
"""As many late receipts are read by their names; of more, the whole days they belong to."""

_MOST_NAMES: Final = 10_000
"""The most new files that a run reads by name. They are part of a query plan; with more of them, the run reads every
file written since the last run, and removes known receipts afterwards."""

_KEY_OF_FILE: Final = r"([^/]+)\.json$"
_PLAIN_NAME: Final = re.compile(r"[0-9A-Za-z_-]+")


class Unknown(Protocol):
    def __call__(self, found: DataFrame, days: Sequence[str] | None = None, /) -> DataFrame:
        """Remove the rows whose `commit_key` is projected already, or waits.

        `days` are the days of their commits. None: the rows have the column `committed_ms`, and it is read from them.
        """


@dataclass(frozen=True, slots=True)
class Lines:
    """Receipts that are not parsed yet: the text of each as `value`, its file as `file`."""

    rows: DataFrame
    by_name: int | None
    """The number of files, if all of them were chosen by name: no key of theirs is projected on their day, or waits.
    None: some were not compared."""


class Reader:
    def __init__(self, spark: SparkSession, storage: Storage, layout: Layout, root: Root) -> None:
        self._spark = spark
        self._storage = storage
        self._layout = layout
        self._root = root

    def lines(self, sources: Sources, since_ms: int | None, unknown: Unknown | None = None) -> Lines:
        """Return the receipts of these sources, and those that their notes name, as rows for `parsed`.

        Of loose files only those modified after `since_ms` are read, and of these only the ones with an `unknown` key.
        """
        frames, by_name = [], None
        if sources.segments:
            frames.append(_text(self._files(sources.segments)))
        if sources.loose:
            loose, by_name = self._loose(sources, since_ms, unknown)
            frames.append(loose)
        if sources.loose_of_broken:
            # Whenever they were written: nobody has read them, since they were packed.
            frames.append(_text(self._files(sources.loose_of_broken, whole=True)))
        notes = [*sources.notes, *sources.notes_of_broken]
        late = self._late(notes, unknown) if notes else None
        if late is not None:
            frames.append(late)
        if not frames:
            frames.append(self._spark.createDataFrame([], "value STRING, file STRING"))
        return Lines(reduce(DataFrame.unionByName, frames), by_name if len(frames) == 1 else None)

    def _loose(self, sources: Sources, since_ms: int | None, unknown: Unknown | None) -> tuple[DataFrame, int | None]:
        """Return the text of loose files, and their number if they were chosen by name."""
        files = self._files(sources.loose, since_ms, whole=True)
        keys = None if unknown is None else self._new_keys(files, sources.unpacked, unknown)
        if keys is None:
            return _text(files), None
        # Spark applies a condition on `_metadata` to its list of files. It neither opens the others nor lists again.
        names = ", ".join(f"'{key}.json'" for key in keys)
        return _text(files.where(f"_metadata.file_name IN ({names})" if names else "false")), len(keys)

    def _new_keys(self, files: DataFrame, days: Sequence[str], unknown: Unknown) -> list[str] | None:
        """Return the keys of those of these files that are new. None: they cannot be read by name."""
        key = F.regexp_extract("file", _KEY_OF_FILE, 1).alias("commit_key")
        names = unknown(input_files(files).select(key), days).limit(_MOST_NAMES + 1)
        keys = [row["commit_key"] for row in names.collect()]
        by_name = len(keys) <= _MOST_NAMES and all(map(_PLAIN_NAME.fullmatch, keys))
        return keys if by_name else None

    def _late(self, folders: Sequence[str], unknown: Unknown | None) -> DataFrame | None:
        """The late receipts that these notes tell of. Where a note came before its receipt, the next run finds it."""
        notes = (
            self._spark.read.schema(_NOTE)
            .json(list(map(escaped, folders)), pathGlobFilter="*.json")
            .where("receipt IS NOT NULL AND `commit-key` IS NOT NULL")
            .select("receipt", F.col("commit-key").alias("commit_key"), F.col("committed-ms").alias("committed_ms"))
        )
        if unknown is not None:
            notes = unknown(notes)
        named = [row["receipt"] for row in notes.select("receipt").limit(_MOST_NOTES + 1).collect()]
        if not named:
            return None
        if len(named) <= _MOST_NOTES:
            there = self._storage.existing([f"{self._root.url}/{name}" for name in named])
            return _text(self._files(there, whole=True)) if there else None
        days = notes.select(F.regexp_extract("receipt", _DAY_OF_PATH, 1).alias("day")).distinct().collect()
        found = [
            path for day in sorted(row["day"] for row in days) if is_day(day) for path in self._layout.committed(day)
        ]
        return _text(self._files(found, whole=True)) if found else None

    def _files(self, paths: Sequence[str], since_ms: int | None = None, *, whole: bool = False) -> DataFrame:
        reader = self._spark.read.option("ignoreMissingFiles", "true")
        if since_ms is not None:
            since = datetime.fromtimestamp((since_ms - _SLACK_MS) / 1000, UTC)
            reader = reader.option("modifiedAfter", since.strftime("%Y-%m-%dT%H:%M:%S")).option("timeZone", "UTC")
        return reader.text(list(map(escaped, paths)), wholetext=whole, pathGlobFilter="*.json" if whole else None)


def _text(files: DataFrame) -> DataFrame:
    return files.select("value", F.col("_metadata.file_path").alias("file"))


def parsed(lines: DataFrame, *, by_name: bool = False) -> DataFrame:
    """Return the columns of receipts, from `value`, the text of each, and `file`, its file.

    `damaged` is true for a text that is not a receipt, and `file` is kept for those only. `misnamed` is true for a
    receipt whose file was chosen `by_name`, and has not the name of its key in the folder of its day.
    """
    receipt = F.from_json("value", _RECEIPT, {"columnNameOfCorruptRecord": _CORRUPT})
    rows = lines.withColumn("receipt", receipt).withColumn("damaged", _damaged())
    # A damaged one has no key that could be trusted. It must not be taken for another, and stands for itself.
    own_key = F.concat(F.lit("damaged "), "file", F.lit(" "), F.xxhash64("value").cast("string"))
    columns = [F.col(f"receipt.`{name}`").alias(name.replace("-", "_")) for name in _TYPES if name != "commit-key"]
    return rows.select(
        F.when(F.col("damaged"), own_key).otherwise(F.col("receipt.`commit-key`")).alias("commit_key"),
        *columns,
        "damaged",
        F.when(F.col("damaged"), F.col("file")).alias("file"),
        (_misnamed() if by_name else F.lit(False)).alias("misnamed"),
    )


def unparsed() -> Column:
    """A receipt's columns as a text again, which `parsed` reads."""
    return F.to_json(F.struct(*(F.col(name.replace("-", "_")).alias(name) for name in _TYPES)))


def _misnamed() -> Column:
    return F.expr("""
        NOT damaged AND NOT (
            endswith(file, concat('/committed/', receipt.`commit-key`, '.json'))
            AND contains(
                file, concat('/events/', date_format(timestamp_millis(receipt.`committed-ms`), 'yyyy-MM-dd'), '/')
            )
        )
    """)


def _damaged() -> Column:
    field = {name: F.col(f"receipt.`{name}`") for name in (*_NEEDED, _CORRUPT)}
    missing = reduce(Column.__or__, (field[name].isNull() for name in _NEEDED))
    out_of_time = ~field["committed-ms"].between(0, _LAST_MS)
    return F.coalesce(field[_CORRUPT].isNotNull() | missing | out_of_time, F.lit(True))

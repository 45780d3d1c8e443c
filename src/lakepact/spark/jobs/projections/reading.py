"""Receipts as rows: read by Spark itself, with a schema that is known beforehand. Never by the driver.

What cannot be read as a receipt is a row as well, a damaged one: it is counted, and stops nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakepact.spark.jobs.projections.layout import Layout, Sources, is_day
from lakepact.spark.jobs.projections.storage import Root, Storage, escaped

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

Unknown = Callable[[DataFrame], DataFrame]
"""Takes away the rows (with `commit_key` and `committed_ms`) that were projected before, or wait."""


class Reader:
    def __init__(self, spark: SparkSession, storage: Storage, layout: Layout, root: Root) -> None:
        self._spark = spark
        self._storage = storage
        self._layout = layout
        self._root = root

    def receipts(self, sources: Sources, since_ms: int | None, unknown: Unknown | None = None) -> DataFrame:
        """The receipts of these sources, and those that their notes tell of. Of loose ones only what was written
        since. Their fields are the columns, besides `damaged` and the `file` of those that are."""
        frames = []
        if sources.segments:
            frames.append(self._text(sources.segments))
        if sources.loose:
            frames.append(self._text(sources.loose, since_ms, whole=True))
        if sources.loose_of_broken:
            # Whenever they were written: nobody has read them, since they were packed.
            frames.append(self._text(sources.loose_of_broken, whole=True))
        notes = [*sources.notes, *sources.notes_of_broken]
        late = self._late(notes, unknown) if notes else None
        if late is not None:
            frames.append(late)
        if not frames:
            frames.append(self._spark.createDataFrame([], "value STRING, file STRING"))
        return parsed(reduce(DataFrame.unionByName, frames))

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
            return self._text(there, whole=True) if there else None
        days = notes.select(F.regexp_extract("receipt", _DAY_OF_PATH, 1).alias("day")).distinct().collect()
        found = [
            path for day in sorted(row["day"] for row in days) if is_day(day) for path in self._layout.committed(day)
        ]
        return self._text(found, whole=True) if found else None

    def _text(self, paths: Sequence[str], since_ms: int | None = None, *, whole: bool = False) -> DataFrame:
        reader = self._spark.read.option("ignoreMissingFiles", "true")
        if since_ms is not None:
            since = datetime.fromtimestamp((since_ms - _SLACK_MS) / 1000, UTC)
            reader = reader.option("modifiedAfter", since.strftime("%Y-%m-%dT%H:%M:%S")).option("timeZone", "UTC")
        text = reader.text(list(map(escaped, paths)), wholetext=whole, pathGlobFilter="*.json" if whole else None)
        return text.select("value", F.col("_metadata.file_path").alias("file"))


def parsed(lines: DataFrame) -> DataFrame:
    """`value`, the text of a receipt, and `file`, where it is from, as the columns of a receipt."""
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
    )


def unparsed() -> Column:
    """A receipt's columns as a text again, which `parsed` reads."""
    return F.to_json(F.struct(*(F.col(name.replace("-", "_")).alias(name) for name in _TYPES)))


def _damaged() -> Column:
    field = {name: F.col(f"receipt.`{name}`") for name in (*_NEEDED, _CORRUPT)}
    missing = reduce(Column.__or__, (field[name].isNull() for name in _NEEDED))
    out_of_time = ~field["committed-ms"].between(0, _LAST_MS)
    return F.coalesce(field[_CORRUPT].isNotNull() | missing | out_of_time, F.lit(True))

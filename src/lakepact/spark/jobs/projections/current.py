"""The tables that say what is now: `tables` and `columns`.

Of two receipts of a table the one with the higher revision is newer, whichever is found first. Revisions begin again
when a backup is restored, with a higher generation. A bounded number of
tables is looked at together, so that neither the driver nor a plan grows with their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakepact.spark.jobs.projections.metadata import Metadata, Version
from lakepact.spark.jobs.projections.parallel import run_in_parallel
from lakepact.spark.jobs.projections.tables import COLUMNS, TABLES, Projection
from lakepact.spark.transaction import Stage

_TOGETHER: Final = 1_000
_STATE: Final = (
    *("table_name", "namespace", "name", "levels", "kind", "format", "dropped", "changed_at", "change", "revision"),
    "generation",
    *("transaction_id", "commit_key", "location", "metadata_location", "schema_id", "snapshot_id"),
)


def update(stage: Stage, receipts: DataFrame, metadata: Metadata) -> tuple[int, int]:
    """Stage what these receipts make of `tables` and `columns`: how many tables, and how many could not be read."""
    # Not merely cached: when a table is written, Spark computes anew whatever it has cached of that table.
    rows = _combined(receipts, stage.table(TABLES.full_name)).localCheckpoint()
    versions = _versions(rows.limit(_TOGETHER + 1))
    if len(versions) <= _TOGETHER:
        unread = _update_some(stage, rows, versions, metadata, instead_of=rows.select("table_id")) if versions else 0
        return len(versions), unread
    changed, unread = rows.count(), 0
    for number, some in enumerate(_split(rows, -(-changed // _TOGETHER))):
        # The first write replaces the rows of all changed tables, the others add to it.
        instead_of = rows.select("table_id") if number == 0 else None
        unread += _update_some(stage, some, _versions(some), metadata, instead_of)
    return changed, unread


def _versions(rows: DataFrame) -> list[Version | None]:
    """Return the newest version of each of these tables. None: it has been dropped, or has no metadata file."""
    columns = ("table_id", "kind", "levels", "name", "metadata_location", "schema_id", "dropped")
    return [
        None
        if row["dropped"] or row["metadata_location"] is None
        else Version(
            row["table_id"], row["kind"], (*row["levels"], row["name"]), row["metadata_location"], row["schema_id"]
        )
        for row in rows.select(*columns).collect()
    ]


def _split(rows: DataFrame, parts: int) -> Iterator[DataFrame]:
    if parts <= 1:
        return iter([rows] * parts)
    part = F.pmod(F.xxhash64("table_id"), F.lit(parts))
    return (rows.where(part == number) for number in range(parts))


def _combined(receipts: DataFrame, before: DataFrame) -> DataFrame:
    """The rows of all tables that the receipts tell of, without what only their metadata know."""
    now = receipts.where("kind IN ('table', 'view', 'delta')").select(
        "table_id", "committed_at", _order("committed_at").alias("nth"), _state().alias("state")
    )
    now = now.groupBy("table_id").agg(
        F.max_by("state", "nth").alias("state"), F.max("nth").alias("nth"), F.min("committed_at").alias("created_at")
    )
    old = before.select(
        "table_id",
        F.struct(*_STATE).alias("old_state"),
        _order("changed_at").alias("old_nth"),
        F.col("created_at").alias("old_created_at"),
    )
    newer = F.col("old_nth").isNull() | (F.col("nth") >= F.col("old_nth"))
    joined = now.join(old, "table_id", "left").select(
        "table_id",
        F.when(newer, F.col("state")).otherwise(F.col("old_state")).alias("state"),
        F.least("created_at", "old_created_at").alias("created_at"),
    )
    return joined.select("table_id", "created_at", "state.*")


def _order(at: str) -> Column:
    return F.struct(
        F.coalesce("generation", F.lit(0)).alias("generation"),
        F.coalesce("revision", F.lit(-1)).alias("revision"),
        F.col(at).alias("at"),
        "commit_key",
    )


def _state() -> Column:
    made = {"changed_at": F.col("committed_at"), "dropped": F.col("change") == "drop"}
    return F.struct(*(made.get(name, F.col(name)).alias(name) for name in _STATE))


def _update_some(
    stage: Stage,
    rows: DataFrame,
    versions: Sequence[Version | None],
    metadata: Metadata,
    instead_of: DataFrame | None,
) -> int:
    """Stage these tables and their columns. Return the number of tables whose metadata could not be read."""
    live = [version for version in versions if version is not None]
    known = metadata.of(live).persist()
    try:
        # The metadata of a dropped table are deleted with its files, so they are not read.
        complete = rows.join(known.drop("fields"), "table_id", "left").withColumn(
            "metadata_read", F.col("properties").isNotNull()
        )
        fields = known.select("table_id", F.explode("fields").alias("field"))
        named = fields.join(rows.select("table_id", "table_name", "namespace"), "table_id")
        columns = named.select("table_id", "table_name", "namespace", "field.*")
        tasks = {
            TABLES.name: lambda: _write(stage, TABLES, complete, instead_of),
            COLUMNS.name: lambda: _write(stage, COLUMNS, columns, instead_of),
        }
        run_in_parallel(stage.spark, tasks)
        return len(live) - known.count()
    finally:
        known.unpersist()


def _write(stage: Stage, projection: Projection, rows: DataFrame, instead_of: DataFrame | None) -> None:
    """Add these rows, in place of those of the tables `instead_of`."""
    if instead_of is None:
        stage.write(rows, projection.full_name)
    else:
        kept = stage.table(projection.full_name).join(instead_of, "table_id", "left_anti")
        stage.write(rows.unionByName(kept), projection.full_name, "overwrite")

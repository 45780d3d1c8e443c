"""From receipts to the rows of the tables that are only ever added to.

Each row follows from its transaction alone, so it does not matter in which order receipts are found.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakepact.spark.jobs.projections.choosing import TOGETHER

_INPUTS: Final = (
    "ARRAY<STRUCT<table: STRING, `table-uuid`: STRING, `snapshot-id`: STRING, `since-snapshot-id`: STRING, "
    "`used-by`: ARRAY<STRING>>>"
)
_CHECKS: Final = (
    "ARRAY<STRUCT<table: STRING, name: STRING, kind: STRING, status: STRING, severity: STRING, rows: BIGINT, "
    "violations: BIGINT, tolerated: DOUBLE, position: INT>>"
)
_NAMESPACE: Final = "namespace"
_WHO: Final = ("source_kind", "principal", "client", "pipeline", "run_id", "source", "lineage", "quality")
_OF_A_CHECK: Final = ("name", "kind", "status", "severity", "rows", "violations", "tolerated")
_STAGE: Final = "lakepact.stage"


def described(receipts: DataFrame) -> DataFrame:
    """Receipts with what several tables say of them."""
    levels = F.coalesce("namespace", F.array().cast("array<string>"))
    dotted = F.array_join(levels, ".")
    source = F.col("source")
    return receipts.select(
        *(name for name in receipts.columns if name not in ("namespace", "id")),
        F.col("id").alias("table_id"),
        levels.alias("levels"),
        dotted.alias("namespace"),
        F.when(F.col("name").isNotNull(), F.concat_ws(".", dotted, "name")).alias("table_name"),
        F.timestamp_millis("committed_ms").alias("committed_at"),
        F.when(F.col("kind") == "delta", "delta").when(F.col("kind") != _NAMESPACE, "iceberg").alias("format"),
        source["kind"].alias("source_kind"),
        source["principal"].alias("principal"),
        source["client"].alias("client"),
        source["pipeline"].alias("pipeline"),
        source["run-id"].alias("run_id"),
        F.col("summary")[_STAGE].alias("task"),
        (F.col("change").isin("create", "commit", "register") & (F.col("kind") != _NAMESPACE)).alias("new_version"),
    )


def commits(receipts: DataFrame) -> DataFrame:
    return receipts.select(
        *("commit_key", "event_id", "committed_at", "kind", "format", "change", "table_id", "table_name"),
        *("namespace", "name", "revision", "transaction_id", "transaction_tables", "operation", "snapshot_id"),
        *("snapshot_operation", "schema_id", "metadata_location", "previous_metadata_location"),
        *("base_metadata_location", _figure("added-records"), _figure("deleted-records"), *_WHO),
    )


def transactions(commits: DataFrame, *beside: str) -> DataFrame:
    """Of rows of `commits`, all those of each transaction. `beside` are columns that are the same in each of them, and
    by which the rows lie together already."""
    # Who did it is the same in all of them; where one knows less, the others are asked.
    best = F.struct(F.size("source"), "commit_key")
    table = F.struct("table_name", "table_id", "kind", "change", "snapshot_id")
    named = F.filter(F.collect_set("table_name"), lambda name: name.isNotNull())
    return (
        commits.where("transaction_id IS NOT NULL")
        .groupBy(*beside, "transaction_id")
        .agg(
            F.max("committed_at").alias("committed_at"),
            F.count(F.lit(1)).cast("int").alias("changes"),
            F.array_sort(named).alias("table_names"),
            F.array_sort(F.collect_list(F.when(F.col("table_name").isNotNull(), table))).alias("tables"),
            F.max_by(F.struct("operation", *_WHO), best).alias("who"),
        )
        .select("*", "who.*")
        .drop("who", *beside)
    )


def snapshots(receipts: DataFrame) -> DataFrame:
    rows = receipts.where("new_version").withColumn("added", F.explode("snapshots"))
    return rows.select(
        *("table_id", "table_name", F.col("added.`snapshot-id`").alias("snapshot_id")),
        F.col("added.`parent-snapshot-id`").alias("parent_snapshot_id"),
        F.col("added.`sequence-number`").alias("sequence_number"),
        F.timestamp_millis(F.col("added.`timestamp-ms`")).alias("snapshot_at"),
        *("committed_at", "added.operation", F.col("added.`schema-id`").alias("schema_id")),
        F.col("added.`snapshot-id`").eqNullSafe(F.col("snapshot_id")).alias("current"),
        *("transaction_id", "commit_key", "pipeline", "run_id", F.col("added.summary")[_STAGE].alias("task")),
        "added.summary",
    )


def lineage(receipts: DataFrame) -> DataFrame:
    rows = receipts.where("new_version AND length(inputs) > 2").withColumn(
        "input", F.explode(F.from_json("inputs", _INPUTS))
    )
    used_by = F.col("input.`used-by`")
    return rows.where("input.table IS NOT NULL").select(
        F.col("input.table").alias("input_table"),
        F.col("input.`table-uuid`").alias("input_table_id"),
        F.col("input.`snapshot-id`").cast("bigint").alias("input_snapshot_id"),
        F.col("input.`since-snapshot-id`").cast("bigint").alias("input_since_snapshot_id"),
        F.col("table_name").alias("output_table"),
        F.col("table_id").alias("output_table_id"),
        F.col("snapshot_id").alias("output_snapshot_id"),
        *("committed_at", "transaction_id", "commit_key", "pipeline", "run_id", "task"),
        F.when(F.size(used_by) > 0, F.array_contains(used_by, F.col("task"))).alias("direct"),
        F.col("lineage").alias("confidence"),
    )


def checks(receipts: DataFrame) -> DataFrame:
    """A receipt has the checks of its table, each with its position among those of the transaction. A check of a view
    is in the receipts of all tables that were made of the view; in older releases every receipt repeated all checks."""
    table = F.struct("table_name", "table_id", "snapshot_id")
    listed = F.transform(
        F.from_json("checks", _CHECKS),
        lambda check, index: check.withField("position", F.coalesce(check["position"], index)),
    )
    rows = (
        receipts.where("transaction_id IS NOT NULL")
        .groupBy(TOGETHER, "transaction_id")
        .agg(
            F.array_distinct(F.flatten(F.collect_list(listed))).alias("listed"),
            F.max("committed_at").alias("committed_at"),
            F.max("pipeline").alias("pipeline"),
            F.max("run_id").alias("run_id"),
            F.array_sort(F.collect_list(F.when(F.col("table_name").isNotNull(), table))).alias("tables"),
        )
        .where("size(listed) > 0")
        .select("*", F.explode("listed").alias("check"))
        .select(
            "*", "check.position", F.col("check.table").alias("table_name"), *(f"check.{name}" for name in _OF_A_CHECK)
        )
    )
    return _of_their_tables(rows)


def checks_again(checks: DataFrame, transactions: DataFrame) -> DataFrame:
    """Rows of `checks`, perhaps repeated, once more beside these transactions, of which more is known by now."""
    told = checks.dropDuplicates(["transaction_id", "position"])
    known = transactions.select("transaction_id", "committed_at", "pipeline", "run_id", "tables")
    return _of_their_tables(
        told.select("transaction_id", "position", "table_name", *_OF_A_CHECK).join(known, "transaction_id")
    )


def _of_their_tables(checks: DataFrame) -> DataFrame:
    name = F.col("table_name")
    of = checks.withColumn("of", F.try_element_at(F.filter("tables", lambda one: one["table_name"] == name), F.lit(1)))
    return of.select(
        *("transaction_id", "position", "table_name", "of.table_id", "of.snapshot_id", *_OF_A_CHECK),
        *("committed_at", "pipeline", "run_id"),
    )


def files(receipts: DataFrame) -> DataFrame:
    return receipts.where("new_version AND size(totals) > 0").select(
        *("table_id", "table_name", "committed_at", "commit_key", "transaction_id", "snapshot_id"),
        _total("records", "total-records", "records"),
        _total("data_files", "total-data-files", "files"),
        _total("bytes", "total-files-size", "bytes"),
        _total("delete_files", "total-delete-files"),
        _total("position_deletes", "total-position-deletes"),
        _total("equality_deletes", "total-equality-deletes"),
        *(_figure("added-records"), _figure("deleted-records"), _figure("added-data-files")),
        *(_figure("deleted-data-files"), _figure("added-files-size", "added_bytes")),
        _figure("removed-files-size", "removed_bytes"),
    )


def _total(name: str, *called: str) -> Column:
    """A figure of the whole table, by the first of the names that formats have for it."""
    return F.coalesce(*(F.col("totals")[one].try_cast("bigint") for one in called)).alias(name)


def _figure(called: str, name: str | None = None) -> Column:
    """A figure of what the snapshots of a commit have added or removed, as their writer gave it."""
    # Not by the receipt's own summary: where a commit changed nothing but properties, that is of an older commit.
    figures = F.transform("snapshots", lambda snapshot: snapshot["summary"][called].try_cast("bigint"))
    total = F.aggregate(figures, F.lit(0).cast("bigint"), lambda so_far, one: so_far + F.coalesce(one, F.lit(0)))
    return F.when(F.size("snapshots") > 0, total).alias(name or called.replace("-", "_"))

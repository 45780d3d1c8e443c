"""How the rows of a stage become part of its table, and what the table says came of it."""

from __future__ import annotations

from pyspark.sql import DataFrame

from lakepact.client import LoadedTable
from lakepact.pipelines.graph import Step
from lakepact.pipelines.results import Figures
from lakepact.pipelines.sqltables import quoted
from lakepact.spark.errors import UnsupportedFormat
from lakepact.spark.statements import Statements


def write(statements: Statements, step: Step, frame: DataFrame, *, there: bool, first: bool) -> None:
    """Stage the rows. The first flow decides what becomes of the table, all others add to it; a table that is not
    there is created as it was declared."""
    dataset = step.dataset
    mode = dataset.mode if first else "append"
    table_format = (dataset.format or "iceberg").lower()
    if table_format == "delta":
        raise UnsupportedFormat(
            f"{step.name}: a pipeline publishes Iceberg tables. Write a Delta table in a transaction of your own: "
            f"tx.write(frame, {step.name!r}, format='delta')"
        )
    if not there or mode == "create_or_replace":
        comment = {} if dataset.comment is None else {"comment": dataset.comment}
        statements.write(
            frame,
            step.name,
            "create_or_replace" if there else "create",
            partitioned_by=dataset.partition_cols,
            properties={**comment, **dataset.properties},
            format=table_format,
        )
        return
    _add_columns(statements, step.name, frame)
    statements.write(frame, step.name, mode, keys=dataset.keys if mode == "merge" else (), format=table_format)


def _add_columns(statements: Statements, name: str, frame: DataFrame) -> None:
    """Columns that the query has and the table has not. The query says what the table is; nothing is taken away."""
    known = {field.name.lower() for field in statements.table(name).schema}
    new = [one for one in frame.schema if one.name.lower() not in known]
    if new:
        columns = ", ".join(f"{_quoted_part(one.name)} {one.dataType.simpleString()}" for one in new)
        statements.sql(f"ALTER TABLE {quoted(statements.catalog)}.{quoted(name)} ADD COLUMNS ({columns})")


def figures(before: LoadedTable | None, after: LoadedTable) -> Figures:
    """What the snapshots between two versions of a table have added and removed."""
    known = set() if before is None else {one["snapshot-id"] for one in before.metadata.get("snapshots") or ()}
    new = [one for one in after.metadata.get("snapshots") or () if one["snapshot-id"] not in known]
    summaries = [one.get("summary") or {} for one in new]

    def total(name: str) -> int:
        return sum(int(summary.get(name, 0)) for summary in summaries)

    return Figures(
        rows=total("added-records"),
        files=total("added-data-files"),
        bytes=total("added-files-size"),
        removed_rows=total("deleted-records"),
    )


def _quoted_part(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

"""How the rows of a stage become part of its table."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from lakepact.pipelines.errors import InvalidPipeline
from lakepact.pipelines.graph import Step
from lakepact.pipelines.sqltables import quoted
from lakepact.pipelines.tables import DeltaState, TableState
from lakepact.spark.delta import MERGE_SCHEMA
from lakepact.spark.statements import Statements
from lakepact.spark.writers import check_format

_DELTA: Final = "delta"
_ICEBERG: Final = "iceberg"


def write(
    statements: Statements,
    step: Step,
    frame: DataFrame,
    before: TableState | None,
    columns: set[str],
    *,
    first: bool,
    replace_rows: bool = False,
) -> set[str]:
    """Stage the rows, and return the columns that the table has then.

    The first flow decides what becomes of the table, all others add to it; a table that is not there (`before`: as the
    stage has found it) is created as it was declared. `columns` are those that the table has now. With `replace_rows`
    the rows that are there are deleted in the same transaction.
    """
    dataset = step.dataset
    mode = dataset.mode if first else "append"
    table_format = _format(step, before)
    is_delta = table_format == _DELTA
    there = before is not None or not first
    if not there or (mode == "create_or_replace" and not is_delta):
        comment = {} if dataset.comment is None else {"comment": dataset.comment}
        statements.write(
            frame,
            step.name,
            "create_or_replace" if there else "create",
            partitioned_by=dataset.partition_cols,
            properties={**comment, **dataset.properties},
            format=table_format,
            loaded=before.table if isinstance(before, DeltaState) else None,
        )
        return {name.lower() for name in frame.columns}
    if mode == "create_or_replace":
        # A Delta table keeps its columns. What it holds is computed anew, and its older versions stay.
        mode = "overwrite"
    staged = replace_rows or not first
    staged |= _add_columns(statements, step.name, frame, columns, is_delta=is_delta)
    if replace_rows and mode != "overwrite" and not step.reads_itself:
        statements.delete(step.name, "true")
    keys = dataset.keys if mode == "merge" else ()
    # Checks have looked at all of the table: what others have added meanwhile they have not seen.
    loaded = before.table if isinstance(before, DeltaState) and not staged else None
    statements.write(frame, step.name, mode, keys=keys, format=table_format, exact=True, loaded=loaded)
    return columns | {name.lower() for name in frame.columns}


def _format(step: Step, before: TableState | None) -> str:
    """As it was declared; if nothing is said, as the table is."""
    check_format(step.dataset.format)
    declared = None if step.dataset.format is None else step.dataset.format.lower()
    if before is None:
        return declared or _ICEBERG
    found = _DELTA if isinstance(before, DeltaState) else _ICEBERG
    if declared not in (None, found):
        raise InvalidPipeline(
            f"{step.dataset.where}: {step.name} is declared as {declared} and is there as {found}. Drop it, or declare "
            f"it as what it is"
        )
    return found


def _add_columns(statements: Statements, name: str, frame: DataFrame, known: set[str], *, is_delta: bool) -> bool:
    """Add the columns that the query has and the table has not; no column is removed. Return whether there are any."""
    new = [one for one in frame.schema if one.name.lower() not in known]
    if not new:
        return False
    if is_delta:
        statements.write(frame.where("false"), name, "append", options={MERGE_SCHEMA: True}, format=_DELTA)
        return True
    columns = ", ".join(f"{_quoted_part(one.name)} {one.dataType.simpleString()}" for one in new)
    statements.sql(f"ALTER TABLE {quoted(statements.catalog)}.{quoted(name)} ADD COLUMNS ({columns})")
    return True


def _quoted_part(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"

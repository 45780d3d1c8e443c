"""How a frame becomes part of a table: one writer for each format, behind one seam.

A writer is called inside a transaction, with a frame and a table of the transaction's own session. It stages; it knows
nothing of commits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, TypeAlias, get_args

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakepact.errors import InvalidRequest
from lakepact.spark.errors import UnsupportedFormat
from lakepact.spark.names import quoted

Mode: TypeAlias = Literal["append", "overwrite", "overwrite_partitions", "merge", "create", "create_or_replace"]
MODES: Final[tuple[str, ...]] = get_args(Mode)

FORMATS: Final = ("delta", "iceberg")
_SOURCE: Final = "lakepact_source"
"""What the rows to merge are called. A column of theirs is then never taken for the table's."""

CREATING: Final = ("create", "create_or_replace")
_TRANSFORM: Final = re.compile(r"\s*(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*\)\s*")
_BY_TIME: Final[Mapping[str, Callable[[str], Column]]] = {
    "years": F.partitioning.years,
    "months": F.partitioning.months,
    "days": F.partitioning.days,
    "hours": F.partitioning.hours,
}


@dataclass(frozen=True, slots=True)
class Write:
    """What is to be done with a frame."""

    mode: Mode = "append"
    keys: Sequence[str] = ()
    """Of a merge: the columns by which rows are the same row."""

    partitioned_by: Sequence[str | Column] = ()
    """Of a table that is created: columns, or `days(at)`, `bucket(16, id)` and the like."""

    properties: Mapping[str, str] = field(default_factory=dict)
    """Of a table that is created."""

    options: Mapping[str, str] = field(default_factory=dict)
    """For the format's own writer."""

    exact: bool = False
    """Whether rows that are only added depend on the table as well: then others must not have added any."""

    @property
    def is_blind(self) -> bool:
        """Whether the result does not depend on the rows of the table."""
        return self.mode == "append" and not self.exact

    def check(self, table: str) -> None:
        if self.mode not in MODES:
            raise InvalidRequest(f"{table}: mode is {', '.join(MODES)}, not {self.mode!r}")
        if bool(self.keys) != (self.mode == "merge"):
            raise InvalidRequest(f"{table}: mode='merge' goes with keys=['id', …], and no other mode does")
        if self.mode not in CREATING and (self.partitioned_by or self.properties):
            raise InvalidRequest(
                f"{table}: partitioned_by and properties are of tables that are created (mode='create' or "
                f"'create_or_replace'). Change a table that is there with tx.sql('ALTER TABLE …')"
            )
        if self.mode == "merge" and self.options:
            raise InvalidRequest(f"{table}: a merge takes no options; set them as properties of the table")


def check_format(table_format: str | None) -> None:
    if table_format is not None and table_format.lower() not in FORMATS:
        raise UnsupportedFormat(f"format is {' or '.join(FORMATS)}, not {table_format!r}")


class TableWriter(Protocol):
    """Writes one table of a transaction, in its format."""

    def write(self, frame: DataFrame, wish: Write) -> int:
        """Stage the rows of `frame`. On an error anything may have been staged.

        Returns how many rows were only copied to another file, as far as the table's metadata does not say so.
        """
        ...

    def delete(self, where: str) -> int:
        """Stage the deletion of the rows for which this is true. Returns the same."""
        ...


@dataclass(frozen=True, slots=True)
class IcebergTable:
    spark: SparkSession
    name: str
    """As SQL has it."""

    def delete(self, where: str) -> int:
        self.spark.sql(f"DELETE FROM {self.name} WHERE {where}")
        return 0

    def write(self, frame: DataFrame, wish: Write) -> int:
        table = self.name
        if wish.mode == "merge":
            _merge(self.spark, frame, table, wish.keys)
            return 0
        writer = frame.writeTo(table).options(**wish.options)
        match wish.mode:
            case "append":
                writer.append()
            case "overwrite":
                writer.overwrite(F.lit(True))
            case "overwrite_partitions":
                writer.overwritePartitions()
            case "create" | "create_or_replace":
                writer = writer.using("iceberg")
                if wish.partitioned_by:
                    writer = writer.partitionedBy(*(partition(one) for one in wish.partitioned_by))
                for name, value in wish.properties.items():
                    writer = writer.tableProperty(name, value)
                writer.create() if wish.mode == "create" else writer.createOrReplace()
        return 0


def partition(wish: str | Column) -> Column:
    """A column to partition by, or a function of one, from how SQL writes it."""
    if isinstance(wish, Column):
        return wish
    found = _TRANSFORM.fullmatch(wish)
    if found is None:
        return F.col(quoted((wish,)))
    name, number, column = found[1].lower(), found[2], quoted((found[3].strip("`"),))
    if number is None and name.rstrip("s") + "s" in _BY_TIME:
        return _BY_TIME[name.rstrip("s") + "s"](column)
    if number is not None and name == "bucket":
        return F.partitioning.bucket(int(number), column)
    raise InvalidRequest(
        f"{wish!r} is no way to partition here: a column, years, months, days or hours of one, or bucket(16, column). "
        f"For others create the table with tx.sql('CREATE TABLE … PARTITIONED BY ({wish})'), then append"
    )


def _merge(spark: SparkSession, frame: DataFrame, table: str, keys: Sequence[str]) -> None:
    """Rows whose keys are there replace them, all others are added. A null is a key like any other."""
    target = spark.table(table).columns
    known = {column.lower() for column in target}
    missing = sorted({column.lower() for column in (*frame.columns, *keys)} - known)
    if missing:
        raise InvalidRequest(
            f"{table} has no column {', '.join(missing)}, and a merge adds none. ALTER TABLE … ADD COLUMN"
        )
    absent = sorted(known - {column.lower() for column in frame.columns})
    if absent:
        raise InvalidRequest(
            f"the rows to merge into {table} have no column {', '.join(absent)}: name every one of them"
        )
    # Not by SQL: Spark 4.1 cannot plan a MERGE whose source is a view of a table.
    same = " AND ".join(f"{_SOURCE}.{quoted((key,))} <=> {table}.{quoted((key,))}" for key in keys)
    merge = frame.alias(_SOURCE).mergeInto(table, F.expr(same))
    merge.whenMatched().updateAll().whenNotMatched().insertAll().merge()

"""A table as a transaction sees it at one moment, whatever its format: where it is at, and what has come since."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql import DataFrame

from lakepact.client import DeltaTable, LoadedTable, NotFound, Transaction
from lakepact.delta import schema as schemas
from lakepact.delta.actions import Add
from lakepact.delta.stats import num_records
from lakepact.pipelines.results import Figures
from lakepact.pipelines.sqltables import quoted
from lakepact.spark.delta_files import read_files
from lakepact.spark.statements import Statements

COPIED_ROWS: Final = "spark.merge-into.num-target-rows-copied"
"""Of a snapshot's summary: rows that a merge has rewritten and not changed."""


@dataclass(frozen=True, slots=True)
class IcebergState:
    table: LoadedTable

    @property
    def uuid(self) -> str:
        return self.table.uuid

    @property
    def at(self) -> int | None:
        return self.table.snapshot_id

    @property
    def columns(self) -> set[str]:
        """The names of its columns in lower case."""
        metadata = self.table.metadata
        current = metadata["current-schema-id"]
        [schema] = [one for one in metadata["schemas"] if one["schema-id"] == current]
        return {str(one["name"]).lower() for one in schema["fields"]}

    def added(self, statements: Statements, name: str, before: IcebergState) -> DataFrame:
        """The rows that were appended since."""
        since = before.table.snapshot_id
        if since is None:
            return statements.table(name)
        if since == self.table.snapshot_id:
            return statements.table(name).where("false")
        return between(statements, name, since, self.table.snapshot_id)

    def figures(self, before: IcebergState | None) -> Figures:
        """What the snapshots since have added and removed."""
        earlier = () if before is None else before.table.metadata.get("snapshots") or ()
        known = {one["snapshot-id"] for one in earlier}
        new = [one for one in self.table.metadata.get("snapshots") or () if one["snapshot-id"] not in known]
        summaries = [one.get("summary") or {} for one in new]

        def total(name: str) -> int:
            return sum(int(summary.get(name, 0)) for summary in summaries)

        # Rows that a merge only copied from one file to another are neither added nor removed.
        copied = total(COPIED_ROWS)
        return Figures(
            rows=total("added-records") - copied,
            files=total("added-data-files"),
            bytes=total("added-files-size"),
            removed_rows=total("deleted-records") - copied,
        )


@dataclass(frozen=True, slots=True)
class DeltaState:
    table: DeltaTable

    @property
    def uuid(self) -> str:
        return self.table.table_id

    @property
    def at(self) -> int | None:
        return self.table.version

    @property
    def columns(self) -> set[str]:
        """The names of its columns in lower case."""
        return {name.lower() for name in schemas.parse(self.table.schema_string).names}

    def added(self, statements: Statements, name: str, before: DeltaState) -> DataFrame:
        """The rows of files that have come since."""
        return read_files(statements.spark, self.table, self._not_in(before))

    def figures(self, before: DeltaState | None, copied: int) -> Figures:
        """What the files that have come, and those that have gone, hold by their statistics.

        `copied` rows were only moved from one file to another: they are neither added nor removed.
        """
        come = self.table.files if before is None else self._not_in(before)
        gone = () if before is None else before._not_in(self)
        return Figures(
            rows=_rows(come) - copied,
            files=len(come),
            bytes=sum(one.size for one in come),
            # Files of other writers need not have statistics.
            removed_rows=max(0, _rows(gone) - copied),
        )

    def _not_in(self, other: DeltaState) -> Sequence[Add]:
        known = {one.key for one in other.table.files}
        return [one for one in self.table.files if one.key not in known]


TableState: TypeAlias = IcebergState | DeltaState


def table_state(tx: Transaction, name: str, *, delta_first: bool = False) -> TableState | None:
    """Return a table as the transaction sees it now, or None. `delta_first`: it probably is a Delta table."""
    for load in (_load_delta, _load_iceberg) if delta_first else (_load_iceberg, _load_delta):
        with suppress(NotFound):
            return load(tx, name)
    return None


def _load_iceberg(tx: Transaction, name: str) -> TableState:
    return IcebergState(tx.tables.load(name))


def _load_delta(tx: Transaction, name: str) -> TableState:
    return DeltaState(tx.delta.load(name))


def added_since(statements: Statements, name: str, before: TableState, after: TableState) -> DataFrame:
    match before, after:
        case IcebergState(), IcebergState():
            return after.added(statements, name, before)
        case DeltaState(), DeltaState():
            return after.added(statements, name, before)
        case _:
            return statements.table(name)


def figures_since(before: TableState | None, after: TableState, copied: int = 0) -> Figures:
    """What was added and removed. `copied`: rows of a Delta table that were only moved to another file."""
    if isinstance(after, DeltaState):
        return after.figures(before if isinstance(before, DeltaState) else None, copied)
    return after.figures(before if isinstance(before, IcebergState) else None)


def between(statements: Statements, name: str, since: int, until: int | None) -> DataFrame:
    """What was added to an Iceberg table after one snapshot, up to another."""
    reader = statements.spark.read.option("start-snapshot-id", str(since)).option("end-snapshot-id", str(until))
    return reader.table(f"{quoted(statements.catalog)}.{quoted(name)}")


def _rows(files: Iterable[Add]) -> int:
    return sum(num_records(one.stats) or 0 for one in files)

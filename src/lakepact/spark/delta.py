"""Delta tables in a transaction of Spark's: every change is new files, and actions that say which files count."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakepact.client import DeltaChange, DeltaTable, Identifier, Transaction
from lakepact.client.names import shown
from lakepact.delta import schema as schemas
from lakepact.delta.actions import Action, Add, Metadata, Remove
from lakepact.delta.codec import parse_action
from lakepact.delta.partitions import typed
from lakepact.delta.stats import num_records
from lakepact.errors import InvalidRequest
from lakepact.spark.delta_files import FILE, read_files, write_files
from lakepact.spark.writers import Write

MERGE_SCHEMA: Final = "mergeSchema"
"""The option that lets a frame bring new columns, as Delta calls it."""

_TIMES: Final = "lakepact_times"

_COMMENT: Final = "comment"
"""The property that Spark keeps a table's comment in. Delta has a place of its own for it."""


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table of a transaction, and the session that works on it."""

    plain: Transaction
    spark: SparkSession
    name: Identifier
    loaded: DeltaTable | None = None
    """The table as the transaction sees it, with its files unless the write is blind. None: there is none."""

    @property
    def table(self) -> DeltaTable:
        assert self.loaded is not None, "only a table that is created is not there"
        return self.loaded

    def write(self, frame: DataFrame, wish: Write) -> int:
        unknown = sorted(set(wish.options) - {MERGE_SCHEMA})
        if unknown:
            raise InvalidRequest(
                f"{shown(self.name)}: writing a Delta table takes the option {MERGE_SCHEMA} only; remove {unknown[0]}"
            )
        if wish.mode in ("create", "create_or_replace"):
            self._create(frame, wish)
            return 0
        table, grown = self._fitted(self.table, frame, wish)
        schema = schemas.parse(table.schema_string)
        if wish.mode == "merge":
            return self._merge(table, frame, wish.keys)
        added = write_files(self.spark, _in_order(frame, schema), table, schema)
        match wish.mode:
            case "append":
                gone: Iterable[Add] = ()
            case "overwrite":
                gone = table.files
            case _:
                replaced = {_values(one, schema) for one in added}
                gone = [one for one in table.files if _values(one, schema) in replaced]
        version = None if wish.is_blind and not grown else table.version
        self._commit(table, [*grown, *_removes(gone), *added], wish.mode.upper(), version)
        return 0

    def delete(self, where: str) -> int:
        table = self.table
        condition = F.expr(where)
        rows = read_files(self.spark, table, with_file=True)
        return self._rewrite(table, rows.where(condition), ~F.coalesce(condition, F.lit(False)), None, "DELETE")

    def _create(self, frame: DataFrame, wish: Write) -> None:
        columns = []
        for one in wish.partitioned_by:
            if not isinstance(one, str) or "(" in one:
                raise InvalidRequest(f"{shown(self.name)}: a Delta table is partitioned by columns, not by {one}")
            columns.append(one.strip("`"))
        schema = schemas.parse(frame.schema.json())
        if wish.mode == "create_or_replace" and self.loaded is not None:
            table = self.loaded
            if table.schema_string != schemas.dump(schema) or table.partition_columns != tuple(columns):
                raise InvalidRequest(
                    f"{shown(self.name)} is there with other columns. A Delta table keeps its columns: drop it first, "
                    f"or use mode='overwrite' with options={{'{MERGE_SCHEMA}': True}} to add some"
                )
        else:
            properties = dict(wish.properties)
            table = self.plain.delta.create(
                self.name,
                schemas.dump(schema),
                partition_by=columns,
                description=properties.pop(_COMMENT, None),
                configuration=properties,
            )
        added = write_files(self.spark, _in_order(frame, schema), table, schema)
        self._commit(table, [*_removes(table.files), *added], "CREATE TABLE AS SELECT", table.version)

    def _fitted(self, table: DeltaTable, frame: DataFrame, wish: Write) -> tuple[DeltaTable, list[Action]]:
        """The table with room for the columns of the frame, if they may be added."""
        current, wanted = schemas.parse(table.schema_string), schemas.parse(frame.schema.json())
        if wish.options.get(MERGE_SCHEMA, "false") != "true":
            schemas.check_rows_fit(current, wanted)
            return table, []
        evolved = schemas.evolve(current, wanted)
        schemas.check_rows_fit(evolved, wanted)
        text = schemas.dump(evolved)
        if text == schemas.dump(current):
            return table, []
        metadata = parse_action({"metaData": dict(table.metadata)})
        assert isinstance(metadata, Metadata)
        grown = replace(metadata, schema_string=text)
        return replace(table, metadata={**table.metadata, "schemaString": text}), [grown]

    def _merge(self, table: DeltaTable, frame: DataFrame, keys: Sequence[str]) -> int:
        """Rows whose keys are there are replaced, all others added. A null is a key like any other."""
        schema = schemas.parse(table.schema_string)
        absent = [name for name in schema.names if name not in frame.columns]
        if absent:
            raise InvalidRequest(f"the rows to merge into {shown(self.name)} have no column {', '.join(absent)}")
        # It is looked at several times, and must say the same each time: what is limited or sampled may not.
        frame = frame.localCheckpoint()
        wanted = frame.select(*(F.col(f"`{key}`").alias(f"lakepact_{number}") for number, key in enumerate(keys)))
        groups = wanted.groupBy(*wanted.columns).agg(F.count(F.lit(1)).alias(_TIMES))
        [[most, source_rows]] = groups.agg(F.max(_TIMES), F.sum(_TIMES)).collect()
        if (most or 0) > 1:
            twice = groups.where(F.col(_TIMES) > 1).limit(1).collect()
            raise InvalidRequest(
                f"two rows to merge into {shown(self.name)} have the same {', '.join(keys)}: {twice[0][:-1]}"
            )
        rows = read_files(self.spark, table, with_file=True)
        same = _all(rows[f"`{key}`"].eqNullSafe(wanted[f"lakepact_{number}"]) for number, key in enumerate(keys))
        touched = rows.join(wanted, same, "leftsemi")
        written = self._rewrite(table, touched, None, (wanted, keys, frame), "MERGE")
        return written - (source_rows or 0)

    def _rewrite(
        self,
        table: DeltaTable,
        touched: DataFrame,
        kept: Column | None,
        merged: tuple[DataFrame, Sequence[str], DataFrame] | None,
        operation: str,
    ) -> int:
        """Write the files anew that rows are taken from. Only those: most of a large table is left as it is.

        Returns how many rows were written.
        """
        paths = {row[0] for row in touched.select(FILE).distinct().collect()}
        gone = [one for one in table.files if one.path in paths]
        schema = schemas.parse(table.schema_string)
        rows = read_files(self.spark, table, gone)
        if merged is not None:
            wanted, keys, frame = merged
            same = _all(rows[f"`{key}`"].eqNullSafe(wanted[f"lakepact_{number}"]) for number, key in enumerate(keys))
            rest = rows.join(wanted, same, "leftanti") if gone else rows
            rows = rest.unionByName(_in_order(frame, schema))
        elif kept is not None:
            if not gone:
                return 0
            rows = rows.where(kept)
        added = write_files(self.spark, rows, table, schema)
        self._commit(table, [*_removes(gone), *added], operation, table.version)
        return sum(num_records(one.stats) or 0 for one in added)

    def _commit(self, table: DeltaTable, actions: Sequence[Action], operation: str, version: int | None) -> None:
        if actions:
            statements = None if version is None else table.statements
            change = DeltaChange(
                table.identifier, actions, expected_version=version, statements=statements, operation=operation
            )
            self.plain.delta.commit(change)


def _in_order(frame: DataFrame, schema: schemas.Struct) -> DataFrame:
    """The columns as the table has them, each by its name and as the table's type."""
    types = {one.name.lower(): one for one in schema.fields}
    known = {name.lower(): name for name in frame.columns}
    return frame.select(*(F.col(f"`{known[name]}`").alias(one.name) for name, one in types.items() if name in known))


def _removes(files: Iterable[Add]) -> list[Remove]:
    now_ms = time.time_ns() // 1_000_000
    return [Remove(one.path, now_ms, True, one.partition_values, one.size, one.deletion_vector) for one in files]


def _values(one: Add, schema: schemas.Struct) -> tuple[tuple[str, object], ...]:
    """What a file's partition is: values, since one value may be spelled in several ways."""
    types = {field.name: field.type for field in schema.fields}
    return tuple((name, typed(one.partition_values[name], types[name])) for name in sorted(one.partition_values))


def _all(conditions: Iterable[Column]) -> Column:
    first, *others = conditions
    for one in others:
        first &= one
    return first

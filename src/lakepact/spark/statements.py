"""Statements of a transaction: SQL, reads and writes in its own session. One that fails makes all of it unfit.

A statement may stage more than one change, and Spark does not say what it had done when it failed. So after a failure
there is only one safe end, however the caller takes the error. What only reads stages nothing, and harms nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession

from lakepact.client import Identifier, Name, Transaction, Unavailable
from lakepact.errors import InvalidRequest, LakepactError
from lakepact.spark.clones import Clone
from lakepact.spark.delta import DeltaTarget
from lakepact.spark.errors import TransactionUnfit, UnsupportedFormat, conflict_in, is_outage, root_message
from lakepact.spark.names import full_name, plain_name
from lakepact.spark.writers import CREATING, IcebergTable, Mode, TableWriter, Write, check_format

T = TypeVar("T")

_SHOWN: Final = 200


class Fitness:
    """Whether a transaction may still be committed. Shared by everybody who works in it, in any thread."""

    def __init__(self, transaction_id: str) -> None:
        self._transaction_id = transaction_id
        self._lock = threading.Lock()
        self._failure: tuple[str, BaseException] | None = None

    def check(self) -> None:
        """Raises `TransactionUnfit`, caused by the first failure."""
        failure = self._failure
        if failure is not None:
            raise TransactionUnfit(self._transaction_id, failure[0]) from failure[1]

    def guard(self, what: str, work: Callable[[], T]) -> T:
        """Do a statement. Raises `Conflict` if it failed because somebody else was faster, `Unavailable` if the server
        did not answer, else what Spark raised."""
        self.check()
        try:
            return work()
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or (_shortened(what), error)
            conflict = conflict_in(error)
            if conflict is not None:
                raise conflict from error
            if is_outage(error) and not isinstance(error, LakepactError):
                raise Unavailable(
                    f"the server did not answer during {_shortened(what)!r} in transaction {self._transaction_id}: "
                    f"{root_message(error)}. Nothing of the transaction is visible; run all of it again"
                ) from error
            raise


class Statements:
    """What a transaction, and each stage of it, can do."""

    def __init__(self, plain: Transaction, clone: Clone | None, fitness: Fitness, aliases: Collection[str]) -> None:
        self._plain = plain
        self._within = clone
        self._fitness = fitness
        self._aliases = aliases

    @property
    def spark(self) -> SparkSession:
        """The session inside. What is done with it directly is in the transaction, but a failure in it goes unnoticed
        unless the error ends the block."""
        return self._clone.spark

    @property
    def catalog(self) -> str:
        """The name of the catalog inside, which is also the current one."""
        return self._clone.catalog

    @property
    def catalogs(self) -> Collection[str]:
        """All names that catalogs of the lake have in the session."""
        return {self.catalog, *self._aliases}

    def sql(self, text: str, args: dict[str, Any] | list[Any] | None = None, **values: Any) -> DataFrame:
        """Run a statement. Names without a catalog are the transaction's, and so are those with the lake's catalog;
        temporary views are those of your session. `args` and `values` as in `spark.sql`."""
        return self._fitness.guard(text, lambda: self._clone.sql(text, args, **values))

    def query(self, text: str, args: dict[str, Any] | list[Any] | None = None) -> DataFrame:
        """A query, which stages nothing: if it fails, the transaction can go on."""
        self._fitness.check()
        return self._clone.sql(text, args)

    def table(self, name: Name) -> DataFrame:
        """A table as the transaction sees it, with what is staged."""
        self._fitness.check()
        try:
            return self._clone.spark.table(self._full_name(name))
        except AnalysisException:
            delta = self._delta(name)
            if delta is None:
                raise
            return delta.read()

    def write(
        self,
        frame: DataFrame,
        table: Name,
        mode: Mode = "append",
        *,
        keys: str | Sequence[str] = (),
        partitioned_by: str | Column | Sequence[str | Column] = (),
        properties: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        format: str | None = None,
        exact: bool = False,
    ) -> None:
        """Stage the rows of a frame.

        append                add them; columns go by name
        overwrite             they are all there is
        overwrite_partitions  they replace the partitions they have rows for
        merge                 they replace rows with the same `keys`, and are added where there are none
        create                they are a new table, `partitioned_by` columns, or `days(at)`, `bucket(16, id)`
        create_or_replace     the same, in place of the table that is there, whose history is kept

        `properties` are of a table that is created, `options` those of the format's own writer. `format` is that of a
        table that is created, `iceberg` unless `delta` is said; one that is there has its own. Rows that are only added
        to a Delta table go on past what others add meanwhile; with `exact` that is a conflict, as everything else is.
        """
        check_format(format)
        wish = Write(
            mode,
            (keys,) if isinstance(keys, str) else tuple(keys),
            (partitioned_by,) if isinstance(partitioned_by, str | Column) else tuple(partitioned_by),
            dict(properties or {}),
            {key: _option(value) for key, value in (options or {}).items()},
            exact,
        )
        name = self._full_name(table)
        wish.check(name)
        if frame.isStreaming:
            raise InvalidRequest(
                f"{name}: a stream never ends, and a transaction does. Write each batch: "
                f"stream.writeStream.foreachBatch(lambda batch, number: …)"
            )
        self._fitness.guard(
            f"{mode} {name}", lambda: self._writer(table, format, mode).write(self._clone.own(frame), wish)
        )

    def delete(self, table: Name, where: str) -> None:
        """Delete the rows for which a condition is true, as SQL writes it."""
        self._fitness.guard(f"delete from {table}", lambda: self._writer(table, None, "append").delete(where))

    def _writer(self, table: Name, format: str | None, mode: Mode) -> TableWriter:
        there = self._delta(table)
        wanted = (format or ("delta" if there is not None else "iceberg")).lower()
        if wanted == "delta":
            if there is None and mode not in CREATING:
                raise UnsupportedFormat(f"{table} is no Delta table; leave format out, or create it with mode='create'")
            return there or DeltaTarget(self._plain, self._clone.spark, self._plain_name(table))
        if there is not None and mode not in CREATING:
            raise UnsupportedFormat(f"{table} is a Delta table; leave format out")
        return IcebergTable(self._clone.spark, self._full_name(table))

    def _delta(self, table: Name) -> DeltaTarget | None:
        """The Delta table of this name, if it is one."""
        name = self._plain_name(table)
        if len(name) < 2 or not self._plain.delta.exists(name):
            return None
        return DeltaTarget(self._plain, self._clone.spark, name)

    def _plain_name(self, name: Name) -> Identifier:
        return plain_name(name, self.catalog, self._aliases)

    @property
    def _clone(self) -> Clone:
        if self._within is None:
            raise RuntimeError("the transaction has not begun: use `with lake.transaction() as tx:`, or call begin()")
        return self._within

    def _full_name(self, name: Name) -> str:
        return full_name(name, self.catalog, self._aliases)


def _option(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"

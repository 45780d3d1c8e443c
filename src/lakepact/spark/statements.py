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

from lakepact.client import DeltaTable, Identifier, Name, NotFound, Transaction, Unavailable
from lakepact.errors import InvalidRequest, LakepactError
from lakepact.spark.clones import Clone
from lakepact.spark.delta import DeltaTarget
from lakepact.spark.delta_files import read_files
from lakepact.spark.errors import TransactionUnfit, UnsupportedFormat, conflict_in, is_outage, root_message
from lakepact.spark.names import DeltaNames, full_name, plain_name
from lakepact.spark.writers import CREATING, IcebergTable, Mode, TableWriter, Write, check_format

T = TypeVar("T")

_SHOWN: Final = 200
_DELTA: Final = "delta"


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

    def __init__(
        self,
        plain: Transaction,
        clone: Clone | None,
        fitness: Fitness,
        aliases: Collection[str],
        delta_names: DeltaNames,
    ) -> None:
        self._plain = plain
        self._within = clone
        self._fitness = fitness
        self._aliases = aliases
        self._delta_names = delta_names
        self.copied_rows = 0
        """Rows of Delta tables that merges and deletions here have copied from one file to another, unchanged.
        Snapshots of Iceberg tables say so themselves."""

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
        plain = self._plain_name(name)
        delta = self._delta_table(plain) if plain in self._delta_names else None
        if delta is None:
            try:
                return self.spark_table(name)
            except AnalysisException:
                delta = self._delta_table(plain)
                if delta is None:
                    raise
        return read_files(self._clone.spark, delta)

    def spark_table(self, name: Name) -> DataFrame:
        """A table or view that Spark itself can read: anything but a Delta table."""
        self._fitness.check()
        return self._clone.spark.table(self._full_name(name))

    def is_delta(self, name: Name) -> bool:
        """Whether this was a Delta table when it was last used. A hint: nobody is asked."""
        return self._plain_name(name) in self._delta_names

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
        loaded: DeltaTable | None = None,
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
        `loaded` is a Delta table as this transaction has loaded it, with its files: it is not loaded again. If it was
        changed since, that is a conflict.
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
        wanted = None if format is None else format.lower()
        self._fitness.guard(
            f"{mode} {name}", lambda: self._change(table, wanted, wish, self._writing(frame, wish), loaded)
        )

    def delete(self, table: Name, where: str) -> None:
        """Delete the rows for which a condition is true, as SQL writes it."""
        wish = Write(exact=True)
        self._fitness.guard(
            f"delete from {table}", lambda: self._change(table, None, wish, lambda writer: writer.delete(where))
        )

    def _writing(self, frame: DataFrame, wish: Write) -> Callable[[TableWriter], int]:
        own = self._clone.own(frame)
        return lambda writer: writer.write(own, wish)

    def _change(
        self,
        table: Name,
        format: str | None,
        wish: Write,
        change: Callable[[TableWriter], int],
        loaded: DeltaTable | None = None,
    ) -> None:
        """Change a table by the writer of its format.

        The server is asked for the format only if it is not given and the table may be created: Spark itself says that
        there is no Iceberg table, before it stages anything.
        """
        name, creates = self._plain_name(table), wish.mode in CREATING
        iceberg = IcebergTable(self._clone.spark, self._full_name(table))
        ask = format == _DELTA or (format is None and (creates or name in self._delta_names))
        delta = loaded
        if delta is None and ask:
            delta = self._delta_table(name, files=not wish.is_blind)
        if delta is None and format == _DELTA and not creates:
            raise UnsupportedFormat(f"{table} is no Delta table; leave format out, or create it with mode='create'")
        if delta is None and format != _DELTA:
            try:
                change(iceberg)
                return
            except AnalysisException:
                delta = None if creates else self._delta_table(name, files=not wish.is_blind)
                if delta is None:
                    raise
            if format is not None:
                raise UnsupportedFormat(f"{table} is a Delta table; leave format out")
        self.copied_rows += change(DeltaTarget(self._plain, self._clone.spark, name, delta))
        self._delta_names.add(name)

    def _delta_table(self, name: Identifier, *, files: bool = True) -> DeltaTable | None:
        """The Delta table of this name as the transaction sees it, if it is one."""
        if len(name) < 2:
            return None
        try:
            table = self._plain.delta.load(name, files=files)
        except NotFound:
            self._delta_names.discard(name)
            return None
        self._delta_names.add(name)
        return table

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

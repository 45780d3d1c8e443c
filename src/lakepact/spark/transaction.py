"""A transaction of Spark's: the client's, with a session of its own inside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from pyspark.sql import SparkSession

from lakepact.client import Published, Transaction, TransactionInfo
from lakepact.client.state import TransactionStates
from lakepact.spark.clones import Clone
from lakepact.spark.names import DeltaNames
from lakepact.spark.settings import CatalogSettings
from lakepact.spark.statements import Fitness, Statements

SUMMARY: Final = "spark.sql.iceberg.snapshot-property."
"""Settings that Iceberg writes into the summary of every snapshot that a statement makes."""

TRANSACTION_ID: Final = "lakepact.transaction-id"

_OPEN: Final = "open"
_UNKNOWN: Final = "unknown"


class Stage(Statements):
    """A part of a transaction with a session of its own: its own `USE`, its own settings, its own summary. Stages may
    run side by side, and see what the others have staged."""


class SparkTransaction(Statements):
    """Made by `lake.transaction()`, to be used with `with`: committed at the end, aborted on an error.

    Statements may come from several threads; they share one session inside. `commit` and `abort` come from one.
    """

    def __init__(
        self,
        plain: Transaction,
        spark: SparkSession,
        catalogs: Sequence[CatalogSettings],
        *,
        source: Mapping[str, Any] | None = None,
        summary: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        delta_names: DeltaNames | None = None,
        ended: Callable[[SparkTransaction, Sequence[Clone]], None] | None = None,
    ) -> None:
        aliases = [catalog.name for catalog in catalogs]
        super().__init__(plain, None, Fitness(plain.id), aliases, delta_names or DeltaNames())
        self._user = spark
        self._conf = dict(conf or {})
        self._source = {**_spark_source(spark), **(source or {})}
        self._summary = dict(summary or {})
        self._ended = ended
        self._stages: list[Clone] = []
        self._handed_over = False
        self._outside = catalogs

    # --- what it is ---

    @property
    def id(self) -> str:
        return self._plain.id

    @property
    def warehouse(self) -> str:
        """What another engine is given as its warehouse to work inside, too: `main@<id>`."""
        return self._plain.warehouse

    @property
    def plain(self) -> Transaction:
        """The client's transaction: tables and namespaces as documents, PyIceberg inside."""
        return self._plain

    @property
    def info(self) -> TransactionInfo:
        return self._plain.info

    @property
    def state(self) -> TransactionStates:
        """Documents that commit with the tables."""
        return self._plain.state

    @property
    def outcome(self) -> str:
        """`open`, `committed`, `aborted`, `failed` or `unknown`, as far as is known here."""
        return self._plain.outcome

    @property
    def results(self) -> tuple[Published, ...]:
        """The tables and views it has published. Empty before the commit."""
        return self._plain.results

    def __repr__(self) -> str:
        return f"SparkTransaction({self.id}, {self.outcome})"

    # --- its life ---

    def begin(self) -> Self:
        """Begin it, and renew it in the background until it ends. For programs that cannot use `with`."""
        self._plain.begin()
        try:
            summary = _in_summary({TRANSACTION_ID: self.id, **self._summary})
            self._within = Clone(self._user, self._inside(), {**summary, **self._conf})
        except BaseException as error:
            self._plain.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def stage(self, summary: Mapping[str, str] | None = None, conf: Mapping[str, str] | None = None) -> Stage:
        """A part of this transaction with a session of its own. `summary` goes into its snapshots, `conf` holds for it
        alone."""
        self._fitness.check()
        clone = Clone(self._clone, self._inside(), {**_in_summary(summary or {}), **(conf or {})})
        self._stages.append(clone)
        return Stage(self._plain, clone, self._fitness, self._aliases, self._delta_names)

    def commit(self, source: Mapping[str, Any] | None = None) -> tuple[Published, ...]:
        """Make everything visible at one instant, and return what was published. The block does this by itself.

        `source` is added to what the receipts say of who did this: `{"kind": "pipeline", "run-id": …}`.
        Raises `TransactionUnfit` if a statement failed, and whatever the client's commit raises.
        """
        try:
            self._fitness.check()
        except BaseException as error:
            self._plain.__exit__(type(error), error, error.__traceback__)
            self._finish()
            raise
        try:
            return self._plain.commit({**self._source, **(source or {})})
        finally:
            if self._plain.outcome != _OPEN:
                self._finish()

    def settle(self) -> tuple[Published, ...]:
        """Send a commit whose outcome is `unknown` again, which is safe, and return what was published.

        Raises what `settle` of the client's transaction raises: `Unknown` for as long as the server does not tell.
        """
        try:
            return self._plain.settle()
        finally:
            if self._plain.outcome != _OPEN:
                self._finish()

    def abort(self) -> None:
        """Give it up. Nothing of it will ever be visible. Aborting twice is fine."""
        self._plain.abort()
        self._finish()

    def __enter__(self) -> Self:
        return self if self._within is not None else self.begin()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._plain.outcome == _OPEN:
            try:
                self.commit()
            except BaseException as failure:
                # Whatever it is: what was not committed is aborted, and what is unknown is left alone.
                self._plain.__exit__(type(failure), failure, failure.__traceback__)
                self._finish()
                raise
        else:
            self._plain.__exit__(kind, error, trace)
            self._finish()

    def _finish(self) -> None:
        ended = self._ended
        if ended is None or self._within is None:
            return
        if self._handed_over and self._plain.outcome == _UNKNOWN:
            # Reported before, and settled no further since.
            return
        clones = [] if self._handed_over else [self._within, *self._stages]
        self._handed_over = True
        if self._plain.outcome != _UNKNOWN:
            # An unknown outcome may be settled later, and reported then.
            self._ended = None
        ended(self, clones)

    def _inside(self) -> list[CatalogSettings]:
        return [catalog.at(self._plain.warehouse) for catalog in self._outside]


def _in_summary(properties: Mapping[str, str]) -> dict[str, str]:
    return {SUMMARY + key: value for key, value in properties.items()}


def _spark_source(spark: SparkSession) -> dict[str, str]:
    context = spark.sparkContext
    return {
        "kind": "spark",
        "application-id": context.applicationId,
        "application-name": context.appName or "",
        "engine-version": spark.version,
    }

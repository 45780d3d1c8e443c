"""The job: receipts since the position, all projections and the position itself in one transaction.

Whatever happens to it, and whenever: nothing of it is visible, or all of it. Two of them at once read the same
position, and it can be moved from there once; the other begins again and finds what is left.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import cached_property, reduce
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakepact.errors import InvalidSetting
from lakepact.spark import SparkLake, SparkTransaction
from lakepact.spark.jobs.projections import current, rows
from lakepact.spark.jobs.projections.choosing import (
    DAMAGED,
    READY,
    SOURCE,
    TOGETHER,
    WAITS,
    chosen,
    without_doubles,
    without_settled,
)
from lakepact.spark.jobs.projections.layout import Layout, Sources, last_closed
from lakepact.spark.jobs.projections.metadata import Metadata
from lakepact.spark.jobs.projections.parallel import run_in_parallel
from lakepact.spark.jobs.projections.position import NAME, Position
from lakepact.spark.jobs.projections.reading import Lines, Reader, parsed, unparsed
from lakepact.spark.jobs.projections.storage import Root, Storage, estimated_bytes
from lakepact.spark.jobs.projections.tables import (
    ALL,
    CHECKS,
    COLUMNS,
    COMMITS,
    FILES,
    LINEAGE,
    NAMESPACE,
    SNAPSHOTS,
    TABLES,
    TRANSACTIONS,
    WAITING,
    Projection,
)
from lakepact.spark.names import quoted

Phase = Callable[[str], None]
"""Is told what has just been done."""

Counts: TypeAlias = "Counter[tuple[str, bool]]"

_SETTINGS: Final = {
    # Days are UTC's, whatever the session's are, and what others have written must not end the job.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # Spark takes opening a file for as much work as reading 4 MiB, and would have a task for every 32 receipts.
    "spark.sql.files.openCostInBytes": str(64 << 10),
}
_LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_SMALL: Final = {
    # Planning and compilation cost a small run more than they save: a run over 400 receipts took 9.3 to 9.6 s of CPU
    # time without these settings and 7.3 to 8.6 s with them (two runs each on a busy machine, after 6,000 receipts).
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_SMALL_ROWS: Final = 100_000
"""A run is small if it has one partition of receipts, and `columns`, which it rewrites, has at most so many rows."""

_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_RECEIPTS: Final = 10_000
"""So many receipts fill a partition of a shuffle."""

_BYTES: Final = 4 << 20
"""Files of this size fill one: a few thousand loose receipts, or some 80,000 packed ones."""

_SHOWN: Final = 5
"""The most damaged files that a result names."""

_PARTIAL: Final = "lakepact_partial_transactions"
_ADDED_TO: Final[Sequence[tuple[Projection, Callable[[DataFrame], DataFrame]]]] = (
    (COMMITS, rows.commits),
    (SNAPSHOTS, rows.snapshots),
    (LINEAGE, rows.lineage),
    (FILES, rows.files),
)
_MOST_DAYS: Final = 60
"""So many days are looked up one by one; of more, everything from the first to the last."""


@dataclass(frozen=True, slots=True)
class Projected:
    """What a run has done."""

    transaction_id: str | None
    """None: there was nothing new, and nothing was changed."""

    receipts: int
    """How many were projected."""

    waiting: int
    """How many wait for the rest of their transactions."""

    damaged: int
    """How many files are no receipts. Those that were met by an earlier run are not looked at for ever."""

    examples: tuple[str, ...]
    """Some of them."""

    broken: tuple[str, ...]
    """Segments and manifests of packed days that cannot be read. What lies loose of their days was read instead."""

    through: str | None
    """The day up to which everything is projected."""

    tables: int = 0
    """How many tables and views have changed."""

    unread: int = 0
    """Those of them whose newest metadata could not be read: nothing is known of their columns."""

    seconds: float = 0.0


def project(
    lake: SparkLake,
    *,
    full: bool = False,
    location: str | None = None,
    attempts: int = 5,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    on_phase: Phase = lambda what: None,
) -> Projected:
    """Bring the projections up to date, or with `full` make them anew of all receipts there are.

    `location` is the warehouse as Spark reaches it, if that is another one than the server says. Raises `Conflict` if
    others were faster `attempts` times.
    """
    told = lake.plain.location or location
    if told is None:
        raise InvalidSetting(
            "this server does not say where its warehouse is: upgrade it, or give the location (--location URL)"
        )
    root = Root(told, location)
    began = time.monotonic()

    def work(tx: SparkTransaction) -> Projected:
        on_phase("begun")
        return _Run(lake, tx, root, now_ms(), full=full, on_phase=on_phase).done()

    done = lake.run(work, attempts=attempts, isolation="snapshot", source=SOURCE, properties={"job": NAME})
    on_phase("committed")
    return replace(done, seconds=time.monotonic() - began)


class _Run:
    """One attempt, inside its transaction."""

    def __init__(
        self, lake: SparkLake, tx: SparkTransaction, root: Root, now_ms: int, *, full: bool, on_phase: Phase
    ) -> None:
        self._tx = tx
        # Spark lists many paths in a job with a task for each of them. A few tasks for each core are as fast.
        self._stage = tx.stage(conf={**_SETTINGS, _LISTING: str(4 * lake.spark.sparkContext.defaultParallelism)})
        self._now_ms = now_ms
        self._on_phase = on_phase
        storage = Storage(lake.spark)
        self._layout = Layout(self._stage.spark, storage, root.url)
        self._reader = Reader(self._stage.spark, storage, self._layout, root)
        self._metadata = Metadata(self._stage.spark, storage, root, lake.plain)
        self._document = tx.state.get(NAME)
        self._position = Position.of(self._document, full=full)
        self._first = self._document.value is None
        self._full = full
        self._anew = full or self._first

    def done(self) -> Projected:
        if self._anew:
            self._create()
        sources = self._layout.sources(None if self._anew else self._position.through)
        lines, waiting = self._lines(sources), self._waiting_receipts()
        receipts = chosen(self._new(lines), waiting, self._now_ms).persist()
        kept = [receipts]
        try:
            counts = _counts(receipts)
            if counts["misnamed", True]:
                # The names of their files say nothing of their keys, so the keys are compared.
                receipts = chosen(self._unknown_of(lines), waiting, self._now_ms).persist()
                kept.append(receipts)
                counts = _counts(receipts)
            if counts["nameless", True]:
                receipts = without_doubles(receipts).persist()
                kept.append(receipts)
                counts = _counts(receipts)
            if self._full and not self._first:
                receipts = without_settled(receipts, self._stage.table(COMMITS.full_name)).persist()
                kept.append(receipts)
                counts = _counts(receipts)
            self._on_phase("read")
            return self._projected(sources, receipts, counts)
        finally:
            for frame in reversed(kept):
                frame.unpersist()

    def _projected(self, sources: Sources, receipts: DataFrame, counts: Counts) -> Projected:
        ready, waits = (counts[status, False] + counts[status, True] for status in (READY, WAITS))
        damaged = receipts.where(F.col("status") == DAMAGED).select("file").limit(_SHOWN)
        found = Projected(
            transaction_id=self._tx.id,
            receipts=ready,
            waiting=waits,
            damaged=counts[DAMAGED, False] + sources.damaged,
            examples=tuple(row["file"] for row in damaged.collect()) if counts[DAMAGED, False] else (),
            broken=tuple(sources.broken),
            through=self._through(sources),
        )
        waiting_changed = bool(counts[WAITS, False] or counts[READY, True])
        if not self._anew and not ready and not waiting_changed:
            self._tx.abort()
            return replace(found, transaction_id=None, through=self._position.through)
        new = rows.described(receipts.where(F.col("status") == READY))
        if ready:
            tables, unread = self._stage_rows(new, partial=counts["partial", True] > 0)
            found = replace(found, tables=tables, unread=unread)
        if waiting_changed:
            self._keep_waiting(receipts.where(F.col("status") == WAITS))
        self._move(found)
        return found

    # --- what is read ---

    def _lines(self, sources: Sources) -> Lines:
        if self._anew:
            return self._reader.lines(sources, None)
        return self._reader.lines(sources, self._position.read_ms, self._unknown)

    def _new(self, lines: Lines) -> DataFrame:
        """Return the receipts that are neither projected nor wait, or in a full run all of them."""
        if self._anew:
            projected = 0 if self._first else self._stage.table(COMMITS.full_name).count()
            self._use_partitions(max(estimated_bytes(lines.rows) // _BYTES, projected // _RECEIPTS))
            return parsed(lines.rows)
        if lines.by_name is None:
            return self._unknown_of(lines)
        self._use_partitions(lines.by_name // _RECEIPTS)
        if lines.by_name <= _RECEIPTS and self._recorded_rows(COLUMNS, _SMALL_ROWS + 1) <= _SMALL_ROWS:
            for key, value in _SMALL.items():
                self._stage.spark.conf.set(key, value)
        return parsed(lines.rows, by_name=True)

    def _unknown_of(self, lines: Lines) -> DataFrame:
        """Return the receipts that are neither projected nor wait, by the keys inside them."""
        read = parsed(lines.rows).persist()
        try:
            # Not merely cached: when a table is written, Spark computes anew whatever it has cached of that table.
            new = self._unknown(read).localCheckpoint()
        finally:
            read.unpersist()
        self._use_partitions(new.count() // _RECEIPTS)
        return new

    def _use_partitions(self, full: int) -> None:
        """Shuffle into one partition more than are full, and never into more than the user's session does.

        Spark does not merge small partitions of a frame that is cached. Each of them would cost a task, and a file, in
        every table that is written.
        """
        conf = self._stage.spark.conf
        most = int(conf.get(_PARTITIONS) or 1)
        conf.set(_PARTITIONS, str(min(full + 1, most)))

    def _unknown(self, found: DataFrame, days: Sequence[str] | None = None) -> DataFrame:
        """Return what is neither projected nor waits. Only these days of `commits` are read."""
        if days is None:
            day = F.date_format(F.timestamp_millis("committed_ms"), "yyyy-MM-dd")
            days = sorted(row["day"] for row in found.select(day.alias("day")).distinct().collect() if row["day"])
        known = self._stage.table(COMMITS.full_name).where(_within(days)).select("commit_key")
        if self._waiting is not None:
            known = known.union(self._waiting.select("commit_key"))
        return found.join(known, "commit_key", "left_anti")

    @cached_property
    def _waiting(self) -> DataFrame | None:
        """The table `waiting` before this run. None: it is empty."""
        if self._first or not self._recorded_rows(WAITING, 1):
            return None
        return self._stage.table(WAITING.full_name)

    def _recorded_rows(self, projection: Projection, default: int) -> int:
        """Return the number of rows that the metadata of a table record, without a query. It may include deleted rows.

        `default` is returned if they record none.
        """
        metadata = self._tx.plain.tables.load(projection.full_name).metadata
        current_id = metadata.get("current-snapshot-id")
        if current_id in (None, -1):
            return 0
        summaries = [one.get("summary") or {} for one in metadata["snapshots"] if one["snapshot-id"] == current_id]
        recorded = summaries[0].get("total-records") if summaries else None
        return default if recorded is None else int(recorded)

    def _waiting_receipts(self) -> DataFrame | None:
        if self._waiting is None:
            return None
        lines = self._waiting.select(F.col("receipt").alias("value"), F.lit(WAITING.full_name).alias("file"))
        return parsed(lines).localCheckpoint()

    # --- what is staged ---

    def _create(self) -> None:
        # With the catalog: Spark takes a name for a catalog's first, where there is one of that name.
        catalog = quoted((self._stage.catalog,))
        self._stage.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{NAMESPACE}")
        for projection in ALL:
            self._stage.sql(projection.creation(catalog))

    def _stage_rows(self, new: DataFrame, *, partial: bool) -> tuple[int, int]:
        """Stage the rows that follow from new receipts. Return what `current.update` returns."""
        changed = (0, 0)

        def update_current() -> None:
            nonlocal changed
            changed = current.update(self._stage, new, self._metadata)

        def add(projection: Projection, made: Callable[[DataFrame], DataFrame]) -> Callable[[], None]:
            return lambda: self._write(projection, made(new), new.select("commit_key"))

        def add_by_transaction(projection: Projection, made: Callable[[], DataFrame]) -> Callable[[], None]:
            return lambda: self._write(projection, made(), new.select("transaction_id").distinct())

        # The task that takes longest starts first.
        tasks = {TABLES.name: update_current}
        tasks |= {projection.name: add(projection, made) for projection, made in _ADDED_TO}
        if partial:
            # What is said of these transactions follows from `commits`, and from the rows that are staged here.
            self._in_parallel(tasks)
            transactions, checks = self._with_projected(new)
            tasks = {
                TRANSACTIONS.name: add_by_transaction(TRANSACTIONS, lambda: transactions),
                CHECKS.name: add_by_transaction(CHECKS, lambda: checks),
            }
        else:
            tasks |= {
                TRANSACTIONS.name: add_by_transaction(TRANSACTIONS, lambda: rows.transactions(new, TOGETHER)),
                CHECKS.name: add_by_transaction(CHECKS, lambda: rows.checks(new)),
            }
        self._in_parallel(tasks)
        return changed

    def _in_parallel(self, tasks: Mapping[str, Callable[[], None]]) -> None:
        run_in_parallel(self._stage.spark, tasks, self._on_phase)

    def _with_projected(self, new: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Return the rows of `transactions` and `checks`, where some transactions are not whole among the new receipts.

        Other receipts of theirs may have been projected before, and be deleted by now. The rows of these transactions
        are made again, and those that are there are deleted.
        """
        ids = new.where("partial AND transaction_id IS NOT NULL").select("transaction_id").distinct().localCheckpoint()
        transactions, checks = rows.transactions(new, TOGETHER), rows.checks(new)
        again = rows.transactions(self._stage.table(COMMITS.full_name).join(ids, "transaction_id", "left_semi"))
        projected = self._stage.table(CHECKS.full_name).join(ids, "transaction_id", "left_semi")
        of_partial = projected.unionByName(checks.join(ids, "transaction_id", "left_semi"))
        transactions = transactions.join(ids, "transaction_id", "left_anti").unionByName(again).localCheckpoint()
        checks = checks.join(ids, "transaction_id", "left_anti").unionByName(rows.checks_again(of_partial, again))
        checks = checks.localCheckpoint()
        if not self._full:
            ids.createOrReplaceTempView(_PARTIAL)
            where = f"transaction_id IN (SELECT transaction_id FROM {_PARTIAL})"
            for projection in (TRANSACTIONS, CHECKS):
                self._stage.delete(projection.full_name, where)
        return transactions, checks

    def _write(self, projection: Projection, made: DataFrame, keys: DataFrame) -> None:
        """Add these rows. In a full run they replace all others, except rows whose receipts are deleted."""
        if self._full and not self._first:
            kept = self._stage.table(projection.full_name).join(keys, keys.columns, "left_anti")
            self._stage.write(made.unionByName(kept.select(made.columns)), projection.full_name, "overwrite")
        else:
            self._stage.write(made, projection.full_name)

    def _keep_waiting(self, waits: DataFrame) -> None:
        kept = waits.select(
            "commit_key",
            "transaction_id",
            F.timestamp_millis("committed_ms").alias("committed_at"),
            unparsed().alias("receipt"),
        )
        self._stage.write(kept, WAITING.full_name, "overwrite")
        self._on_phase(WAITING.name)

    def _move(self, found: Projected) -> None:
        before = self._position
        moved = Position(
            through=found.through,
            read_ms=self._now_ms,
            runs=before.runs + 1,
            receipts=found.receipts + (0 if self._full else before.receipts),
        )
        self._tx.state.put(NAME, moved.to_json(), revision=self._document.revision)
        self._on_phase("position")

    def _through(self, sources: Sources) -> str | None:
        """The last day of which nothing can be missing."""
        closed = last_closed(self._now_ms)
        # A day that was packed while we read it may have been taken away under our hands: it is read again.
        torn = self._layout.packed_since([day for day in sources.unpacked if day <= closed])
        if torn:
            closed = (date.fromisoformat(min(torn)) - timedelta(days=1)).isoformat()
        return max(closed, self._position.through or "")


def _counts(receipts: DataFrame) -> Counts:
    """Count the receipts of each status, those that had waited apart, and those that are misnamed. Of those that are
    ready, also count the ones without the rest of their transaction, and the ones without a transaction id."""
    counts: Counts = Counter()
    nameless = F.col("transaction_id").isNull().alias("nameless")
    for row in receipts.groupBy("status", "waited", "partial", "misnamed", nameless).count().collect():
        counts[row["status"], row["waited"]] += row["count"]
        counts["misnamed", row["misnamed"]] += row["count"]
        if row["status"] == READY:
            counts["partial", row["partial"]] += row["count"]
            counts["nameless", row["nameless"]] += row["count"]
    return counts


def _within(days: Sequence[str]) -> Column:
    """Whether a commit is of one of these days, in a form that lets Iceberg leave out the others."""
    ranges = [(days[0], days[-1])] if len(days) > _MOST_DAYS else [(day, day) for day in days]
    at = F.col("committed_at")
    found = [
        (at >= F.lit(first).cast("timestamp"))
        & (at < F.lit((date.fromisoformat(last) + timedelta(days=1)).isoformat()).cast("timestamp"))
        for first, last in ranges
    ]
    return reduce(Column.__or__, found) if found else F.lit(False)

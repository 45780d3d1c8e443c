"""The job: receipts since the position, all projections and the position itself in one transaction.

Whatever happens to it, and whenever: nothing of it is visible, or all of it. Two of them at once read the same
position, and it can be moved from there once; the other begins again and finds what is left.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import reduce
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
from lakepact.spark.jobs.projections.position import NAME, Position
from lakepact.spark.jobs.projections.reading import Reader, parsed, unparsed
from lakepact.spark.jobs.projections.storage import Root, Storage
from lakepact.spark.jobs.projections.tables import (
    ALL,
    CHECKS,
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
}
_SHOWN: Final = 5
"""The kind of source of a receipt whose writer had no record of its transaction any more."""

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
        self._stage = tx.stage(conf=_SETTINGS)
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
        receipts = chosen(self._new(sources), self._waiting(), self._now_ms).persist()
        kept = [receipts]
        try:
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
        damaged = receipts.where(F.col("status") == DAMAGED).select("file").limit(_SHOWN).collect()
        found = Projected(
            transaction_id=self._tx.id,
            receipts=ready,
            waiting=waits,
            damaged=counts[DAMAGED, False] + sources.damaged,
            examples=tuple(row["file"] for row in damaged),
            broken=tuple(sources.broken),
            through=self._through(sources),
        )
        waiting_changed = bool(counts[WAITS, False] or counts[READY, True])
        if not self._anew and not ready and not waiting_changed:
            self._tx.abort()
            return replace(found, transaction_id=None, through=self._position.through)
        new = rows.described(receipts.where(F.col("status") == READY))
        if ready:
            self._add(new)
            self._add_by_transaction(new, partial=counts["partial", True] > 0)
            tables, unread = current.update(self._stage, new, self._metadata)
            found = replace(found, tables=tables, unread=unread)
            self._on_phase(TABLES.name)
        if waiting_changed:
            self._keep_waiting(receipts.where(F.col("status") == WAITS))
        self._move(found)
        return found

    # --- what is read ---

    def _new(self, sources: Sources) -> DataFrame:
        if self._anew:
            return self._reader.receipts(sources, None)
        read = self._reader.receipts(sources, self._position.read_ms, self._unknown).persist()
        try:
            # Not merely cached: when a table is written, Spark computes anew whatever it has cached of that table.
            return self._unknown(read).localCheckpoint()
        finally:
            read.unpersist()

    def _unknown(self, found: DataFrame) -> DataFrame:
        """What is neither projected nor waits. Only the days that it is of are looked at."""
        day = F.date_format(F.timestamp_millis("committed_ms"), "yyyy-MM-dd")
        days = sorted(row["day"] for row in found.select(day.alias("day")).distinct().collect() if row["day"])
        waiting = self._stage.table(WAITING.full_name).select("commit_key")
        known = self._stage.table(COMMITS.full_name).where(_within(days)).select("commit_key").union(waiting)
        return found.join(known, "commit_key", "left_anti")

    def _waiting(self) -> DataFrame | None:
        if self._first:
            return None
        kept = self._stage.table(WAITING.full_name)
        lines = kept.select(F.col("receipt").alias("value"), F.lit(WAITING.full_name).alias("file"))
        return parsed(lines).localCheckpoint()

    # --- what is staged ---

    def _create(self) -> None:
        # With the catalog: Spark takes a name for a catalog's first, where there is one of that name.
        catalog = quoted((self._stage.catalog,))
        self._stage.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{NAMESPACE}")
        for projection in ALL:
            self._stage.sql(projection.creation(catalog))

    def _add(self, new: DataFrame) -> None:
        for projection, made in _ADDED_TO:
            self._write(projection, made(new), new.select("commit_key"))

    def _add_by_transaction(self, new: DataFrame, *, partial: bool) -> None:
        """Rows that follow from all receipts of a transaction."""
        transactions, checks = rows.transactions(new, TOGETHER), rows.checks(new)
        if partial:
            # Some of theirs may have been projected before, and by now be collected.
            ids = new.where("partial AND transaction_id IS NOT NULL").select("transaction_id").distinct()
            ids = ids.localCheckpoint()
            theirs = self._stage.table(COMMITS.full_name).join(ids, "transaction_id", "left_semi")
            again = rows.transactions(theirs)
            told = self._stage.table(CHECKS.full_name).join(ids, "transaction_id", "left_semi")
            told = told.unionByName(checks.join(ids, "transaction_id", "left_semi"))
            transactions = transactions.join(ids, "transaction_id", "left_anti").unionByName(again).localCheckpoint()
            checks = checks.join(ids, "transaction_id", "left_anti").unionByName(rows.checks_again(told, again))
            checks = checks.localCheckpoint()
            if not self._full:
                ids.createOrReplaceTempView(_PARTIAL)
                those = f"transaction_id IN (SELECT transaction_id FROM {_PARTIAL})"
                for projection in (TRANSACTIONS, CHECKS):
                    self._stage.delete(projection.full_name, those)
        self._write(TRANSACTIONS, transactions, new.select("transaction_id").distinct())
        self._write(CHECKS, checks, new.select("transaction_id").distinct())

    def _write(self, projection: Projection, made: DataFrame, keys: DataFrame) -> None:
        """Add these rows. In a full run they take the place of all others, but for those whose receipts are gone."""
        if self._full and not self._first:
            kept = self._stage.table(projection.full_name).join(keys, keys.columns, "left_anti")
            self._stage.write(made.unionByName(kept.select(made.columns)), projection.full_name, "overwrite")
        else:
            self._stage.write(made, projection.full_name)
        self._on_phase(projection.name)

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
    """How many there are of each status, those that had waited apart. And of those that are ready: how many do without
    the rest of their transaction, and how many do not know theirs."""
    counts: Counts = Counter()
    nameless = F.col("transaction_id").isNull().alias("nameless")
    for row in receipts.groupBy("status", "waited", "partial", nameless).count().collect():
        counts[row["status"], row["waited"]] += row["count"]
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

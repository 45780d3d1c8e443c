"""What the server counts. Every label has a closed set of values: no table, no transaction, no client is one.

The methods are named for what happened. Whoever reports it does not know how it is counted; the catalog, below the
server, is given this object and knows only the methods it calls.

Several worker processes count in files in one folder (`PROMETHEUS_MULTIPROC_DIR`, set by the supervisor before
anything is imported), and any of them answers for all.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable
from functools import partial
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.multiprocess import MultiProcessCollector

from lakepact import __version__
from lakepact.server.process_metrics import ProcessMetrics, live_workers, own_process
from lakepact.server.request_counts import CountedHere, CountedInFiles, RequestCounts
from lakepact.stores import pools

FOLDER_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4.encode()
UNMATCHED: Final = "unmatched"
"""The operation of a request that no route wanted."""

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_MANY: Final = (("2-5", 5), ("6-10", 10), ("11-100", 100), ("more", math.inf))
"""Numbers of tables as values of a label, and the largest number of each."""

_LAGS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 30, 60, 300)
_ENGINES: Final = ("delta_log", "duckdb")
_UNRECOGNISED: Final = ("missing", "wrong", "expired", "limited")
_KINDS_OF_FAILURE: Final = ("error", "conflict", "dead")
_RECONCILED: Final = ("written", "late", "damaged", "unreadable", "failed")
UNFINISHED: Final = ("open", "prepared")
_POOL_FIGURES: Final = {
    "size": "Connections or threads that a pool has, by pool.",
    "busy": "Connections or threads of a pool that are in use, by pool.",
    "waiting": "Jobs that wait for a thread of a pool, by pool. Not known for connections to PostgreSQL.",
}
_TABLES: Final = (1, 2, 3, 5, 10, 20, 50, 100)


# When each series began is one more line for every line, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests: RequestCounts = (CountedInFiles if _are_several() else CountedHere)(self.registry)
        self.request_began = self._requests.began
        self.request_ended = self._requests.ended
        commits = Counter(
            "lakepact_commits",
            "Commits by outcome: applied, refused or unknown.",
            ["outcome"],
            registry=self.registry,
        )
        self._commit_tables = Histogram(
            "lakepact_commit_tables",
            "How many tables and views an applied commit changed.",
            buckets=_TABLES,
            registry=self.registry,
        )
        self._commit_retries = Counter(
            "lakepact_commit_retries",
            "Commits planned again by the server, because a table had moved and the requirements still held.",
            registry=self.registry,
        )
        together = Histogram(
            "multi_table_transaction_duration_seconds",
            "How long commits of several tables took, from their beginning to their answer, by number of tables.",
            ["tables"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._together = [(most, together.labels(name)) for name, most in _MANY]
        self._conflicts = Counter(
            "multi_table_transaction_conflicts",
            "Commits refused because a table had moved.",
            registry=self.registry,
        )
        cache = Counter(
            "lakepact_metadata_cache",
            "Metadata looked for in memory, by result: hit or miss.",
            ["result"],
            registry=self.registry,
        )
        receipts = Counter(
            "lakepact_receipts",
            "Receipts by result: written or failed. One that failed is tried again.",
            ["result"],
            registry=self.registry,
        )
        reconciled = Counter(
            "lakepact_receipts_reconciled",
            "What the reconciler met: receipts written that were missing, written late, that are damaged, or of which "
            "nothing can be read any more; and failed, what it could not look at.",
            ["result"],
            registry=self.registry,
        )
        self._reconciled = {result: reconciled.labels(result) for result in _RECONCILED}
        self._reconciled_at = Gauge(
            "lakepact_receipts_reconciled_timestamp_seconds",
            "When the reconciler came to the end of a pass, in seconds since 1970.",
            multiprocess_mode="max",
            registry=self.registry,
        )
        self._upkeep_at = Gauge(
            "lakepact_upkeep_timestamp_seconds",
            "When this server came to the end of a turn of upkeep, in seconds since 1970. Of several servers one "
            "does it.",
            multiprocess_mode="max",
            registry=self.registry,
        )
        self._certificate_ends_at = Gauge(
            "lakepact_certificate_ends_timestamp_seconds",
            "When the certificate in use, or one above it in its file, is no longer good, in seconds since 1970. 0 "
            "without TLS.",
            multiprocess_mode="livemin",
            registry=self.registry,
        )
        self._clock_difference = Gauge(
            "lakepact_clock_difference_seconds",
            "How far the clock of this server is ahead of the store's clock or of the watermark; negative if behind.",
            multiprocess_mode="livemostrecent",
            registry=self.registry,
        )
        self._clock_confirmed = Gauge(
            "lakepact_clock_confirmed",
            "1 if the clock of this server is confirmed, so that things are deleted by age; else 0.",
            multiprocess_mode="livemin",
            registry=self.registry,
        )
        self._gc_left = Gauge(
            "lakepact_gc_left",
            "Tables and files that the last pass of gc could not judge and left as they are, by warehouse; the log "
            "says which and why. 0 where another server does upkeep.",
            ["warehouse"],
            multiprocess_mode="livemax",
            registry=self.registry,
        )
        unfinished = Gauge(
            "lakepact_unfinished_transactions",
            "Transactions that are open or prepared, up to 1,000 of each, as upkeep counted them last. 0 where another "
            "server does upkeep, and on stores of documents.",
            ["state"],
            multiprocess_mode="livemax",
            registry=self.registry,
        )
        self._unfinished = {state: unfinished.labels(state) for state in UNFINISHED}
        self._projection_lag = Gauge(
            "lakepact_projection_lag_seconds",
            "The age of the oldest commit that the projections do not have, in the warehouse that is behind most, as "
            "upkeep measured it last. 0 where there are no projections, and where another server does upkeep.",
            multiprocess_mode="livemax",
            registry=self.registry,
        )
        self._store_read = Gauge(
            "lakepact_store_read_seconds",
            "How long the store took for one small read, tried when this was asked for. Infinite if it did not answer.",
            multiprocess_mode="livemostrecent",
            registry=self.registry,
        )
        self._packed = Counter(
            "lakepact_receipts_packed", "Receipts packed into the segments of their day.", registry=self.registry
        )
        self._removed = Counter(
            "lakepact_receipts_removed",
            "Files of receipts removed at the end of their retention.",
            registry=self.registry,
        )
        credentials = Counter(
            "lakepact_credentials",
            "Storage credentials asked for at a cloud, by result: made or failed. Those at hand are not counted.",
            ["result"],
            registry=self.registry,
        )
        lags = Histogram(
            "multi_table_mirror_lag_seconds",
            "How long after its commit a version could be read in a mirror, by engine.",
            ["engine"],
            buckets=_LAGS,
            registry=self.registry,
        )
        failures = Counter(
            "lakepact_mirror_failures",
            "Mirrors that failed, by engine and kind: error (tried again), conflict or dead (a person must look).",
            ["engine", "kind"],
            registry=self.registry,
        )
        self._lags = {engine: lags.labels(engine) for engine in _ENGINES}
        self._mirror_failures = {
            (engine, kind): failures.labels(engine, kind) for engine in _ENGINES for kind in _KINDS_OF_FAILURE
        }
        unrecognised = Counter(
            "lakepact_unrecognised",
            "Requests turned away unread, by reason: missing, wrong or expired (a token), or limited (too many).",
            ["reason"],
            registry=self.registry,
        )
        self._unrecognised = {reason: unrecognised.labels(reason) for reason in _UNRECOGNISED}
        self.operations_are(())
        self._applied, self._refused, self._unknown = map(commits.labels, ("applied", "refused", "unknown"))
        self._hit, self._miss = map(cache.labels, ("hit", "miss"))
        self._written, self._failed = map(receipts.labels, ("written", "failed"))
        self._made, self._not_made = map(credentials.labels, ("made", "failed"))
        self._audit_lost = Counter(
            "lakepact_audit_lost",
            "Entries of the audit trail given up because the warehouse did not take them for too long.",
            registry=self.registry,
        )
        build = Gauge(
            "lakepact_build_info",
            "1, with the version of Lakepact and of Python as labels.",
            ["version", "python"],
            multiprocess_mode="livemax",
            registry=self.registry,
        )
        build.labels(__version__, platform.python_version()).set(1)
        self._pools = {
            name: Gauge(f"lakepact_pool_{name}", meaning, ["pool"], multiprocess_mode="livesum", registry=self.registry)
            for name, meaning in _POOL_FIGURES.items()
        }
        self.pools()
        if not _are_several():
            self.registry.register(ProcessMetrics(own_process))
        self._connections = Gauge(
            "lakepact_connections",
            "HTTP connections that are open now.",
            multiprocess_mode="livesum",
            registry=self.registry,
        )
        self._connections_limited = Counter(
            "lakepact_connections_limited",
            "Times that a new connection was one too many: the longest idle one was closed, or the new one refused.",
            registry=self.registry,
        )
        self._event_loop_pause = Gauge(
            "lakepact_event_loop_longest_pause_seconds",
            "The longest time in the last one to two minutes for which the event loop of a process did not run.",
            multiprocess_mode="livemax",
            registry=self.registry,
        )
        self._log_lines_dropped = Counter(
            "lakepact_log_lines_dropped",
            "Log lines dropped because standard error could not be written or its reader was too slow.",
            registry=self.registry,
        )

    def operations_are(self, operations: Iterable[str]) -> None:
        """These are all that will ever be counted, beside `unmatched`."""
        self._requests.operations_are(sorted({*operations, UNMATCHED}))

    def commit_applied(self, tables: int) -> None:
        self._applied.inc()
        self._commit_tables.observe(tables)

    def commit_refused(self) -> None:
        self._refused.inc()

    def commit_unknown(self) -> None:
        self._unknown.inc()

    def commit_of_many(self, tables: int, milliseconds: float) -> None:
        next(histogram for most, histogram in self._together if tables <= most).observe(milliseconds / 1_000)

    def commit_conflicted(self) -> None:
        self._conflicts.inc()

    def unrecognised(self, reason: str) -> None:
        self._unrecognised[reason].inc()

    def mirror_lagged(self, engine: str, milliseconds: float) -> None:
        self._lags[engine].observe(milliseconds / 1_000)

    def mirror_failed(self, engine: str, kind: str) -> None:
        self._mirror_failures[engine, kind].inc()

    def commit_retried(self) -> None:
        self._commit_retries.inc()

    def metadata_cache_hit(self) -> None:
        self._hit.inc()

    def metadata_cache_missed(self) -> None:
        self._miss.inc()

    def receipt_written(self) -> None:
        self._written.inc()

    def receipt_failed(self) -> None:
        self._failed.inc()

    def reconciled(self, **counts: int) -> None:
        """A pass of the reconciler has come to its end, with this many of each result."""
        for result, count in counts.items():
            self._reconciled[result].inc(count)
        self._reconciled_at.set_to_current_time()

    def upkeep_ended(self) -> None:
        """A turn of upkeep has come to its end here."""
        self._upkeep_at.set_to_current_time()

    def certificate_ends(self, at_s: float) -> None:
        self._certificate_ends_at.set(at_s)

    def warehouses_are(self, warehouses: Iterable[str]) -> None:
        """Show the figures of these warehouses from the start. There will be no others."""
        for warehouse in warehouses:
            self.gc_left(warehouse, 0)

    def gc_left(self, warehouse: str, count: int) -> None:
        self._gc_left.labels(warehouse).set(count)

    def clock_judged(self, difference_ms: int, *, confirmed: bool) -> None:
        self._clock_difference.set(difference_ms / 1000)
        self._clock_confirmed.set(1 if confirmed else 0)

    def unfinished_transactions(self, **counts: int) -> None:
        """By state. What is not named is none."""
        for state, gauge in self._unfinished.items():
            gauge.set(counts.get(state, 0))

    def projection_lag(self, seconds: float) -> None:
        self._projection_lag.set(seconds)

    def store_read(self, seconds: float) -> None:
        self._store_read.set(seconds)

    def receipts_packed(self, count: int) -> None:
        self._packed.inc(count)

    def receipts_removed(self, files: int) -> None:
        self._removed.inc(files)

    def credentials_made(self) -> None:
        self._made.inc()

    def credentials_failed(self) -> None:
        self._not_made.inc()

    def audit_lost(self) -> None:
        self._audit_lost.inc()

    def pools(self) -> None:
        """Take note of how much of each pool is in use now."""
        for pool, usage in pools.usages().items():
            for name, gauge in self._pools.items():
                gauge.labels(pool).set(getattr(usage, name))

    def connections(self, count: int) -> None:
        self._connections.set(count)

    def connection_limited(self) -> None:
        self._connections_limited.inc()

    def event_loop_paused(self, longest_s: float) -> None:
        self._event_loop_pause.set(longest_s)

    def log_lines_dropped(self, lines: int) -> None:
        self._log_lines_dropped.inc(lines)

    def text(self) -> bytes:
        """Everything counted so far, by all workers, in the text format of Prometheus."""
        return generate_latest(self._everybody())

    def families(self) -> Iterable[Metric]:
        """The same as values."""
        return self._everybody().collect()

    def _everybody(self) -> CollectorRegistry:
        if not _are_several():
            return self.registry
        everybody = CollectorRegistry()
        MultiProcessCollector(everybody)  # type: ignore[no-untyped-call]
        everybody.register(ProcessMetrics(partial(live_workers, os.environ[FOLDER_VARIABLE])))
        return everybody


def _are_several() -> bool:
    """Whether there are other processes, whose counts this one tells too."""
    return FOLDER_VARIABLE in os.environ

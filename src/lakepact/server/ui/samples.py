"""The server's own numbers over the last hour, for charts: a ring of samples of what `Metrics` counts.

Several workers count in one place, so every one of them samples the numbers of all; each replica shows its own.
A sampler reads, and never counts: if nobody looks it costs one pass over some hundred numbers in ten seconds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from lakepact.kernel.ports import Clock
from lakepact.server.metrics import Metrics

EVERY_S: Final = 10.0
_KEPT: Final = 360
_LEAST_APART_S: Final = 1.0
COMMITTING: Final = frozenset({"updateTable", "commitTransaction", "publishTransaction", "commitDeltaTable"})
"""The operations whose latency is that of commits."""


@dataclass(frozen=True, slots=True)
class Sample:
    at_ms: int
    at_s: float
    applied: float = 0.0
    refused: float = 0.0
    unknown: float = 0.0
    conflicts: float = 0.0
    requests: float = 0.0
    errors: float = 0.0
    open_requests: float = 0.0
    buckets: Mapping[float, float] = field(default_factory=dict)
    """Commits that took no longer than so many seconds, since the start."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What happened between two samples."""

    at_ms: int
    commits: float
    """In a second."""

    conflicts: float
    requests: float
    median_s: float | None
    slow_s: float | None
    """19 of 20 commits were quicker."""


class Samples:
    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._ring: deque[Sample] = deque(maxlen=_KEPT)
        self._task: asyncio.Task[None] | None = None

    def take(self) -> Sample:
        """A sample of now. One that follows too closely on the last is not kept."""
        sample = sample_of(self._metrics, self._clock.now_ms(), self._clock.monotonic_s())
        if not self._ring or sample.at_s - self._ring[-1].at_s >= _LEAST_APART_S:
            self._ring.append(sample)
        return sample

    def rates(self) -> list[Rate]:
        return [rate_of(before, after) for before, after in zip(self._ring, list(self._ring)[1:], strict=False)]

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _run(self) -> None:
        while True:
            self.take()
            await self._clock.sleep(EVERY_S)


def sample_of(metrics: Metrics, at_ms: int, at_s: float) -> Sample:
    counts: dict[str, float] = {}
    buckets: dict[float, float] = {}
    for family in metrics.families():
        for one in family.samples:
            match one.name:
                case "lakepact_commits_total":
                    counts[one.labels["outcome"]] = one.value
                case "multi_table_transaction_conflicts_total":
                    counts["conflicts"] = one.value
                case "lakepact_open_requests":
                    counts["open_requests"] = one.value
                case "lakepact_requests_total":
                    counts["requests"] = counts.get("requests", 0.0) + one.value
                    if one.labels["status_class"] == "5xx":
                        counts["errors"] = counts.get("errors", 0.0) + one.value
                case "lakepact_request_seconds_bucket" if one.labels["operation"] in COMMITTING:
                    bound = float(one.labels["le"])
                    buckets[bound] = buckets.get(bound, 0.0) + one.value
    return Sample(at_ms, at_s, buckets=buckets, **counts)


def rate_of(before: Sample, after: Sample) -> Rate:
    seconds = max(after.at_s - before.at_s, 0.001)
    # A worker that was replaced takes its numbers with it: what is less than before is a new beginning.
    grown = {bound: max(count - before.buckets.get(bound, 0.0), 0.0) for bound, count in after.buckets.items()}
    return Rate(
        after.at_ms,
        max(after.applied - before.applied, 0.0) / seconds,
        max(after.conflicts - before.conflicts, 0.0) / seconds,
        max(after.requests - before.requests, 0.0) / seconds,
        quantile(grown, 0.5),
        quantile(grown, 0.95),
    )


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """About how long this share took at most, from how many took no longer than each bound. None if there are none."""
    bounds = sorted(buckets)
    if not bounds or buckets[bounds[-1]] <= 0:
        return None
    wanted = share * buckets[bounds[-1]]
    below, count_below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= wanted:
            if bound == float("inf"):
                return below
            inside = buckets[bound] - count_below
            return below + (bound - below) * ((wanted - count_below) / inside if inside else 1.0)
        below, count_below = bound, buckets[bound]
    return below


def series(rates: Sequence[Rate], value: Callable[[Rate], float | None]) -> list[tuple[int, float]]:
    return [(rate.at_ms, found) for rate in rates if (found := value(rate)) is not None]

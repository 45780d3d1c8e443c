"""How many requests there were, of what, with which outcome, and how long they took.

Every request is counted here, so counting is quick: plain numbers, which become metrics when somebody asks for them.
Several processes that answer for one another count in the files of `prometheus_client` instead.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

_REQUESTS: Final = ("lakepact_requests", "Requests answered, by operation and class of status.")
_SECONDS: Final = ("lakepact_request_seconds", "How long requests took, by operation.")
_OPEN: Final = ("lakepact_open_requests", "Requests that are being served now.")
_STATUS_CLASSES: Final = ("2xx", "3xx", "4xx", "5xx")
_BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class RequestCounts(Protocol):
    def operations_are(self, operations: Iterable[str]) -> None:
        """These are all that will ever be counted."""
        ...

    def began(self) -> None: ...

    def ended(self, operation: str, status: int, seconds: float) -> None: ...


class _Operation:
    __slots__ = ("buckets", "classes", "seconds")

    def __init__(self) -> None:
        self.classes = [0] * len(_STATUS_CLASSES)
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.seconds = 0.0


class CountedHere(Collector):
    """By the event loop of the one process there is."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = 0
        self._operations: dict[str, _Operation] = {}
        registry.register(self)

    def operations_are(self, operations: Iterable[str]) -> None:
        for name in operations:
            self._operations.setdefault(name, _Operation())

    def began(self) -> None:
        self._open += 1

    def ended(self, operation: str, status: int, seconds: float) -> None:
        self._open -= 1
        counted = self._operations[operation]
        counted.classes[status // 100 - 2] += 1
        counted.buckets[bisect_left(_BOUNDS, seconds)] += 1
        counted.seconds += seconds

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(*_REQUESTS, labels=["operation", "status_class"])
        seconds = HistogramMetricFamily(*_SECONDS, labels=["operation"])
        for name, counted in self._operations.items():
            for status_class, count in zip(_STATUS_CLASSES, counted.classes, strict=True):
                requests.add_metric([name, status_class], count)
            seconds.add_metric([name], _cumulative(counted.buckets), counted.seconds)
        yield requests
        yield seconds
        yield GaugeMetricFamily(*_OPEN, value=self._open)


class CountedInFiles:
    """For several processes, any of which may be asked for all."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._all_requests = Counter(*_REQUESTS, ["operation", "status_class"], registry=registry)
        self._all_seconds = Histogram(*_SECONDS, ["operation"], buckets=_BOUNDS, registry=registry)
        self._open = Gauge(*_OPEN, multiprocess_mode="livesum", registry=registry)
        self._requests: dict[str, list[Counter]] = {}
        self._seconds: dict[str, Histogram] = {}

    def operations_are(self, operations: Iterable[str]) -> None:
        # Children are looked up once, here: a lookup by label costs more than counting.
        for name in operations:
            self._requests[name] = [self._all_requests.labels(name, kind) for kind in _STATUS_CLASSES]
            self._seconds[name] = self._all_seconds.labels(name)

    def began(self) -> None:
        self._open.inc()

    def ended(self, operation: str, status: int, seconds: float) -> None:
        self._open.dec()
        self._requests[operation][status // 100 - 2].inc()
        self._seconds[operation].observe(seconds)


def _cumulative(buckets: list[int]) -> list[tuple[str, float]]:
    """The buckets as Prometheus wants them: how many took no longer than each bound."""
    so_far, listed = 0, []
    for bound, count in zip((*map(str, map(float, _BOUNDS)), "+Inf"), buckets, strict=True):
        so_far += count
        listed.append((bound, float(so_far)))
    return listed

"""How much of each pool of connections or threads is in use, for metrics.

A store registers its pools when it makes them. The references are weak, so that a closed store disappears by itself.
Several pools of one name, as those of several warehouses, are added up.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeVar

T = TypeVar("T")

POOLS: Final = ("postgres", "sqlite_readers", "sqlite_writer", "file_store", "file_warehouse", "threads")
"""Every name there is: they are values of a label."""


@dataclass(frozen=True, slots=True)
class PoolUsage:
    size: int = 0
    """Connections or threads that exist."""

    busy: int = 0
    waiting: int = 0
    """Jobs that wait for one. Not known for connections to PostgreSQL."""

    def __add__(self, other: PoolUsage) -> PoolUsage:
        return PoolUsage(self.size + other.size, self.busy + other.busy, self.waiting + other.waiting)


_probes: list[tuple[str, weakref.ref[Any], Callable[[Any], PoolUsage]]] = []


def register(name: str, pool: T, usage: Callable[[T], PoolUsage]) -> None:
    """Measure `pool` under this name, one of `POOLS`, for as long as it exists."""
    assert name in POOLS, name
    _probes[:] = [probe for probe in _probes if probe[1]() is not None]
    _probes.append((name, weakref.ref(pool), usage))


def register_threads(name: str, threads: ThreadPoolExecutor) -> None:
    register(name, threads, thread_usage)


def usages() -> dict[str, PoolUsage]:
    """The usage of every pool now; zeros for those that this process does not have."""
    totals = dict.fromkeys(POOLS, PoolUsage())
    for name, reference, usage in _probes:
        pool = reference()
        if pool is not None:
            totals[name] += usage(pool)
    return totals


def thread_usage(threads: ThreadPoolExecutor) -> PoolUsage:
    # The standard library has no public way to ask. Threads that are idle have released this semaphore.
    size = len(threads._threads)
    waiting = threads._work_queue.qsize()
    return PoolUsage(size, max(0, size - threads._idle_semaphore._value), waiting)

"""CPU, memory and open files of the server's processes, under the names that Prometheus clients use everywhere.

`prometheus_client` has such a collector for the process that is asked. Here several worker processes answer for one
another, so the figures of all of them are added up. They are read from `/proc`; elsewhere there are none.
"""

from __future__ import annotations

import os
import re
import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

_PROC: Final = Path("/proc")
_LIVE_FILE: Final = re.compile(r"gauge_live[a-z]+_(\d+)\.db")


def own_process() -> list[int]:
    return [os.getpid()]


def live_workers(folder: str) -> list[int]:
    """The processes that count in this folder. The supervisor removes the files of those that are dead."""
    try:
        names = os.listdir(folder)
    except OSError:
        return own_process()
    return sorted({int(match[1]) for match in map(_LIVE_FILE.fullmatch, names) if match})


class ProcessMetrics(Collector):
    def __init__(self, processes: Callable[[], Iterable[int]]) -> None:
        self._processes = processes
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._page = os.sysconf("SC_PAGE_SIZE")

    def collect(self) -> Iterator[Metric]:
        cpu_s = resident = started_s = 0.0
        files = 0
        booted_s = _booted_s()
        for pid in self._processes():
            try:
                # The name of the program is in parentheses, and may have spaces.
                fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
                files += len(os.listdir(_PROC / str(pid) / "fd"))
            except OSError:
                continue
            cpu_s += (int(fields[11]) + int(fields[12])) / self._ticks
            resident += int(fields[21]) * self._page
            begun_s = booted_s + int(fields[19]) / self._ticks
            started_s = begun_s if started_s == 0 else min(started_s, begun_s)
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        yield CounterMetricFamily(
            "process_cpu_seconds", "CPU time that the processes of this server have used.", value=cpu_s
        )
        yield GaugeMetricFamily(
            "process_resident_memory_bytes", "Memory of the processes of this server.", value=resident
        )
        yield GaugeMetricFamily("process_open_fds", "Files that the processes of this server have open.", value=files)
        yield GaugeMetricFamily("process_max_fds", "Files that one process may have open.", value=limit)
        yield GaugeMetricFamily(
            "process_start_time_seconds",
            "When the oldest process of this server started, in seconds since 1970.",
            value=started_s,
        )


def _booted_s() -> float:
    try:
        boot = re.search(r"^btime (\d+)", (_PROC / "stat").read_text(), re.MULTILINE)
    except OSError:
        return 0.0
    return float(boot[1]) if boot else 0.0

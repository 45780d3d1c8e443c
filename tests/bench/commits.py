"""Single-table commits a second, against PyIceberg's SQL catalog doing the same metadata-only commits on SQLite.

They take turns, since a shared machine is not always as quick, and no folder is removed in between: for minutes after
many files were deleted ext4 is slow to create new ones.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from tests.bench.load import load
from tests.bench.report import against, table
from tests.bench.rest import CLIENTS, Lake, property_commit
from tests.support.server import running_server

TURNS = 5
SECONDS = 2.0
WORKERS = 2


async def run() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakepact-bench-")))
        theirs = _PyIceberg(folder / "pyiceberg")
        one = _Lakepact(stack.enter_context(running_server(folder / "one")).url)
        workers = ("--workers", str(WORKERS))
        several = _Lakepact(stack.enter_context(running_server(folder / "several", *workers)).url)
        rows = [
            _row("one client", 1, 2.0, theirs, one),
            _row(f"{CLIENTS} clients", CLIENTS, 4.0, theirs, one),
            _row(f"{CLIENTS} clients, --workers {WORKERS}", CLIENTS, 4.0, theirs, several),
        ]
    table(
        f"single-table commits a second (SQLite), against PyIceberg's SQL catalog on SQLite; {TURNS} turns",
        ("metadata-only, distinct tables", "PyIceberg/s", "Lakepact/s", "ratios", "median"),
        rows,
    )


def _row(title: str, clients: int, aim: float, theirs: _PyIceberg, ours: _Lakepact) -> tuple[str, ...]:
    turns = [(theirs.commits_a_second(clients), ours.commits_a_second(clients)) for _ in range(TURNS)]
    ratios = sorted(mine / other for other, mine in turns)
    ratio = statistics.median(ratios)
    return (
        title,
        f"{statistics.median(other for other, _ in turns):.0f}",
        f"{statistics.median(mine for _, mine in turns):.0f}",
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        against(ratio, f"{aim:g}", met=ratio >= aim),
    )


class _Lakepact:
    def __init__(self, url: str) -> None:
        self._lake = Lake(url)
        self._lake.send("POST", "/v1/main/namespaces", {"namespace": ["bench"]})
        for number in range(CLIENTS):
            self._lake.table(f"t{number}")

    def commits_a_second(self, clients: int) -> float:
        jobs = [property_commit(f"/v1/main/namespaces/bench/tables/t{number}") for number in range(clients)]
        return load(self._lake.url, jobs, SECONDS).per_second


class _PyIceberg:
    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
        catalog.create_namespace("bench")
        schema = Schema(*(NestedField(n, f"c{n}", LongType(), required=False) for n in range(1, 51)))
        self._tables = [catalog.create_table(f"bench.t{number}", schema) for number in range(CLIENTS)]

    def commits_a_second(self, clients: int) -> float:
        counts = [0] * clients
        until = time.perf_counter() + SECONDS

        def work(number: int) -> None:
            while time.perf_counter() < until:
                with self._tables[number].transaction() as change:
                    change.set_properties(counter=str(counts[number]))
                counts[number] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.perf_counter() - began)

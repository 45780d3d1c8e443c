"""Projections: receipts a second, from packed days and from loose files; what a run over new receipts costs, against a
full run, and as history grows.

The receipts are of commits that never were, over 200 tables and 30 days, one to three tables a transaction, about half
of them with lineage and checks. Two cores, one warm JVM, a server on SQLite. `--receipts` says how many. The start of
Spark is in no figure.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
from pyspark.sql import SparkSession

import lakepact.spark as lp
from lakepact.spark.jobs.projections import Projected, project
from tests.bench.report import against, say, table
from tests.bench.spark import two_cores
from tests.support.receipts import DAY_MS, History, Json, Shelf, day_of
from tests.support.server import running_server
from tests.support.spark import WAREHOUSE, path_of

DAYS = 30
TABLES = 200
NEW = 200
TURNS = 5
RECENT = 400
RECENT_TURNS = 3
AIM_OF_FULL = 0.2
AIM_A_SECOND = 5_000


class Sizes:
    receipts = 1_000_000
    """How many there are in the large history. The small one has a hundredth of it."""

    loose = 20_000
    """As many are read from a file each: a day's worth for a busy lake."""


class World:
    """A warehouse with a history, and its projections."""

    def __init__(self, spark: SparkSession, uri: str, folder: Path) -> None:
        self.lake = lp.connect(spark, uri=uri, warehouse=WAREHOUSE)
        self.shelf = Shelf(path_of(self.lake.plain.location or ""))
        self.history = History(folder / "tables", tables=TABLES, with_metadata=False)
        self._begins_ms = time.time_ns() // 1_000_000 - (DAYS + 2) * DAY_MS

    def pack(self, receipts: int) -> None:
        """A history of packed days."""
        days: dict[str, list[bytes]] = defaultdict(list)
        for receipt in self._made(receipts):
            days[day_of(receipt["committed-ms"])].append(orjson.dumps(receipt))
        for day, lines in days.items():
            self.shelf.write_segments(day, {"iceberg": lines})
        self.history.write_newest_metadata()

    def put(self, receipts: int) -> None:
        self.shelf.put(self._made(receipts))
        self.history.write_newest_metadata()

    def put_new(self, receipts: int = NEW) -> None:
        """Receipts of the last second, as loose files."""
        now_ms = time.time_ns() // 1_000_000
        for number in range(receipts // 2):
            self.shelf.put(self.history.transaction(now_ms - 1_000 + number % 1_000, 2, pipeline=number % 2 == 0))
        self.history.write_newest_metadata()

    def _made(self, receipts: int) -> Iterator[Json]:
        made = 0
        while made < receipts:
            at_ms = self._begins_ms + made * (DAYS * DAY_MS) // receipts
            some = self.history.transaction(at_ms, min(1 + made % 3, receipts - made), pipeline=made % 2 == 0)
            made += len(some)
            yield from some


async def run() -> None:
    say(f"load of the machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    small = max(1_000, Sizes.receipts // 100)
    with tempfile.TemporaryDirectory(prefix="lakepact-bench-") as name:
        folder = Path(name)
        with running_server(folder / "first") as first, two_cores(first.url) as spark:
            memory = spark.conf.get("spark.driver.memory")
            with _world(spark, folder / "warm") as world:
                world.pack(1_000)
                project(world.lake)
            rows = []
            with _world(spark, folder / "loose") as world:
                world.put(Sizes.loose)
                rows.append(_speed(f"{Sizes.loose:,} from loose files", project(world.lake), None))
            with _world(spark, folder / "recent") as world:
                _recent(world)
            with _world(spark, folder / "small") as world, _world(spark, folder / "large") as large:
                world.pack(small)
                rows.append(_speed(f"{small:,} from packed days", project(world.lake), None))
                began = time.perf_counter()
                large.pack(Sizes.receipts)
                say(f"{Sizes.receipts:,} receipts made and packed in {time.perf_counter() - began:.0f} s")
                rows.append(_speed(f"{Sizes.receipts:,} from packed days", project(large.lake), AIM_A_SECOND))
                table(
                    f"receipts projected (two cores, a heap of {memory}; the JVM took {_resident_mb(spark)} MB)",
                    ("first run", "s", "receipts a second"),
                    rows,
                )
                _growth(world, large, small)


def _recent(world: World) -> None:
    """All receipts are loose files of the last hour: those that a run lists again, to find the ones that came late."""
    world.put_new(Sizes.loose)
    first = project(world.lake)
    taken = []
    for _ in range(RECENT_TURNS):
        world.put_new(RECENT)
        done = project(world.lake)
        assert done.receipts == RECENT
        taken.append(done.seconds)
    full = project(world.lake, full=True)
    assert full.receipts == Sizes.loose + RECENT_TURNS * RECENT
    least = min(taken)
    ratio = least / full.seconds
    table(
        f"a run over {RECENT} new receipts after {Sizes.loose:,} of the last hour, least of {RECENT_TURNS} turns",
        ("first run, s", "new receipts, s", "full run, s", "ratio of new to full"),
        [
            (
                f"{first.seconds:.1f}",
                f"{least:.1f}",
                f"{full.seconds:.1f}",
                against(ratio, f"{AIM_OF_FULL}", met=ratio <= AIM_OF_FULL),
            )
        ],
    )


def _growth(small: World, large: World, receipts: int) -> None:
    taken: dict[bool, list[float]] = {True: [], False: []}
    for _ in range(TURNS):
        for is_large, world in ((False, small), (True, large)):
            world.put_new()
            done = project(world.lake)
            assert done.receipts == NEW
            taken[is_large].append(done.seconds)
    least = {is_large: min(seconds) for is_large, seconds in taken.items()}
    ratio = least[True] / least[False]
    table(
        f"a run over {NEW} new receipts, least of {TURNS} turns",
        (f"after {receipts:,}, s", f"after {Sizes.receipts:,}, s", "ratio"),
        [(f"{least[False]:.2f}", f"{least[True]:.2f}", against(ratio, "1.25", met=ratio <= 1.25))],
    )


def _speed(what: str, done: Projected, aim: int | None) -> tuple[object, ...]:
    a_second = done.receipts / done.seconds
    shown = f"{a_second:,.0f}"
    if aim is not None:
        shown += f" ({'meets' if a_second >= aim else 'MISSES'} {aim:,})"
    return (what, f"{done.seconds:.1f}", shown)


@contextmanager
def _world(spark: SparkSession, folder: Path) -> Iterator[World]:
    with running_server(folder) as server:
        yield World(spark, server.url, folder)


def _resident_mb(spark: SparkSession) -> int:
    """The most memory that the JVM ever had."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0
    [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) // 1024

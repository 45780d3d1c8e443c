"""The story of the demo, step by step, and what it came to.

Nothing in it is staged: the server is a process, the pipeline runs on Spark, the reader outside is PyIceberg, and the
kill is SIGKILL. What is printed is what was seen.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

import lakepact.spark as lp
from lakepact import pipelines as dp
from lakepact.demo.shop import rows
from lakepact.demo.shop.server import DemoServer
from lakepact.demo.shop.watcher import Seen, Watcher
from lakepact.errors import LakepactError

_INTO_THE_COMMIT_S = 0.01
"""A commit of five tables takes some tens of milliseconds: the kill comes in the middle of it, or close to it."""

_SMALL_AND_ONCE: Final = {
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "OFF",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""For jobs that are small and run once: to compile them would take longer than they do."""


@dataclass(slots=True)
class Report:
    """What the demo came to."""

    looks: int = 0
    torn: list[str] = field(default_factory=list)
    states: int = 0
    kills: int = 0
    refused_runs: int = 0
    published_runs: int = 0
    attempts_after_the_kill: int = 0
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        return not self.torn and self.looks > 0 and self.published_runs == 2 and self.refused_runs == 1


class Story:
    def __init__(self, screen: Console, folder: Path) -> None:
        self._screen = screen
        self._folder = folder
        self._report = Report()
        self._pipeline = Path(str(files("lakepact.demo.shop") / "pipeline.py"))

    def tell(self) -> Report:
        began = time.monotonic()
        self._say("[bold]A shop whose tables never disagree[/bold]\n")
        with DemoServer(self._folder) as server:
            self._step("A server on SQLite and a folder", server.uri)
            spark = self._spark(server.uri)
            self._step("Spark", f"{spark.version}, with the stock Iceberg runtime")
            lake = lp.connect(spark)
            watcher = Watcher(server.uri)
            watcher.start()
            self._fill(lake, spark)
            self._fail(lake)
            self._publish(lake)
            self._kill(lake, server)
            seen = watcher.stop()
            self._timeline(lake)
            self._report.kills = server.kills
        self._report.seconds = time.monotonic() - began
        self._end(seen)
        return self._report

    # --- the steps ---

    def _spark(self, uri: str) -> SparkSession:
        logging.getLogger("py4j").setLevel(logging.ERROR)
        starting = "Spark starts; the first time it fetches its Iceberg and Delta runtimes"
        # The JVM takes its standard error from ours when it starts, and has much to say there.
        with self._screen.status(starting), _standard_error_to(self._folder / "spark.log"):
            spark = lp.session(
                "local[2]",
                uri=uri,
                app_name="lakepact demo",
                **_SMALL_AND_ONCE,
                **{"spark.sql.warehouse.dir": str(self._folder / "spark")},
            )
        spark.sparkContext.setLogLevel("OFF")
        return spark

    def _fill(self, lake: lp.SparkLake, spark: SparkSession) -> None:
        lake.plain.namespaces.create("shop", exist_ok=True)
        with self._screen.status("Raw tables are written"), lake.transaction() as tx:
            tx.write(rows.customers(spark), "shop.raw_customers", mode="create")
            tx.write(rows.products(spark), "shop.raw_products", mode="create")
            tx.write(rows.orders(spark, 1, 5_000, wrong=3), "shop.raw_orders", mode="create")
        self._step("Raw data in one transaction", "3 tables, 5,000 orders, 3 of them wrong")

    def _fail(self, lake: lp.SparkLake) -> None:
        """The first run meets the wrong rows."""
        with self._screen.status("The pipeline runs, and an expectation fails"):
            try:
                dp.run(self._pipeline, lake, run_id="morning")
            except dp.CheckFailed as failed:
                self._report.refused_runs += 1
                broken = next((check for check in failed.results if not check.holds), None)
                why = f"{broken.table}: {broken.name}; {broken.violations} rows do not" if broken else str(failed)
                self._step("A run that must not be published", why)
        there = lake.plain.tables.exists("shop.orders")
        self._step("What others see of it", "all of it!" if there else "nothing: not one of its five tables exists")

    def _publish(self, lake: lp.SparkLake) -> None:
        lake.sql("DELETE FROM shop.raw_orders WHERE quantity < 0")
        with self._screen.status("The wrong rows are removed, and the pipeline runs again"):
            result = dp.run(self._pipeline, lake, run_id="noon")
        self._report.published_runs += 1
        self._step("The same run on clean data", f"5 tables published at one instant, {result.seconds:.1f} s")
        self._screen.print(_summary(result))

    def _kill(self, lake: lp.SparkLake, server: DemoServer) -> None:
        """New orders, and a server that is killed while their run is being committed."""
        lake_rows = rows.orders(lake.spark, 5_001, 2_000)
        with lake.transaction() as tx:
            tx.write(lake_rows, "shop.raw_orders")
        for attempt in range(1, 6):
            killer = _Killer(server, armed=server.kills == 0)
            try:
                with self._screen.status("New orders; the server is killed while their run is committed"):
                    dp.run(self._pipeline, lake, run_id="evening", on_event=killer.told)
            except LakepactError as error:
                self._step("The run was cut short", f"{type(error).__name__}: the same run id goes again")
                continue
            finally:
                killer.join()
            self._report.published_runs += 1
            self._report.attempts_after_the_kill = attempt
            self._step("Killed with SIGKILL, started again", "run 'evening' is committed, once")
            return

    # --- what came of it ---

    def _timeline(self, lake: lp.SparkLake) -> None:
        metadata: dict[str, Any] = dict(lake.plain.tables.load("shop.daily").metadata)
        snapshots = {one["snapshot-id"]: one for one in metadata["snapshots"]}
        shown = Table(title="The history of shop.daily", title_justify="left", title_style="bold")
        for column in ("published at", "run", "transaction", "rows"):
            shown.add_column(column)
        for entry in metadata["snapshot-log"]:
            summary = snapshots[entry["snapshot-id"]]["summary"]
            at = datetime.fromtimestamp(entry["timestamp-ms"] / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
            shown.add_row(
                at,
                summary.get("lakepact.run-id", "?"),
                summary.get("lakepact.transaction-id", "?"),
                summary.get("total-records", "?"),
            )
        self._screen.print(shown)

    def _end(self, seen: Seen) -> None:
        report = self._report
        report.looks, report.torn, report.states = seen.looks, seen.torn, len(seen.states)
        self._say(
            f"\nA reader outside looked {seen.looks + seen.empty:,} times with PyIceberg: {seen.empty:,} times before "
            f"anything was published, {seen.looks:,} times at one of {len(seen.states)} states of the shop. "
            f"{seen.unanswered:,} looks met a server that was down."
        )
        for state in seen.states:
            self._say(f"  orders, daily and features agreed on a revenue of {state:,}")
        if report.holds:
            self._say(f"\n[bold green]It never saw half of a run.[/bold green] ({report.seconds:.0f} s)")
        else:
            self._say(f"\n[bold red]Something is wrong:[/bold red] {report.torn or report}")
        self._say(
            "\nGo on: [bold]make serve[/bold], then docs/transactions.md for any engine, docs/spark.md and "
            f"docs/pipelines.md for Spark. The shop's pipeline is a file to copy:\n  {self._pipeline}"
        )

    def _step(self, what: str, result: str) -> None:
        self._screen.print(f"[green]●[/green] {what:<38} [dim]{result}[/dim]", highlight=False)

    def _say(self, text: str) -> None:
        self._screen.print(text, highlight=False)


@contextmanager
def _standard_error_to(path: Path) -> Iterator[None]:
    kept = os.dup(2)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(log)


class _Killer:
    """Kills the server while the run is committed, and starts it again."""

    def __init__(self, server: DemoServer, *, armed: bool) -> None:
        self._server = server
        self._armed = armed
        self._thread: threading.Thread | None = None

    def told(self, _name: str, what: str, _result: object) -> None:
        if self._armed and what == "committing":
            self._armed = False
            self._thread = threading.Thread(target=self._act)
            self._thread.start()

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _act(self) -> None:
        time.sleep(_INTO_THE_COMMIT_S)
        self._server.kill()
        time.sleep(0.5)
        self._server.start()


def _summary(result: dp.RunResult) -> Table:
    shown = Table(show_edge=False, pad_edge=False)
    for column in ("table", "rows", "files", "checks"):
        shown.add_column(column, justify="left" if column == "table" else "right")
    for stage in result.stages:
        passed = sum(check.holds for check in result.checks if check.table == stage.name)
        shown.add_row(stage.name, f"{stage.figures.rows:,}", f"{stage.figures.files:,}", str(passed))
    return shown


def tell(screen: Console) -> Report:
    with tempfile.TemporaryDirectory(prefix="lakepact-demo-") as folder:
        return Story(screen, Path(folder)).tell()

"""Whatever is killed, and whenever: nothing of a run is visible or all of it, and the same run id is committed once."""

# Fixtures that come from a module beside look to ruff like names that are taken twice.
# ruff: noqa: F811

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakepact import pipelines as dp
from lakepact import spark as lp
from lakepact.client import Unavailable, Unknown, outages
from lakepact.pipelines.results import State
from lakepact.spark import SparkLake
from tests.interop.pipelines import name, raw, rows, shared  # noqa: F401
from tests.support import jars
from tests.support.quick_spark import as_options, quick_settings, without_spark
from tests.support.server import Server, running_server
from tests.support.spark import WAREHOUSE, Lake, path_of
from tests.support.tcp_proxy import CuttingProxy
from tests.support.waiting import PATIENCE_S

DRIVER_TIMEOUT_S = 900

FILE = """
import os
import signal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakepact import pipelines as dp

dp.pipeline(namespace=dp.param("db"))
dies = dp.param("dies", "never")


def die(when: str) -> None:
    if dies == when:
        # Python and its JVM, at one blow.
        os.killpg(os.getpgrp(), signal.SIGKILL)


@dp.table
def copies(raw_customers: DataFrame) -> DataFrame:
    return raw_customers


@dp.table
def counted(copies: DataFrame) -> DataFrame:
    die("once a stage is staged")
    return copies.agg(F.count("*").alias("n"))


@dp.check("counted")
def agree(counted: DataFrame, copies: DataFrame) -> bool:
    die("during the checks")
    return counted.collect()[0][0] == copies.count()
"""


@dataclass(frozen=True, slots=True)
class Phase:
    request: str | None = None
    """Upon which the driver is killed. None: it kills itself, in a function of the pipeline."""

    answered: bool = False
    """Whether the server has done what was asked when it happens."""

    begun: bool = True
    staged: bool = True
    committed: bool = False


BEGIN, COMMIT = "POST /v1/main/transactions HTTP", "/commit HTTP"
PHASES = {
    "before it begins": Phase(BEGIN, begun=False, staged=False),
    "once a stage is staged": Phase(),
    "during the checks": Phase(),
    "before the commit arrives": Phase(COMMIT),
    "after the commit and before its answer": Phase(COMMIT, answered=True, committed=True),
}


@pytest.fixture(autouse=True)
def wait_for_slow_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a job wait for the server as long as the start of a server may take here."""
    monkeypatch.setattr(outages, "LONGEST_S", PATIENCE_S)


@pytest.fixture
def proxy(lake: Lake) -> Iterator[CuttingProxy]:
    made = CuttingProxy(lake.server.url)
    yield made
    made.close()


@contextmanager
def driver(file: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver in a process group of its own, which does not outlive the block."""
    folder = jars.resolve(jars.SPARK_ICEBERG)[0].parent
    command = [sys.executable, "-m", "lakepact", "run", str(file), "--master", "local[1]", "--jars", str(folder)]
    with (file.parent / "driver.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options, *as_options(quick_settings(file.parent))],
            cwd=file.parent,
            env=without_spark(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill(process)
        process.wait(DRIVER_TIMEOUT_S)


def kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("when", PHASES)
def test_a_driver_killed_at_any_moment_leaves_nothing_or_everything_and_its_run_is_committed_once(
    lake: Lake, shared: SparkLake, raw: str, name: str, proxy: CuttingProxy, tmp_path: Path, when: str
) -> None:
    phase, file, run_id = PHASES[when], tmp_path / f"{name}.py", f"{name}-run"
    file.write_text(FILE)
    options = ["--uri", proxy.url, "--param", f"db={raw}", "--param", f"dies={when}", "--run-id", run_id]
    with driver(file, *options) as process:
        proxy.after_answer, proxy.cut = phase.answered, lambda: kill(process)
        proxy.met = phase.request
        code = process.wait(DRIVER_TIMEOUT_S)
    assert code == -signal.SIGKILL, (tmp_path / "driver.log").read_text()
    assert proxy.cuts == (phase.request is not None)

    # Everything or nothing is visible; what was begun and not committed is open still, and in nobody's way.
    made = ["copies", "counted"]
    assert sorted(lake.tables(raw)) == [*(made if phase.committed else []), "raw_customers", "raw_orders"]
    left = [one for one in shared.plain.transactions.list("open") if one.properties.get("run-id") == run_id]
    assert len(left) == (phase.begun and not phase.committed)

    result = dp.run(file, shared, params={"db": raw}, run_id=run_id)
    assert result.state is (State.ALREADY_COMMITTED if phase.committed else State.COMMITTED)
    assert rows(lake, f"{raw}.copies") == [(10, "Ann"), (11, "Bob")]
    assert rows(lake, f"{raw}.counted") == [(2,)]
    for table in made:
        summaries = [one["summary"] for one in lake.metadata(f"{raw}.{table}")["snapshots"]]
        assert [one["lakepact.transaction-id"] for one in summaries] == [result.transaction_id]

    # Files of the killed attempt belong to no table; none that belongs to one is missing.
    lake.scan_everything()
    assert bool(unreferenced(lake, raw)) == (phase.staged and not phase.committed)
    for one in left:
        shared.plain.transactions.abort(one.id)


def unreferenced(lake: Lake, db: str) -> set[Path]:
    """Data files of a namespace that no snapshot of any of its tables knows."""
    known = {
        path_of(file)
        for table in lake.tables(db)
        for (file,) in lake.sql(f"SELECT file_path FROM other.{db}.{table}.all_files")
    }
    # Tables lie beside one another in a folder of their namespace, those that were never published as well.
    folder = path_of(lake.metadata(f"{db}.raw_customers")["location"]).parent
    found = set(folder.rglob("*.parquet"))
    assert known <= found
    return found - known


def test_a_server_killed_during_a_commit_comes_back_and_every_run_is_committed_once(
    lake: Lake, name: str, tmp_path: Path
) -> None:
    # Before the request is there, some milliseconds into it, and before its answer is there.
    moments: list[str | float] = ["before", 0.005, 0.015, "after"]
    proxy = CuttingProxy("http://127.0.0.1:1")
    with ExitStack() as servers:
        running: list[Server] = []

        def start() -> None:
            running.append(servers.enter_context(running_server(tmp_path / "server")))
            proxy.upstream = running[-1].url

        def crash() -> None:
            running[-1].process.kill()
            running[-1].process.wait(PATIENCE_S)
            start()

        start()
        servers.callback(proxy.close)
        pact = lp.connect(lake.spark, uri=proxy.url, warehouse=WAREHOUSE)
        db = "killed"
        with dp.Pipeline(name, namespace=db) as pipeline:
            for table in ("one", "other"):
                dp.table(name=table)(three_rows)
        for number, moment in enumerate(moments):
            timer = threading.Timer(moment if isinstance(moment, float) else 0.0, crash)

            def told(
                stage: str, what: str, result: object, moment: str | float = moment, timer: threading.Timer = timer
            ) -> None:
                if what != "committing":
                    return
                if isinstance(moment, float):
                    timer.start()
                else:
                    proxy.after_answer, proxy.cut, proxy.met = moment == "after", crash, COMMIT

            result = settled(pipeline, pact, f"run-{number}", told)
            if timer.ident is not None:
                timer.join(PATIENCE_S)
            again = dp.run(pipeline, pact, run_id=f"run-{number}")
            assert again.state is State.ALREADY_COMMITTED
            assert again.transaction_id == result.transaction_id
            for table in ("one", "other"):
                assert pact.table(f"{db}.{table}").count() == 3 * (number + 1)
        assert len(running) == 1 + len(moments)


@contextmanager
def restarting_server(folder: Path) -> Iterator[tuple[CuttingProxy, list[Server], Callable[[], None]]]:
    """A server behind a proxy, all servers that were started, and what kills the server and starts another one.

    The server is away for as long as its successor takes to start.
    """
    proxy = CuttingProxy("http://127.0.0.1:1")
    with ExitStack() as servers:
        running: list[Server] = []

        def start() -> None:
            running.append(servers.enter_context(running_server(folder / "server")))
            proxy.upstream = running[-1].url

        def crash() -> None:
            running[-1].process.kill()
            running[-1].process.wait(PATIENCE_S)
            threading.Thread(target=start).start()

        start()
        servers.callback(proxy.close)
        yield proxy, running, crash


@pytest.mark.parametrize("when", ["while a stage computes", "while a stage writes", "while a stage reads"])
def test_a_run_survives_a_restart_of_the_server(lake: Lake, name: str, tmp_path: Path, when: str) -> None:
    with restarting_server(tmp_path) as (proxy, running, crash):
        pact = lp.connect(lake.spark, uri=proxy.url, warehouse=WAREHOUSE)
        calls: list[str] = []
        with dp.Pipeline(name, namespace="restarted") as pipeline:
            dp.table(name="first")(three_rows)

            @dp.table
            def second(spark: SparkSession, first: DataFrame) -> DataFrame:
                calls.append("second")
                if len(calls) == 1 and when == "while a stage computes":
                    crash()
                    # A read through Spark's own client, which gives up at once.
                    return spark.table("restarted.first").select("n")
                if len(calls) == 1:
                    proxy.after_answer, proxy.cut = False, crash
                    proxy.met = "POST /v1/main@" if when == "while a stage writes" else "/tables/first"
                    if when == "while a stage reads":
                        return spark.table("restarted.first").select("n")
                return first.select("n")

        result = dp.run(pipeline, pact)
        assert result.state is State.COMMITTED and len(running) == 2
        for table in ("first", "second"):
            assert sorted(row.n for row in pact.table(f"restarted.{table}").collect()) == [0, 1, 2]


@pytest.mark.parametrize("when", ["while it writes", "before the commit arrives", "after the commit"])
def test_a_transaction_of_lake_run_survives_a_restart_of_the_server(lake: Lake, tmp_path: Path, when: str) -> None:
    with restarting_server(tmp_path) as (proxy, running, crash):
        pact = lp.connect(lake.spark, uri=proxy.url, warehouse=WAREHOUSE)
        pact.plain.namespaces.create("restarted")
        calls: list[str] = []

        def work(tx: lp.SparkTransaction) -> int:
            calls.append(tx.id)
            tx.write(three_rows(tx.spark), "restarted.first", "create")
            if len(calls) == 1:
                proxy.after_answer, proxy.cut = when == "after the commit", crash
                proxy.met = "POST /v1/main@" if when == "while it writes" else COMMIT
            tx.write(tx.table("restarted.first"), "restarted.second", "create")
            return len(calls)

        assert pact.run(work) == len(calls)
        assert len(running) == 2 and proxy.cuts == 1
        # What may have been committed is not done again.
        assert len(calls) == (2 if when == "while it writes" else 1)
        for table in ("first", "second"):
            assert sorted(row.n for row in pact.table(f"restarted.{table}").collect()) == [0, 1, 2]


def three_rows(spark: SparkSession) -> DataFrame:
    return spark.range(3).toDF("n")


def settled(pipeline: dp.Pipeline, pact: SparkLake, run_id: str, told: object) -> dp.RunResult:
    """The run, by whoever asks until the server answers again."""
    for _ in range(5):
        with suppress(Unavailable, Unknown):
            return dp.run(pipeline, pact, run_id=run_id, on_event=told)  # type: ignore[arg-type]
        told = None
    raise AssertionError(f"{run_id} was not settled")


def test_two_pipelines_at_once_on_overlapping_tables_are_both_applied_once(
    lake: Lake, shared: SparkLake, db: str, name: str
) -> None:
    lake.sql(f"CREATE TABLE {db}.both (who STRING, n BIGINT)")
    meeting = threading.Barrier(2, timeout=PATIENCE_S)

    def pipeline(who: str) -> dp.Pipeline:
        tries: list[int] = []
        with dp.Pipeline(f"{name}-{who}", namespace=db) as made:

            @dp.table
            def both(spark: SparkSession) -> DataFrame:
                tries.append(1)
                return spark.range(3).select(F.lit(who).alias("who"), F.col("id").alias("n"))

            @dp.table(name=f"only_{who}")
            def only(both: DataFrame) -> DataFrame:
                return both.where(F.col("who") == who)

            @dp.materialized_view
            def summary(both: DataFrame) -> DataFrame:
                if len(tries) == 1:
                    # Nobody commits before both have staged.
                    meeting.wait()
                return both.groupBy("who").agg(F.count("*").alias("n"))

        return made

    with ThreadPoolExecutor(2) as threads:
        results = list(threads.map(lambda who: dp.run(pipeline(who), shared), ("ann", "bob")))
    assert [one.state for one in results] == [State.COMMITTED] * 2
    assert sorted(one.attempts for one in results) == [1, 2]
    assert rows(lake, f"{db}.both") == [(who, n) for who in ("ann", "bob") for n in range(3)]
    assert rows(lake, f"{db}.only_ann") == [("ann", n) for n in range(3)]
    assert rows(lake, f"{db}.only_bob") == [("bob", n) for n in range(3)]
    # The one that came second has seen the first.
    assert rows(lake, f"{db}.summary") == [("ann", 3), ("bob", 3)]

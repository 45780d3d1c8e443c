"""Projections: whatever becomes of receipts on their way, and of the job, the tables are those of one clean run.

Most of it goes by receipts of commits that never were, so that they can be lost, found, doubled and damaged at will.
What the tables say of real commits is compared with what PyIceberg sees.

One file, as all of it needs one Spark and one long past of receipts.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from lakepact import pipelines as dp
from lakepact import spark as lp
from lakepact.catalog.receipts import commit_key
from lakepact.spark import SparkLake
from lakepact.spark.jobs.projections import Projected, project, reading, rows
from lakepact.spark.jobs.projections.choosing import chosen, without_settled
from lakepact.spark.jobs.projections.position import NAME
from lakepact.spark.jobs.projections.tables import ALL
from tests.support import jars
from tests.support.quick_spark import as_options, quick_settings, without_spark
from tests.support.receipts import DAY_MS, History, Json, Shelf, day_of
from tests.support.server import running_server
from tests.support.spark import WAREHOUSE, Lake, path_of
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.timeout(3600)

DRIVER_TIMEOUT_S = 900
LONG = bool(os.environ.get("LAKEPACT_LONG"))
PHASES = (
    *("begun", "read", "commits", "snapshots", "lineage", "files", "transactions", "checks", "tables", "waiting"),
    *("position", "committed"),
)
KILLED_IN = PHASES if LONG else ("position", "committed")

DRIVER = """
import json
import os
import signal
import sys

import lakepact.spark as lp
from lakepact.spark.jobs.projections import project

uri, jars, settings, dies = sys.argv[1:]
spark = lp.session("local[1]", uri=uri, jars=jars, **json.loads(settings))


def on_phase(what):
    if what == dies:
        # Python and its JVM, at one blow.
        os.killpg(os.getpgrp(), signal.SIGKILL)


project(lp.connect(spark), on_phase=on_phase)
"""


@dataclass(frozen=True)
class World:
    """A server with an empty warehouse, and receipts in it that are not of its own."""

    pact: SparkLake
    shelf: Shelf

    def rows(self) -> dict[str, list[str]]:
        """Everything that the projections say."""
        return {one.name: shown(self.pact.table(one.full_name)) for one in ALL}

    def position(self) -> Json:
        document = self.pact.plain.state.get(NAME)
        return dict(document.value or {}) if document is not None else {}


def same(rows: dict[str, list[str]], others: dict[str, list[str]]) -> None:
    """Row by row, in every table."""
    for name, mine in rows.items():
        assert sorted(set(mine) ^ set(others[name])) == [], name
        assert mine == others[name], name


def shown(frame: DataFrame) -> list[str]:
    return sorted(repr(sorted_maps(row.asDict())) for row in frame.collect())


def sorted_maps(row: dict[str, Any]) -> dict[str, Any]:
    # The entries of a map have no order.
    return {name: sorted(value.items()) if isinstance(value, dict) else value for name, value in row.items()}


@contextmanager
def world(lake: Lake, folder: Path) -> Iterator[World]:
    with running_server(folder) as server:
        pact = lp.connect(lake.spark, uri=server.url, warehouse=WAREHOUSE)
        assert pact.plain.location is not None
        yield World(pact, Shelf(path_of(pact.plain.location)))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def a_history(folder: Path, transactions: int = 24) -> list[list[Json]]:
    """Some days of commits, the last of them today, and a few that are very old."""
    history, now, chance = History(folder), now_ms(), random.Random(1)
    times = sorted(now - chance.randrange(60_000, 5 * DAY_MS) for _ in range(transactions))
    old = [history.transaction(now - 40 * DAY_MS + number, 3) for number in range(2)]
    made = [
        history.transaction(at_ms, chance.choice((1, 1, 2, 3)), pipeline=number % 2 == 0)
        for number, at_ms in enumerate(times)
    ]
    # Written from a log of versions, when nothing was left of its transaction.
    for receipt in made[3]:
        receipt |= {"transaction-id": None, "transaction-tables": 1, "operation": None, "source": {"kind": "unknown"}}
    today = [history.transaction(now - 1_000 + number, 2) for number in range(3)]
    return [*old, *made, *today, history.transaction(now - 500, 1, pipeline=False, drop=True)]


def test_lost_found_doubled_reordered_late_or_damaged_receipts_give_the_rows_of_one_clean_run(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, chance, now = a_history(tmp_path / "tables"), random.Random(2), now_ms()
    receipts = [receipt for transaction in history for receipt in transaction]
    with ExitStack() as servers:
        clean = servers.enter_context(world(lake, tmp_path / "clean"))
        clean.shelf.put(receipts)
        done = project(clean.pact)
        assert (done.receipts, done.waiting, done.damaged, done.tables, done.unread) == (len(receipts), 0, 0, 6, 0)
        expected = clean.rows()
        assert len(expected["commits"]) == len({receipt["commit-key"] for receipt in receipts}) == len(receipts)
        assert len(expected["transactions"]) == len(history) - 1

        torn = servers.enter_context(world(lake, tmp_path / "torn"))
        shelf = torn.shelf
        # One of each transaction over several tables is lost, and one of those of today is damaged.
        lost = [chance.choice(transaction) for transaction in history if len(transaction) > 1]
        first = [receipt for receipt in receipts if receipt not in lost]
        chance.shuffle(first)
        damaged = next(receipt for receipt in first if day_of(receipt["committed-ms"]) == day_of(now))
        shelf.put(first)
        text = shelf.path(damaged).read_bytes()
        shelf.path(damaged).write_bytes(text[: len(text) // 2])
        # The same receipts once more: a packed day, with what lies loose under another day.
        days = sorted({day_of(receipt["committed-ms"]) for receipt in first})
        shelf.pack(days[1], late=[one for one in first if day_of(one["committed-ms"]) == days[2]], at_once=2)
        done = project(torn.pact)
        assert done.damaged == 1
        assert [Path(file).name for file in done.examples] == [shelf.path(damaged).name]
        half = torn.rows()
        assert set(half["commits"]) < set(expected["commits"])
        # Whole transactions, and two that nobody will ever complete.
        assert len(set(half["transactions"]) - set(expected["transactions"])) == 2
        waiting = [one for one in first if one["transaction-id"] in {receipt["transaction-id"] for receipt in lost[2:]}]
        assert done.waiting == len(half["waiting"]) == len(waiting) - (damaged in waiting)

        # Some are found, by their names; then the others, too many to go by their names. Mended, it comes late as well.
        found = chance.sample(lost, len(lost))
        shelf.put_late(found[:2], now)
        assert project(torn.pact).receipts > 0
        monkeypatch.setattr(reading, "_MOST_NOTES", 2)
        shelf.put_late([*found[2:], damaged], now)
        done = project(torn.pact)
        assert (done.waiting, done.damaged, done.unread) == (0, 0, 0)
        same(torn.rows(), expected)

        # Packed or not, known is known, and our own commits are nobody's news.
        shelf.pack(day_of(now), late=found)
        before = torn.position()
        assert project(torn.pact).transaction_id is None
        assert torn.position() == before
        assert before["runs"] == 3

        assert project(torn.pact, full=True).receipts == len(receipts)
        same(torn.rows(), expected)
        assert torn.position()["receipts"] == len(receipts)


def test_rows_outlive_their_receipts_and_a_rebuild_gives_the_same(lake: Lake, tmp_path: Path) -> None:
    """Single files go once their day is packed; and whole days go, if the operator says so."""
    history, now = History(tmp_path / "tables"), now_ms()
    days = [now - back * DAY_MS for back in (40, 39, 38, 2)]
    made = [history.transaction(at_ms + number, 2) for at_ms in days for number in range(3)]
    # One began before midnight, and its second table was committed after it.
    over_midnight = history.transaction(days[0] + 10, 3)
    over_midnight[1]["committed-ms"] = days[1]
    receipts = [receipt for transaction in [*made, over_midnight] for receipt in transaction]
    with world(lake, tmp_path / "server") as one:
        one.shelf.put(receipts)
        assert project(one.pact).receipts == len(receipts)
        expected = one.rows()
        for day in sorted({day_of(receipt["committed-ms"]) for receipt in receipts}):
            one.shelf.pack(day)
        for receipt in receipts:
            one.shelf.path(receipt).unlink()
        # From the segments alone, and from nothing else.
        with world(lake, tmp_path / "anew") as other:
            shutil.copytree(one.shelf.own / "segments", other.shelf.own / "segments")
            assert project(other.pact).receipts == len(receipts)
            same(other.rows(), expected)
        # The first of the days is gone for good.
        for path in one.shelf.segments(day_of(days[0])):
            path.unlink()
        # And of the second a lost receipt was written again, when nobody knew any more who had made it.
        poor = {**made[3][0], "transaction-id": None, "transaction-tables": 1, "source": {"kind": "unknown"}}
        one.shelf.write_segments(
            day_of(days[1]),
            {
                "iceberg": [
                    orjson.dumps(poor if receipt is made[3][0] else receipt)
                    for receipt in receipts
                    if day_of(receipt["committed-ms"]) == day_of(days[1])
                ]
            },
        )
        project(one.pact, full=True)
        same(one.rows(), expected)


def test_what_remains_of_a_transaction_is_not_taken_for_all_of_it(lake: Lake) -> None:
    """A receipt that was lost and written again from metadata says less than its row: the row stays, and with it the
    transaction as it was."""

    def told(name: str, tables: int, source: str) -> Json:
        about = {
            "kind": "table",
            "change": "commit",
            "id": name,
            "namespace": ["n"],
            "name": name,
            "operation": "commit",
        }
        which = {"event-id": name, "commit-key": name, "transaction-id": "T", "transaction-tables": tables}
        return {**about, **which, "revision": 2, "committed-ms": 1, "source": {"kind": source}, "snapshot-id": 1}

    def read(*receipts: Json) -> DataFrame:
        lines = [(orjson.dumps(one).decode(), "file") for one in receipts]
        return chosen(reading.parsed(lake.spark.createDataFrame(lines, "value STRING, file STRING")), None, 40 * DAY_MS)

    first = rows.described(read(told("a", 2, "pipeline"), told("b", 2, "pipeline")))
    again = read(told("a", 2, "pipeline"), told("b", 1, "unknown"))
    left = without_settled(again, rows.commits(first)).select("name", "partial").collect()
    assert [tuple(row) for row in left] == [("a", True)]


def test_damaged_segments_cost_what_was_in_them_and_stop_nobody(lake: Lake, tmp_path: Path) -> None:
    """Without loose files their receipts are missing, and said so; with them nothing is."""
    damages = ("cut short", "other bytes", "empty", "gone", "manifest")
    history, now = History(tmp_path / "tables"), now_ms()
    days = {damage: now - back * DAY_MS for back, damage in enumerate(damages, 3)}
    receipts = [history.transaction(at_ms + number, 1)[0] for at_ms in days.values() for number in range(4)]
    broken: set[str] = set()
    with world(lake, tmp_path / "server") as one:
        one.shelf.put(receipts)
        for damage, at_ms in days.items():
            one.shelf.pack(day_of(at_ms), at_once=2)
            manifest, segment, _ = one.shelf.segments(day_of(at_ms))
            bad = manifest if damage == "manifest" else segment
            break_(bad, damage)
            broken.add(f"{day_of(at_ms)}/{bad.name}")
        done = project(one.pact)
        assert (done.receipts, done.damaged) == (len(receipts), 0)
        assert {file.partition("/segments/")[2] for file in done.broken} == broken
    with world(lake, tmp_path / "anew") as other:
        # Once more, with nothing but what is packed.
        shutil.copytree(one.shelf.own / "segments", other.shelf.own / "segments")
        done = project(other.pact)
        # The names of segments say what should be in them: a manifest is not needed to read them.
        assert done.receipts == len(receipts) - 2 * (len(damages) - 1)
        assert {file.partition("/segments/")[2] for file in done.broken} == broken
        assert done.through is not None and done.through > day_of(now - 3 * DAY_MS)


def break_(path: Path, damage: str) -> None:
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        middle = len(whole) // 2
        other = bytes([*whole[:middle], whole[middle] ^ 0xFF, *whole[middle + 1 :]])
        path.write_bytes({"empty": b"", "other bytes": other}.get(damage, whole[:middle]))


def test_a_run_opens_only_receipts_that_are_new(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the last hour are listed again. Those of projected receipts are not opened: here they are damaged by
    now, and a run that opened one would count it."""
    history, now = History(tmp_path / "tables", tables=3), now_ms()
    with world(lake, tmp_path / "server") as one:
        waits = history.transaction(now - 2_500, 2)[0]
        projected = [receipt for number in range(6) for receipt in history.transaction(now - 3_000 + number, 2)]
        one.shelf.put([*projected, waits])
        done = project(one.pact)
        assert (done.receipts, done.waiting) == (len(projected), 1)
        for receipt in (*projected, waits):
            one.shelf.path(receipt).write_bytes(b"{")
        added = [receipt for number in range(2) for receipt in history.transaction(now - 2_000 + number, 2)]
        one.shelf.put(added)
        done = project(one.pact)
        assert (done.receipts, done.waiting, done.damaged) == (len(added), 1, 0)
        # A file whose name is not the key inside it is new by its name only.
        path = one.shelf.path(added[0])
        path.with_name("copy.json").write_bytes(path.read_bytes())
        assert project(one.pact).transaction_id is None
        # With more of them than a plan may name, all files of the last hour are read, and known ones are left out.
        monkeypatch.setattr(reading, "_MOST_NAMES", 1)
        more = history.transaction(now - 1_000, 2)
        one.shelf.put(more)
        done = project(one.pact)
        assert (done.receipts, done.damaged) == (len(more), len(projected) + 1)
        assert len(one.rows()["commits"]) == len(projected) + len(added) + len(more)


def test_receipts_that_arrive_in_any_order_between_runs_give_the_rows_of_a_full_run(lake: Lake, tmp_path: Path) -> None:
    """Within the margin, older than the receipts of earlier runs, and after a run that ended before its commit."""
    history, now, chance = History(tmp_path / "tables", tables=4), now_ms(), random.Random(11)
    receipts = [
        receipt
        for number in range(10)
        for receipt in history.transaction(now - 50 * 60_000 + number * 1_000, 1 + number % 3, pipeline=number % 2 == 0)
    ]
    chance.shuffle(receipts)
    batches = (receipts[:7], receipts[7:14], receipts[14:])

    def run(*, full: bool = False, ends: bool = False) -> Projected:
        def on_phase(what: str) -> None:
            if ends and what == "position":
                raise KeyboardInterrupt

        return project(one.pact, full=full, now_ms=lambda: now, on_phase=on_phase)

    with world(lake, tmp_path / "server") as one:
        projected = 0
        for batch in batches:
            one.shelf.put(batch)
            # The clock of the storage is behind that of the driver by most of the margin.
            for receipt in batch:
                os.utime(one.shelf.path(receipt), times=(now / 1000 - 3_000,) * 2)
            if batch is batches[1]:
                with pytest.raises(KeyboardInterrupt):
                    run(ends=True)
            projected += run().receipts
        rows = one.rows()
        assert (projected, rows["waiting"]) == (len(receipts), [])
        assert run().transaction_id is None
        assert run(full=True).receipts == len(receipts)
        same(one.rows(), rows)


def test_two_jobs_at_once_project_everything_once(lake: Lake, tmp_path: Path) -> None:
    history = History(tmp_path / "tables", tables=3)
    with world(lake, tmp_path / "server") as one:
        receipts = [receipt for number in range(4) for receipt in history.transaction(now_ms() - 1_000 + number, 2)]
        one.shelf.put(receipts)
        meeting, met = threading.Barrier(2, timeout=300), threading.local()

        def on_phase(what: str) -> None:
            # Both have read the same position, and nobody has committed.
            if what == "position" and not hasattr(met, "yes"):
                met.yes = True
                meeting.wait()

        def run(_: int) -> Projected:
            return project(lp.connect(lake.spark, one.pact.plain.uri, WAREHOUSE), on_phase=on_phase)

        with ThreadPoolExecutor(2) as threads:
            done = list(threads.map(run, range(2)))
        assert sorted(result.receipts for result in done) == [0, len(receipts)]
        assert sum(result.transaction_id is not None for result in done) == 1
        assert one.position()["runs"] == 1
        assert len(one.rows()["commits"]) == len(receipts)


def test_a_job_killed_in_any_phase_has_done_nothing_or_everything(lake: Lake, tmp_path: Path) -> None:
    history = History(tmp_path / "tables", tables=3)
    with world(lake, tmp_path / "server") as one:
        one.shelf.put(history.transaction(now_ms() - 2_000, 2))
        project(one.pact)
        before, position = one.rows(), one.position()
        whole = [receipt for number in range(3) for receipt in history.transaction(now_ms() - 1_000 + number, 2)]
        one.shelf.put([*whole, history.transaction(now_ms() - 900, 2)[0]])
        for phase in KILLED_IN:
            killed_in(phase, one.pact.plain.uri, tmp_path)
            if phase != "committed":
                assert one.position() == position
                same(one.rows(), before)
        # The last one has done everything, and just could not say so.
        assert one.position()["runs"] == position["runs"] + 1
        after = one.rows()
        assert len(after["commits"]) == len(before["commits"]) + len(whole)
        assert len(after["waiting"]) == 1
        assert commanded(one.pact.plain.uri, tmp_path)["transaction_id"] is None
        assert project(one.pact, full=True).receipts == len(whole) + 2
        same(one.rows(), after)


def killed_in(phase: str, uri: str, folder: Path) -> None:
    script = folder / "driver.py"
    script.write_text(DRIVER)
    runtime = jars.resolve(jars.SPARK_ICEBERG)[0].parent
    process = subprocess.Popen(
        [sys.executable, str(script), uri, str(runtime), orjson.dumps(quick_settings(folder)).decode(), phase],
        cwd=folder,
        env=without_spark(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        told, _ = process.communicate(timeout=DRIVER_TIMEOUT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE_S)
    assert process.returncode == -signal.SIGKILL, told.decode()


def commanded(uri: str, folder: Path) -> Json:
    """What the command says that it has done."""
    runtime = jars.resolve(jars.SPARK_ICEBERG)[0].parent
    options = ["--uri", uri, "--master", "local[1]", "--jars", str(runtime), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "lakepact", "project", *options, *as_options(quick_settings(folder))],
        cwd=folder,
        env=without_spark(),
        capture_output=True,
        timeout=DRIVER_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    return dict(orjson.loads(done.stdout))


def test_what_comes_to_the_driver_does_not_grow_with_the_receipts(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = History(tmp_path / "tables", tables=3)
    came: list[tuple[tuple[str, ...], int, bool]] = []
    # The frames of a session are of a class of their own, below the one that is imported.
    kind = type(lake.spark.range(1))
    collect = kind.collect

    def seen(frame: DataFrame) -> list[Any]:
        rows = collect(frame)
        bounded = bool(frame._jdf.queryExecution().optimizedPlan().maxRows().isDefined())
        came.append((tuple(frame.columns), len(rows), bounded))
        return rows

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("this brings all rows to the driver")

    with world(lake, tmp_path / "server") as one:
        day = now_ms() - 3 * DAY_MS
        for count, full in ((100, True), (20, False)):
            receipts = [receipt for number in range(count) for receipt in history.transaction(day + number, 2)]
            (one.shelf.put if full else lambda late: one.shelf.put_late(late, now_ms()))(receipts)
            with monkeypatch.context() as patched:
                patched.setattr(kind, "collect", seen)
                for name in ("toPandas", "toLocalIterator", "toArrow"):
                    patched.setattr(kind, name, refused)
                assert project(one.pact, full=full).receipts >= 2 * count
            # What has no bound of its own in its plan is one row for a day, a status, or one of three tables.
            unbounded = [(columns, rows) for columns, rows, bounded in came if not bounded]
            assert all(rows <= 4 for _, rows in unbounded), unbounded
            assert sum(rows for _, rows, _ in came) <= 4 * len(came) + (2 * count if not full else 0)
            came.clear()


# --- real commits, from the outside ---

SHOP = """
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakepact import pipelines as dp

dp.pipeline("shop", namespace="shop")


@dp.table
@dp.expect("is not small", "amount > 6")
def facts() -> DataFrame:
    return dp.read_new("raw.orders")


@dp.materialized_view
@dp.expect_rows(at_least=1)
def daily(facts: DataFrame) -> DataFrame:
    return facts.groupBy("customer_id").agg(F.sum("amount").alias("amount"))
"""


@pytest.fixture(scope="module")
def shop(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> SparkLake:
    """Tables by Spark, by PyIceberg and by a pipeline, with all that can become of a table, projected."""
    pact = lp.connect(lake.spark)
    for name in ("raw", "shop"):
        lake.sql(f"CREATE NAMESPACE {name}")
    lake.fill("shop.gone", 1)
    lake.sql("DROP TABLE shop.gone")
    lake.fill("shop.old", 1)
    lake.sql("ALTER TABLE shop.old RENAME TO shop.renamed")
    lake.fill("shop.zipped", 1, 2, options="TBLPROPERTIES ('write.metadata.compression-codec' = 'gzip')")
    lake.sql("ALTER TABLE shop.zipped SET TBLPROPERTIES ('comment' = 'about zipped')")
    lake.sql("ALTER TABLE shop.zipped CREATE BRANCH trial")
    lake.sql("INSERT INTO shop.zipped.branch_trial VALUES (3, 'n3')")
    lake.sql("ALTER TABLE shop.zipped CREATE TAG first")
    lake.sql("ALTER TABLE shop.zipped ADD COLUMN price DECIMAL(10, 2)")
    lake.sql("CREATE VIEW shop.view AS SELECT id FROM shop.zipped")
    with pact.transaction() as tx:
        # Two snapshots of one commit.
        tx.sql("INSERT INTO shop.renamed VALUES (2, 'n2')")
        tx.sql("INSERT INTO shop.renamed VALUES (3, 'n3')")
        tx.write(lake.spark.range(3), "shop.labels", mode="create", format="delta")
    with pact.transaction() as tx:
        tx.write(lake.spark.range(2), "shop.labels", mode="append", format="delta")
    other = pact.plain.pyiceberg()
    # Spark does not let its users say whose a table is.
    other.load_table("shop.zipped").transaction().set_properties(owner="ada").commit_transaction()
    made = other.create_table("shop.of_python", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    for number in range(2):
        made.append(pa.table({"id": [number], "name": ["x"]}))
    made.delete("id = 0")
    file = tmp_path_factory.mktemp("shop") / "shop.py"
    file.write_text(SHOP)
    lake.sql("CREATE TABLE raw.orders (id BIGINT, customer_id BIGINT, amount DOUBLE)")
    for number in range(2):
        lake.sql(f"INSERT INTO raw.orders VALUES ({number}, 7, {5 * number + 5}D)")
        dp.run(file, pact)
    settle(pact)
    done = project(pact)
    assert (done.waiting, done.damaged, done.unread) == (0, 0, 0)
    return pact


def settle(pact: SparkLake) -> None:
    """Until the newest version of every table has its receipt: they are written in order, in the background."""
    assert pact.plain.location is not None
    root, deadline = path_of(pact.plain.location), time.monotonic() + PATIENCE_S
    for namespace in ("raw", "shop"):
        for name in pact.plain.tables.list(namespace):
            location = pact.plain.tables.load(name).metadata_location
            while not list(root.glob(f"_catalog/events/*/iceberg/committed/{commit_key(location)}.json")):
                assert time.monotonic() < deadline, f"{name} has no receipt"
                time.sleep(0.05)


def test_what_pyiceberg_sees_is_what_the_projections_say(shop: SparkLake) -> None:
    other = shop.plain.pyiceberg()
    found = {row["table_name"]: row.asDict() for row in shop.table("lakepact.tables").where("NOT dropped").collect()}
    names = [".".join(name) for namespace in ("raw", "shop") for name in other.list_tables(namespace)]
    assert set(names) | {"shop.labels", "shop.view"} == set(found)
    for name in names:
        table = other.load_table(name)
        row, mine = found[name], f"table_id = '{table.metadata.table_uuid}'"
        snapshots = {
            (
                one["snapshot_id"],
                one["parent_snapshot_id"],
                one["operation"],
                one["snapshot_at"],
                tuple(sorted(one["summary"].items())),
            )
            for one in shop.table("lakepact.snapshots").where(mine).collect()
        }
        assert snapshots == {
            (one["snapshot_id"], one["parent_id"], one["operation"], one["committed_at"], tuple(sorted(one["summary"])))
            for one in table.inspect.snapshots().to_pylist()
        }
        assert row["refs"] == {one["name"]: one["snapshot_id"] for one in table.inspect.refs().to_pylist()}
        columns = shop.table("lakepact.columns").where(mine).orderBy("position").collect()
        assert [(one["field_id"], one["name"], one["type"], one["required"]) for one in columns] == [
            (field.field_id, field.name, str(field.field_type), field.required) for field in table.schema().fields
        ]
        files = shop.table("lakepact.files").where(mine).orderBy("committed_at").collect()
        current = table.current_snapshot()
        assert current is not None
        assert current.summary is not None
        assert (
            files[-1]["snapshot_id"],
            str(files[-1]["records"]),
            str(files[-1]["data_files"]),
            str(files[-1]["bytes"]),
        ) == (
            current.snapshot_id,
            current.summary["total-records"],
            current.summary["total-data-files"],
            current.summary["total-files-size"],
        )
        assert (row["location"], row["metadata_location"], row["snapshot_id"], row["properties"]) == (
            table.location(),
            table.metadata_location,
            current.snapshot_id,
            table.properties,
        )
        versions = shop.table("lakepact.commits").where(mine).where("change IN ('create', 'commit')").collect()
        known = {one.metadata_file for one in table.metadata.metadata_log} | {table.metadata_location}
        assert {one["metadata_location"] for one in versions} == known
    assert (found["shop.zipped"]["owner"], found["shop.zipped"]["description"]) == ("ada", "about zipped")
    assert found["shop.renamed"]["change"] == "commit"


def test_other_kinds_of_tables_and_our_own_commits(shop: SparkLake) -> None:
    tables = {row["table_name"]: row for row in shop.table("lakepact.tables").collect()}
    assert tables["shop.gone"]["dropped"]
    assert (tables["shop.labels"]["format"], tables["shop.view"]["kind"]) == ("delta", "view")
    columns = {(row["table_name"], row["name"], row["type"]) for row in shop.table("lakepact.columns").collect()}
    assert {("shop.labels", "id", "long"), ("shop.view", "id", "long")} < columns
    assert not [row for row in columns if row[0] == "shop.gone"]
    kinds = {(row["kind"], row["change"]) for row in shop.table("lakepact.commits").collect()}
    assert {
        ("namespace", "create"),
        ("view", "create"),
        ("delta", "create"),
        ("table", "rename"),
        ("table", "drop"),
    } < kinds
    # They move together: a Delta table and an Iceberg table.
    [together] = shop.sql(
        "SELECT * FROM lakepact.transactions WHERE array_contains(table_names, 'shop.labels') AND size(tables) = 2"
    ).collect()
    assert together["table_names"] == ["shop.labels", "shop.renamed"]
    # How large it was after each of its commits, as its rows have it.
    sizes = shop.table("lakepact.files").where("table_name = 'shop.labels'").orderBy("committed_at").collect()
    versions = [shop.plain.delta.load("shop.labels", version=number) for number in (0, 1)]
    assert [(one["data_files"], one["bytes"], one["records"]) for one in sizes] == [
        (len(version.files), sum(file.size for file in version.files), records)
        for version, records in zip(versions, (3, 5), strict=True)
    ]
    runs = shop.sql(
        "SELECT DISTINCT run_id, input_table, task, direct FROM lakepact.lineage WHERE output_table = 'shop.facts'"
    )
    assert {(row["input_table"], row["task"], row["direct"]) for row in runs.collect()} == {
        ("raw.orders", "shop.facts", True)
    }
    checks = {(row["name"], row["status"], row["table_id"]) for row in shop.table("lakepact.checks").collect()}
    assert ("is not small", "warned", tables["shop.facts"]["table_id"]) in checks

    # What the job itself has committed is no news to it.
    assert project(shop).transaction_id is None
    assert shop.table("lakepact.commits").where("namespace = 'lakepact'").count() == 0


def test_every_question_of_the_guide_has_an_answer(shop: SparkLake, root: Path) -> None:
    text = (root / "docs" / "guides" / "questions.md").read_text()
    questions = re.findall(r"^## (.+?)$.+?^```sql\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(questions) == text.count("\n## ") == text.count("```sql") == 10
    for question, sql in questions:
        assert shop.sql(sql).collect(), question

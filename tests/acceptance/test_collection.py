"""Collection beside a real server: what nobody needs goes, and everything else can be read in full afterwards."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from typer.testing import CliRunner

import lakepact
from lakepact.cli import app
from lakepact.client import AlreadyExists, BadRequest, Conflict, Lake, NotFound
from lakepact.client.delta import DeltaChange
from lakepact.delta.actions import Add
from lakepact.settings import Settings
from lakepact.upkeep.collection import CLASSES, Class, Report
from tests.support.collecting import collected
from tests.support.postgres import LazyPostgres
from tests.support.server import running_server

SCHEMA = pa.schema([("id", pa.int64())])
DELTA_SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
LONG: Final = bool(os.environ.get("LAKEPACT_LONG"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def lake(folder: Path) -> Iterator[Lake]:
    with running_server(folder) as server, lakepact.connect(server.url) as lake, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEPACT_URI", server.url)
        patch.setenv("LAKEPACT_DATA", str(folder / "data"))
        yield lake


@pytest.fixture
def space(lake: Lake, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "_", request.node.name)[:60]
    lake.namespaces.create(name)
    return name


def gc(folder: Path, *, dry_run: bool = False, **given: float) -> Report:
    settings = Settings.load(data=str(folder / "data"))
    given = {"drop_retention_s": 0.0, "abandoned_retention_s": 0.0, **given}
    return asyncio.run(collected(settings.model_copy(update=given), dry_run=dry_run))


def make(lake: Lake, space: str, name: str, *ids: int, **more: Any) -> Any:
    table = lake.pyiceberg().create_table((space, name), SCHEMA, **more)
    for one in ids:
        table.append(rows(one))
    return table


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(lake: Lake, space: str, name: str) -> list[int]:
    found = lake.pyiceberg().load_table((space, name)).scan().to_arrow()
    return sorted(found["id"].to_pylist())


def path_of(location: str) -> Path:
    return Path("/" + location.removeprefix("file:").lstrip("/"))


def files_below(location: str) -> set[str]:
    folder = path_of(location)
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- dropped tables ---


def test_a_purged_table_keeps_its_files_until_its_time_is_over(lake: Lake, folder: Path, space: str) -> None:
    location = make(lake, space, "t", 1, 2).location()
    files = files_below(location)
    lake.tables.drop((space, "t"), purge=True)
    assert gc(folder, drop_retention_s=3_600).counts == {}
    told = gc(folder, dry_run=True)
    assert {one.what.removeprefix(location + "/") for one in told.removals if one.rule is Class.DROPPED} == files
    assert all(one.table == f"{space}.t" and "retention is over" in one.why for one in told.removals)
    assert files_below(location) == files
    assert lake.tables.undrop((space, "t")) == (space, "t")
    assert ids(lake, space, "t") == [1, 2]

    lake.tables.drop((space, "t"), purge=True)
    assert gc(folder).counts == {Class.DROPPED: len(files)}
    assert files_below(location) == set()
    with pytest.raises(NotFound):
        lake.tables.undrop((space, "t"))
    make(lake, space, "again", location=location)


def test_files_of_a_table_that_was_only_dropped_are_never_deleted(lake: Lake, folder: Path, space: str) -> None:
    location = make(lake, space, "t", 1, 2).location()
    files = files_below(location)
    lake.tables.drop((space, "t"))
    for _ in range(2):
        gc(folder)
    assert files_below(location) == files
    [note] = [one for one in lake.tables.dropped() if one.identifier[0] == space]
    assert (note.state, note.purge) == ("released", False)
    # Its location is free, and while nobody has taken it the table can still come back.
    assert lake.tables.undrop((space, "t")) == (space, "t")
    assert ids(lake, space, "t") == [1, 2]
    lake.tables.drop((space, "t"))
    gc(folder)
    make(lake, space, "taker", 7, location=location)
    with pytest.raises(AlreadyExists, match="belongs to another table by now"):
        lake.tables.undrop((space, "t"))
    # Not even when the one in its place is purged.
    lake.tables.drop((space, "taker"), purge=True)
    gc(folder)
    assert files <= files_below(location)


def test_files_that_another_table_needs_stay(lake: Lake, folder: Path, space: str) -> None:
    owner = make(lake, space, "owner", 1, 2, location=f"file://{folder}/data/warehouse/{space}-owner")
    borrowed = [one.file.file_path for one in owner.scan().plan_files()]
    borrower = make(lake, space, "borrower", 3)
    borrower.add_files(borrowed)
    lake.tables.drop((space, "owner"), purge=True)
    gc(folder)
    assert {f"{owner.location()}/{one}" for one in files_below(owner.location())} == set(borrowed)
    assert ids(lake, space, "borrower") == [1, 2, 3]


def test_in_a_folder_that_a_user_chose_only_what_the_table_leads_to_goes(lake: Lake, folder: Path, space: str) -> None:
    place = f"file://{folder}/data/warehouse/{space}-chosen"
    path_of(place).mkdir(parents=True)
    (path_of(place) / "mine.txt").write_text("keep me")
    make(lake, space, "t", 1, location=place)
    lake.tables.drop((space, "t"), purge=True)
    gc(folder)
    assert files_below(place) == {"mine.txt"}


def test_a_table_that_shares_its_files_keeps_its_data(lake: Lake, folder: Path, space: str) -> None:
    table = make(lake, space, "t", 1, properties={"gc.enabled": "false"})
    data = [path_of(one.file.file_path) for one in table.scan().plan_files()]
    lake.tables.drop((space, "t"), purge=True)
    gc(folder)
    assert all(path.is_file() for path in data)
    assert len(files_below(table.location())) == len(data)


def test_what_an_open_transaction_still_sees_is_not_purged(lake: Lake, folder: Path, space: str) -> None:
    location = make(lake, space, "t", 1, 2).location()
    with lake.transaction(isolation="snapshot") as tx:
        assert tx.pyiceberg().load_table((space, "t")).scan().to_arrow().num_rows == 2
        lake.tables.drop((space, "t"), purge=True)
        assert any("still looks at it" in one for one in gc(folder).left)
        assert tx.pyiceberg().load_table((space, "t")).scan().to_arrow().num_rows == 2
    gc(folder)
    assert files_below(location) == set()


def test_a_purged_delta_table_loses_its_files_and_its_rows(lake: Lake, folder: Path, space: str) -> None:
    made = lake.delta.create((space, "d"), DELTA_SCHEMA)
    path_of(made.location).mkdir(parents=True, exist_ok=True)
    (path_of(made.location) / "a.parquet").write_bytes(b"rows")
    lake.delta.commit(DeltaChange((space, "d"), [Add("a.parquet", {}, 4, 1)]))
    lake.delta.drop((space, "d"), purge=True)
    lake.tables.undrop((space, "d"))
    assert [one.path for one in lake.delta.load((space, "d")).files] == ["a.parquet"]
    lake.delta.drop((space, "d"), purge=True)
    told = gc(folder)
    assert f"rows of {made.table_id}" in {one.what for one in told.removals}
    assert files_below(made.location) == set()
    assert not [one for one in lake.tables.dropped() if one.id == made.table_id]


# --- transactions that were given up ---


def test_new_tables_of_an_aborted_transaction_are_cleared_away(lake: Lake, folder: Path, space: str) -> None:
    chosen = f"file://{folder}/data/warehouse/{space}-chosen"
    path_of(chosen).mkdir(parents=True)
    (path_of(chosen) / "mine.txt").write_text("keep me")
    os.utime(path_of(chosen) / "mine.txt", (1_000_000_000, 1_000_000_000))
    tx = lake.transaction().begin()
    place = make(tx, space, "t", 1).location()  # type: ignore[arg-type]
    make(tx, space, "u", 1, location=chosen)  # type: ignore[arg-type]
    gc(folder)
    assert files_below(place) and len(files_below(chosen)) > 1
    tx.abort()
    assert gc(folder, abandoned_retention_s=3_600).counts == {}
    gc(folder)
    assert files_below(place) == set()
    assert files_below(chosen) == {"mine.txt"}
    # Nothing holds the place any more; and what is committed there stays.
    with lake.transaction() as again:
        make(again, space, "t", 5, location=chosen)  # type: ignore[arg-type]
    gc(folder)
    assert ids(lake, space, "t") == [5]


# --- snapshots ---


def test_snapshots_go_by_the_tables_own_rules(lake: Lake, folder: Path, space: str) -> None:
    short = {"history.expire.max-snapshot-age-ms": "0", "history.expire.min-snapshots-to-keep": "2"}
    table = make(lake, space, "t", 1, 2, 3, 4, properties=short)
    first = table.history()[0].snapshot_id
    table.manage_snapshots().create_tag(first, "begin").commit()
    make(lake, space, "kept", 1, 2, 3)
    tx = lake.transaction().begin()
    assert tx.pyiceberg().load_table((space, "t")).scan().to_arrow().num_rows == 4
    table.append(rows(5))
    runner = CliRunner()
    dry = runner.invoke(app, ["gc", "snapshots", "--dry-run", "--json"])
    assert dry.exit_code == 0, dry.output
    listed = [one for one in orjson.loads(dry.stdout)["removed"] if one["table"] == f"{space}.t"]
    assert len(listed) == 2
    assert runner.invoke(app, ["gc", "snapshots"]).exit_code == 0
    left = lake.tables.load((space, "t")).metadata
    # Two by number, which are also the one that the transaction sees; and the tag's.
    assert len(left["snapshots"]) == 3
    assert len(lake.tables.load((space, "kept")).metadata["snapshots"]) == 3
    assert ids(lake, space, "t") == [1, 2, 3, 4, 5]
    assert tx.pyiceberg().load_table((space, "t")).scan().to_arrow().num_rows == 4
    tx.abort()


# --- the command ---


def test_the_command_says_what_would_go_and_why(
    lake: Lake, folder: Path, space: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEPACT_DROP_RETENTION_S", "0")
    make(lake, space, "t", 1)
    lake.tables.drop((space, "t"), purge=True)
    runner = CliRunner()
    shown = runner.invoke(app, ["dropped"])
    assert shown.exit_code == 0 and f"{space}.t" in shown.output
    dry = runner.invoke(app, ["gc", "--dry-run", "--class", "dropped"])
    assert dry.exit_code == 0 and "retention is over" in dry.output and "Would remove" in dry.output
    assert runner.invoke(app, ["undrop", f"{space}.t", "--to", f"{space}.back"]).output == f"Restored {space}.back\n"
    assert ids(lake, space, "back") == [1]
    lake.tables.drop((space, "back"), purge=True)
    done = runner.invoke(app, ["gc", "--json"])
    assert done.exit_code == 0, done.output
    assert orjson.loads(done.stdout[done.stdout.index("{") :])["counts"]["dropped"] > 0
    assert runner.invoke(app, ["undrop", f"{space}.back"]).exit_code == 2


DIES = """
import os
import signal
import sys

left = int(os.environ["DIES_AT_REMOVAL"])


def count(event, arguments):
    global left
    if event == "os.remove" and str(arguments[0]).startswith(os.environ["DIES_BELOW"]):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(count)
"""


def test_killed_at_any_point_it_goes_on_and_takes_nothing_else(
    lake: Lake, folder: Path, space: str, tmp_path: Path
) -> None:
    doomed = [make(lake, space, f"doomed{number}", 1, 2).location() for number in range(6)]
    make(lake, space, "kept", 1, 2)
    for number in range(6):
        lake.tables.drop((space, f"doomed{number}"), purge=True)
    (tmp_path / "sitecustomize.py").write_text(DIES)
    environment = {
        **os.environ,
        "LAKEPACT_DATA": str(folder / "data"),
        "LAKEPACT_DROP_RETENTION_S": "0",
        "PYTHONPATH": str(tmp_path),
        "DIES_BELOW": str(folder / "data" / "warehouse"),
    }
    # Right before so many files are removed; the last one lives.
    for removals in (1, 4, 9, 14, 1, 3, 10**9):
        ended = subprocess.run(
            [sys.executable, "-m", "lakepact", "gc", "--class", "dropped"],
            env={**environment, "DIES_AT_REMOVAL": str(removals)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert ended.returncode == (-signal.SIGKILL if removals < 10**9 else 0), ended.stderr
    assert [files_below(location) for location in doomed] == [set()] * 6
    assert not [one for one in lake.tables.dropped() if one.identifier[0] == space]
    assert ids(lake, space, "kept") == [1, 2]


# --- against everybody at once ---


class Storm:
    """Writers, overlays, stalled commits, drops and restorations, while collection runs with no retention at all."""

    def __init__(self, lake: Lake, space: str, seed: int) -> None:
        self.lake = lake
        self.space = space
        self.seed = seed
        self.over = threading.Event()
        self.expected: dict[str, set[int]] = {name: set() for name in ("t0", "t1", "o0", "o1")}
        self.restored = 0
        self.lost = 0
        self.committed = 0
        self._lock = threading.Lock()
        self._next = 0
        for name in self.expected:
            make(
                lake,
                space,
                name,
                properties={"history.expire.max-snapshot-age-ms": "0"} if name.startswith("t") else {},
            )

    def number(self) -> int:
        with self._lock:
            self._next += 1
            return self._next

    def wrote(self, name: str, one: int) -> None:
        with self._lock:
            self.expected.setdefault(name, set()).add(one)

    def writer(self, rng: random.Random) -> None:
        name, one = rng.choice(["t0", "t1"]), self.number()
        with suppress(CommitFailedException):
            self.lake.pyiceberg().load_table((self.space, name)).append(rows(one))
            self.wrote(name, one)

    def overlay(self, rng: random.Random) -> None:
        one, new, gives_up = self.number(), f"made{self.number()}", rng.random() < 0.3
        tx = self.lake.transaction(isolation="snapshot").begin()
        try:
            seen = tx.pyiceberg().load_table((self.space, "t0")).scan().to_arrow()
            for name in ("o0", "o1"):
                tx.pyiceberg().load_table((self.space, name)).append(rows(one))
            make(tx, self.space, new, one)  # type: ignore[arg-type]
            assert tx.pyiceberg().load_table((self.space, new)).scan().to_arrow()["id"].to_pylist() == [one]
            # Stalled: prepared, and collection comes in between.
            if rng.random() < 0.5:
                self.lake.transactions.prepare(tx.id)
                self.over.wait(0.2)
            # Whatever others have done meanwhile: it still sees what it saw.
            assert tx.pyiceberg().load_table((self.space, "t0")).scan().to_arrow() == seen
            if gives_up:
                tx.abort()
                return
            tx.commit()
        except (Conflict, CommitFailedException):
            return
        with self._lock:
            self.committed += 1
        for name in ("o0", "o1", new):
            self.wrote(name, one)

    def dropper(self, rng: random.Random) -> None:
        one, name = self.number(), f"dropped{self.number()}"
        make(self.lake, self.space, name, one)
        self.lake.tables.drop((self.space, name), purge=rng.random() < 0.8)
        try:
            self.lake.tables.undrop((self.space, name))
        except (NotFound, BadRequest):
            with self._lock:
                self.lost += 1
            return
        with self._lock:
            self.restored += 1
        self.wrote(name, one)

    def run(self, folder: Path, settings: Settings, passes: int) -> None:
        failures: list[BaseException] = []

        def repeat(work: Callable[[random.Random], None], seed: int) -> None:
            rng = random.Random(seed)
            try:
                while not self.over.is_set():
                    work(rng)
            except BaseException as error:
                failures.append(error)
                self.over.set()

        works = (self.writer, self.overlay, self.dropper)
        threads = [
            threading.Thread(target=repeat, args=(work, self.seed + number)) for number, work in enumerate(works)
        ]
        for thread in threads:
            thread.start()
        try:
            # On a busy machine the others may be slow: it goes on until each of them has come to something.
            for number in range(passes * 20):
                if self.over.is_set() or (number >= passes and self.committed and self.restored + self.lost):
                    break
                asyncio.run(collected(settings, drop_retention_s=0.0, abandoned_retention_s=0.0, classes=CLASSES))
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        assert not failures, failures
        asyncio.run(collected(settings, drop_retention_s=0.0, abandoned_retention_s=0.0, classes=CLASSES))

    def check(self) -> None:
        """Every table, in full."""
        there = {name for _, name in self.lake.tables.list(self.space)}
        assert there == set(self.expected)
        for name, expected in self.expected.items():
            assert set(ids(self.lake, self.space, name)) == expected, name


def test_with_no_retention_at_all_nothing_that_is_needed_is_taken(lake: Lake, folder: Path, space: str) -> None:
    storm = Storm(lake, space, seed=7)
    storm.run(folder, Settings.load(data=str(folder / "data")), 60 if LONG else 12)
    storm.check()
    assert storm.committed and storm.restored + storm.lost


@pytest.mark.long
def test_the_same_on_postgres(tmp_path: Path) -> None:
    with ExitStack() as stack:
        url = LazyPostgres(stack).url()
        server = stack.enter_context(running_server(tmp_path, "--store", url))
        lake = stack.enter_context(lakepact.connect(server.url))
        lake.namespaces.create("storm")
        storm = Storm(lake, "storm", seed=11)
        storm.run(tmp_path, Settings.load(data=str(tmp_path / "data"), store=url), 40)
        storm.check()

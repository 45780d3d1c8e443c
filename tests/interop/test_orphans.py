"""The search for orphans takes what nothing leads to, and only that. A search is many small jobs of Spark, so each of
these tests says much about one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import lakepact.client
from lakepact.cli.app import app
from lakepact.client import Lake as Client
from lakepact.client.delta import DeltaChange
from lakepact.delta.actions import Add, Remove
from lakepact.errors import InvalidRequest, Unreadable
from lakepact.spark.jobs.orphans import Found, Wish, search
from tests.support.spark import Lake, path_of

ANY_AGE = Wish(0.0, unsafe_any_age=True, parts=2)
DELTA_SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
RETENTION = "delta.deletedFileRetentionDuration"


@pytest.fixture
def client(lake: Lake) -> Iterator[Client]:
    with lakepact.client.connect(lake.server.url) as connected:
        yield connected


def files_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")}


def files_of(lake: Lake, table: str) -> set[Path]:
    return files_below(path_of(lake.metadata(table)["location"]))


def stray(lake: Lake, table: str, *names: str) -> set[Path]:
    """Files of nobody's in a table's folder."""
    folder = path_of(lake.metadata(table)["location"])
    made = set()
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"nothing")
        # A file is an orphan if it is older than the start of the search, by the clock of the server.
        before = path.stat().st_mtime - 10
        os.utime(path, (before, before))
        made.add(path)
    return made


def run(lake: Lake, client: Client, wish: Wish = ANY_AGE, **more: Any) -> Found:
    return search(lake.spark, client, wish, **more)


def adding(path: str) -> Add:
    return Add(path, {}, 7, 1, True)


def test_what_nothing_leads_to_goes_and_everything_else_stays(lake: Lake, db: str, client: Client) -> None:
    # Branches, tags, statistics.
    lake.fill(f"lake.{db}.t", 1, options="PARTITIONED BY (name)")
    lake.sql(f"ALTER TABLE lake.{db}.t CREATE TAG old")
    lake.sql(f"INSERT OVERWRITE lake.{db}.t VALUES (2, 'n1')")
    lake.sql(f"ALTER TABLE lake.{db}.t CREATE BRANCH side")
    lake.sql(f"INSERT INTO lake.{db}.t.branch_side VALUES (3, 'side')")
    lake.sql(f"CALL lake.system.compute_table_stats(table => '{db}.t')")
    for table in ("staged", "moved", "prepared", "gone"):
        lake.fill(f"lake.{db}.{table}", 1)
    # A Delta table: live files, removed ones, and one that will be staged.
    delta = client.delta.create(f"{db}.d", DELTA_SCHEMA, configuration={RETENTION: "interval 0 seconds"}, mirrors=())
    place = path_of(delta.location)
    (place / "p=a b").mkdir(parents=True)
    (place / "_delta_log").mkdir(exist_ok=True)
    names = {"live.parquet", "removed.parquet", "staged.parquet", "p=a b/x.parquet", "_delta_log/other"}
    for name in names | {"lost.parquet"}:
        (place / name).write_bytes(b"nothing")
    added = [adding(one) for one in ("live.parquet", "removed.parquet", "p=a%20b/x.parquet")]
    client.delta.commit(DeltaChange(f"{db}.d", added))
    client.delta.commit(DeltaChange(f"{db}.d", [Remove("removed.parquet", 1)]))
    # What transactions have staged, have prepared, and still see; and what one has given up.
    given_up = client.transaction().begin()
    lake.attach("given_up", uri=lake.server.url, warehouse=given_up.warehouse)
    lake.sql(f"INSERT INTO given_up.{db}.staged VALUES (3, 'never')")
    given_up.abort()
    tx = client.transaction(isolation="snapshot").begin()
    lake.attach("inside", uri=lake.server.url, warehouse=tx.warehouse)
    lake.sql(f"INSERT INTO inside.{db}.staged VALUES (2, 'staged')")
    lake.sql(f"CREATE TABLE inside.{db}.made AS SELECT 5 AS id")
    lake.sql(f"INSERT OVERWRITE lake.{db}.moved VALUES (9, 'new')")
    lake.sql(f"ALTER TABLE lake.{db}.moved SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms'='0')")
    prepared = client.transaction().begin()
    lake.attach("stalled", uri=lake.server.url, warehouse=prepared.warehouse)
    lake.sql(f"INSERT INTO stalled.{db}.prepared VALUES (2, 'prepared')")
    assert lake.rest("POST", f"transactions/{prepared.id}/prepare", {}).status == 200
    # What was dropped, and can come back.
    rows = lake.sql(f"SELECT * FROM lake.{db}.gone")
    client.tables.drop(f"{db}.gone", purge=True)
    tx.delta.commit(DeltaChange(f"{db}.d", [adding("staged.parquet")]))

    live = {f"{db}.{table}" for table in ("t", "staged", "moved", "prepared")}
    kept = {path for table in live for path in files_of(lake, table)}
    strays = stray(lake, f"{db}.t", "data/name=n1/lost.parquet", "metadata/lost.avro", "data/deep/er/and/er/x.parquet")
    dry = run(lake, client, Wish(0.0, dry_run=True, unsafe_any_age=True, parts=2))
    mine = next(one for one in dry.tables if one.table == f"{db}.t")
    assert (mine.files, mine.bytes, mine.failed) == (3, 21, 0)
    assert all(path.is_file() for path in strays | kept)

    done = run(lake, client)
    assert not any(path.exists() for path in strays)
    lost = kept - {path for table in live for path in files_of(lake, table)}
    # What was given up: its data, its manifest and list, and the metadata of the one step. And of the one that is
    # prepared the metadata of its steps, which nobody reads any more.
    assert sorted((path.parts[-3].split("-")[0], path.suffix) for path in lost) == [
        ("prepared", ".json"),
        ("staged", ".avro"),
        ("staged", ".avro"),
        ("staged", ".json"),
        ("staged", ".parquet"),
    ]
    told = [
        orjson.loads(line) for part in path_of(done.report).glob("*.jsonl") for line in part.read_bytes().splitlines()
    ]
    assert strays | lost <= {path_of(one["path"]) for one in told}
    assert {one["rule"] for one in told} == {"orphans"} and all(one["why"] and one["table"] for one in told)
    # The server keeps what its longest transaction may have seen, whatever the Delta table says.
    assert files_below(place) == {place / name for name in names}

    assert lake.ids(f"other.{db}.t") == [2]
    assert lake.ids(f"other.{db}.t.tag_old") == [1]
    assert lake.ids(f"other.{db}.t.branch_side") == [2, 3]
    assert lake.ids(f"inside.{db}.staged") == [1, 2]
    assert lake.ids(f"inside.{db}.made") == [5]
    assert lake.ids(f"inside.{db}.moved") == [1]
    tx.commit()
    prepared.commit()
    assert lake.ids(f"other.{db}.staged") == [1, 2]
    assert lake.ids(f"other.{db}.made") == [5]
    assert lake.ids(f"other.{db}.prepared") == [1, 2]
    # The same rows in Spark and in PyIceberg.
    assert client.tables.undrop(f"{db}.gone") == (db, "gone")
    assert lake.sql(f"SELECT * FROM other.{db}.gone") == rows
    scanned = client.pyiceberg().load_table((db, "gone")).scan().to_arrow().to_pylist()
    assert [(one["id"], one["name"]) for one in scanned] == rows


def test_what_happens_after_the_listing_is_seen(lake: Lake, db: str, client: Client) -> None:
    lake.fill(f"lake.{db}.t", 1)
    lake.fill(f"lake.{db}.soon", 3)
    tx = client.transaction().begin()
    lake.attach("late", uri=lake.server.url, warehouse=tx.warehouse)
    lake.sql(f"INSERT INTO late.{db}.t VALUES (2, 'late')")
    strays = stray(lake, f"{db}.t", "data/lost.parquet")
    of_dropped = stray(lake, f"{db}.soon", "data/lost.parquet")

    def between() -> None:
        tx.commit()
        lake.sql(f"INSERT INTO lake.{db}.t VALUES (3, 'later')")
        client.tables.drop(f"{db}.soon")

    run(lake, client, between=between)
    assert not any(path.exists() for path in strays)
    assert lake.ids(f"other.{db}.t") == [1, 2, 3]
    assert all(path.exists() for path in of_dropped)
    client.tables.undrop(f"{db}.soon")
    assert lake.ids(f"other.{db}.soon") == [3]


def test_while_others_write_nothing_of_theirs_is_taken(lake: Lake, db: str, client: Client) -> None:
    for table in ("a", "b"):
        lake.fill(f"lake.{db}.{table}", 0)
    strays = stray(lake, f"{db}.a", "data/lost.parquet")
    # What is there is old: it is not age that keeps it.
    for path in files_of(lake, f"{db}.a") | files_of(lake, f"{db}.b"):
        os.utime(path, (1_600_000_000, 1_600_000_000))
    over, wrote, failures = threading.Event(), [0], list[BaseException]()

    def write() -> None:
        number = 0
        try:
            while not over.is_set():
                number += 1
                rows = pa.table({"id": pa.array([number], pa.int64()), "name": [f"w{number}"]})
                if number % 3:
                    client.pyiceberg().load_table((db, "a")).append(rows)
                    wrote.append(number)
                else:
                    with client.transaction() as tx:
                        for table in ("a", "b"):
                            tx.pyiceberg().load_table((db, table)).append(rows)
                    wrote.append(number)
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        # Long enough for whatever is being written now.
        run(lake, client, Wish(600.0, unsafe_any_age=True, parts=2))
    finally:
        over.set()
        writer.join()
    assert not failures, failures
    assert not any(path.exists() for path in strays)
    assert lake.ids(f"other.{db}.a") == wrote
    assert lake.ids(f"other.{db}.b") == [one for one in wrote if one % 3 == 0]


def test_an_age_below_the_life_of_a_transaction_is_refused(lake: Lake, client: Client) -> None:
    with pytest.raises(InvalidRequest, match="may live for 86400 s"):
        run(lake, client, Wish(3_600.0))


def test_nothing_goes_if_a_table_cannot_be_read(lake: Lake, db: str, client: Client) -> None:
    lake.fill(f"lake.{db}.broken", 1)
    strays = stray(lake, f"{db}.broken", "data/lost.parquet")
    [manifest, *_] = [path for path in files_of(lake, f"{db}.broken") if path.suffix == ".avro"]
    aside = manifest.rename(manifest.with_suffix(".aside"))
    try:
        with pytest.raises(Unreadable, match="nothing was deleted"):
            run(lake, client)
        assert all(path.exists() for path in strays)
    finally:
        aside.rename(manifest)


def test_by_the_command_line_young_files_stay(lake: Lake, db: str) -> None:
    lake.fill(f"lake.{db}.t", 1)
    young, old = stray(lake, f"{db}.t", "data/young.parquet"), stray(lake, f"{db}.t", "data/old.parquet")
    week_ago_s = time.time() - 8 * 86_400
    for path in old:
        os.utime(path, (week_ago_s, week_ago_s))
    runner = CliRunner()
    command = ["gc", "orphans", "--uri", lake.server.url]
    assert runner.invoke(app, [*command, "--older-than", "1h"]).exit_code == 2
    assert runner.invoke(app, [*command, "--older-than", "long"]).exit_code == 2
    done = runner.invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    [table] = orjson.loads(done.stdout[done.stdout.index("{") :])["tables"]
    assert (table["table"], table["files"]) == (f"{db}.t", 1)
    assert all(path.exists() for path in young) and not any(path.exists() for path in old)

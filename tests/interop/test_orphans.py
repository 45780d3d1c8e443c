"""The search for orphans takes what nothing leads to, and only that."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

import lakepact.client
from lakepact.cli.app import app
from lakepact.client import Lake as Client
from lakepact.errors import InvalidRequest, Unreadable
from lakepact.spark.jobs.orphans import Found, Wish, search
from tests.support.spark import Lake, path_of

ANY_AGE = Wish(0.0, unsafe_any_age=True)
DELTA_SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


@pytest.fixture
def client(lake: Lake) -> Iterator[Client]:
    with lakepact.client.connect(lake.server.url) as connected:
        yield connected


def files_of(lake: Lake, table: str) -> set[Path]:
    folder = path_of(lake.metadata(table)["location"])
    return {path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")}


def stray(lake: Lake, table: str, *names: str) -> set[Path]:
    """Files of nobody's in a table's folder."""
    folder = path_of(lake.metadata(table)["location"])
    made = set()
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"nothing")
        made.add(path)
    return made


def run(lake: Lake, client: Client, wish: Wish = ANY_AGE, **more: Any) -> Found:
    return search(lake.spark, client, wish, **more)


def test_what_nothing_leads_to_goes_and_everything_else_stays(lake: Lake, db: str, client: Client) -> None:
    lake.fill(f"lake.{db}.t", 1, 2, options="PARTITIONED BY (name)")
    lake.sql(
        f"ALTER TABLE lake.{db}.t CREATE TAG old AS OF VERSION {
            lake.one(f'SELECT min(snapshot_id) FROM lake.{db}.t.snapshots')
        }"
    )
    lake.sql(f"ALTER TABLE lake.{db}.t CREATE BRANCH side")
    lake.sql(f"INSERT INTO lake.{db}.t.branch_side VALUES (3, 'side')")
    lake.fill(f"lake.{db}.u", 7)
    lake.sql(f"CALL lake.system.compute_table_stats(table => '{db}.u')")
    kept = files_of(lake, f"{db}.t") | files_of(lake, f"{db}.u")
    strays = stray(lake, f"{db}.t", "data/name=n1/lost.parquet", "metadata/lost.avro", "data/deep/er/and/er/x.parquet")
    dry = run(lake, client, Wish(0.0, dry_run=True, unsafe_any_age=True))
    mine = next(one for one in dry.tables if one.table == f"{db}.t")
    assert (mine.files, mine.bytes, mine.failed) == (3, 21, 0)
    assert all(path.is_file() for path in strays | kept)
    done = run(lake, client)
    assert not any(path.exists() for path in strays)
    assert files_of(lake, f"{db}.t") | files_of(lake, f"{db}.u") == kept
    assert lake.ids(f"other.{db}.t") == [1, 2]
    assert lake.ids(f"other.{db}.t.branch_side") == [1, 2, 3]
    told = [
        orjson.loads(line) for part in path_of(done.report).glob("*.jsonl") for line in part.read_bytes().splitlines()
    ]
    assert strays <= {path_of(one["path"]) for one in told}
    assert {one["rule"] for one in told} == {"orphans"} and all(one["why"] for one in told)
    # Again there is nothing.
    assert run(lake, client).files == 0


def test_what_transactions_have_staged_and_still_see_stays(lake: Lake, db: str, client: Client) -> None:
    lake.fill(f"lake.{db}.t", 1)
    lake.fill(f"lake.{db}.moved", 1)
    with client.transaction() as tx:
        lake.attach("inside", uri=lake.server.url, warehouse=tx.warehouse)
        lake.sql(f"INSERT INTO inside.{db}.t VALUES (2, 'staged')")
        lake.sql(f"CREATE TABLE inside.{db}.made AS SELECT 5 AS id")
        assert lake.ids(f"inside.{db}.moved") == [1]
        # Outside the table moves on, and lets go of what the transaction sees.
        lake.sql(f"INSERT OVERWRITE lake.{db}.moved VALUES (9, 'new')")
        strays = stray(lake, f"{db}.t", "data/lost.parquet")
        run(lake, client)
        assert not any(path.exists() for path in strays)
        assert lake.ids(f"inside.{db}.t") == [1, 2]
        assert lake.ids(f"inside.{db}.made") == [5]
        assert lake.ids(f"inside.{db}.moved") == [1]
    assert lake.ids(f"other.{db}.t") == [1, 2]
    assert lake.ids(f"other.{db}.made") == [5]
    # What an aborted one has staged for a table that is there is nobody's.
    before = files_of(lake, f"{db}.t")
    tx = client.transaction().begin()
    lake.attach("given_up", uri=lake.server.url, warehouse=tx.warehouse)
    lake.sql(f"INSERT INTO given_up.{db}.t VALUES (3, 'never')")
    assert files_of(lake, f"{db}.t") > before
    tx.abort()
    run(lake, client)
    assert files_of(lake, f"{db}.t") <= before
    assert lake.ids(f"other.{db}.t") == [1, 2]


def test_a_prepared_transaction_keeps_its_files(lake: Lake, db: str, client: Client) -> None:
    lake.fill(f"lake.{db}.t", 1)
    tx = client.transaction().begin()
    lake.attach("stalled", uri=lake.server.url, warehouse=tx.warehouse)
    lake.sql(f"INSERT INTO stalled.{db}.t VALUES (2, 'prepared')")
    assert lake.rest("POST", f"transactions/{tx.id}/prepare", {}).status == 200
    run(lake, client)
    assert lake.rest("POST", f"transactions/{tx.id}/commit", {}).status == 200
    assert lake.ids(f"other.{db}.t") == [1, 2]


def test_a_file_that_is_committed_after_it_was_listed_stays(lake: Lake, db: str, client: Client) -> None:
    lake.fill(f"lake.{db}.t", 1)
    tx = client.transaction().begin()
    lake.attach("late", uri=lake.server.url, warehouse=tx.warehouse)
    lake.sql(f"INSERT INTO late.{db}.t VALUES (2, 'late')")
    strays = stray(lake, f"{db}.t", "data/lost.parquet")

    def between() -> None:
        tx.commit()
        lake.sql(f"INSERT INTO lake.{db}.t VALUES (3, 'later')")

    run(lake, client, between=between)
    assert not any(path.exists() for path in strays)
    assert lake.ids(f"other.{db}.t") == [1, 2, 3]


def test_dropped_tables_come_back_whole_and_what_was_dropped_in_between_is_left_alone(
    lake: Lake, db: str, client: Client
) -> None:
    lake.fill(f"lake.{db}.t", 1, 2)
    lake.fill(f"lake.{db}.soon", 3)
    rows = lake.sql(f"SELECT * FROM lake.{db}.t ORDER BY id")
    strays = stray(lake, f"{db}.soon", "data/lost.parquet")
    client.tables.drop(f"{db}.t", purge=True)
    run(lake, client, between=lambda: client.tables.drop(f"{db}.soon"))
    assert all(path.exists() for path in strays)
    assert client.tables.undrop(f"{db}.t") == (db, "t")
    assert client.tables.undrop(f"{db}.soon") == (db, "soon")
    # The same rows in Spark and in PyIceberg.
    assert lake.sql(f"SELECT * FROM other.{db}.t ORDER BY id") == rows
    scanned = client.pyiceberg().load_table((db, "t")).scan().to_arrow().sort_by("id").to_pylist()
    assert [(one["id"], one["name"]) for one in scanned] == rows
    assert lake.ids(f"other.{db}.soon") == [3]


def test_files_of_delta_tables_stay_as_long_as_a_version_needs_them(lake: Lake, db: str, client: Client) -> None:
    add, remove = "add", "remove"

    def fact(path: str) -> dict[str, Any]:
        return {"path": path, "partitionValues": {}, "size": 7, "modificationTime": 1, "dataChange": True}

    def commit(table: str, *actions: dict[str, Any]) -> None:
        answer = lake.rest("POST", f"namespaces/{db}/delta-tables/{table}", {"actions": list(actions)})
        assert answer.status == 200, answer

    places: dict[str, Path] = {}
    for table, kept in (("short", "interval 0 seconds"), ("long", "interval 1 week")):
        made = client.delta.create(
            f"{db}.{table}", DELTA_SCHEMA, configuration={"delta.deletedFileRetentionDuration": kept}, mirrors=()
        )
        places[table] = path_of(made.location)
        (places[table] / "p=a b").mkdir(parents=True)
        for name in ("live.parquet", "gone.parquet", "lost.parquet", "staged.parquet", "p=a b/x.parquet"):
            (places[table] / name).write_bytes(b"nothing")
        (places[table] / "_delta_log").mkdir(exist_ok=True)
        (places[table] / "_delta_log" / "other").write_bytes(b"x")
        commit(table, {add: fact("live.parquet")}, {add: fact("gone.parquet")}, {add: fact("p=a%20b/x.parquet")})
        commit(table, {remove: {"path": "gone.parquet", "dataChange": True, "deletionTimestamp": 1}})
    tx = client.transaction().begin()
    staged = {"actions": [{add: fact("staged.parquet")}]}
    for table in places:
        path = f"{lake.server.url}/v1/main@{tx.id}/namespaces/{db}/delta-tables/{table}"
        assert lake.rest("POST", f"../main@{tx.id}/namespaces/{db}/delta-tables/{table}", staged).status == 200, path
    run(lake, client)

    def there(table: str) -> set[str]:
        return {str(path.relative_to(places[table])) for path in places[table].rglob("*") if path.is_file()}

    every = {"live.parquet", "staged.parquet", "p=a b/x.parquet", "_delta_log/other"}
    # The server keeps what its longest transaction may have seen, whatever the table says.
    assert there("long") == every | {"gone.parquet"}
    assert there("short") == every | {"gone.parquet"}
    tx.abort()
    run(lake, client)
    assert there("long") == every - {"staged.parquet"} | {"gone.parquet"}


def test_an_age_below_the_life_of_a_transaction_is_refused(lake: Lake, client: Client) -> None:
    with pytest.raises(InvalidRequest, match="may live for 86400 s"):
        run(lake, client, Wish(3_600.0))


def test_young_files_stay(lake: Lake, db: str, client: Client) -> None:
    lake.fill(f"lake.{db}.t", 1)
    young, old = stray(lake, f"{db}.t", "data/young.parquet"), stray(lake, f"{db}.t", "data/old.parquet")
    week_ago_s = time.time() - 8 * 86_400
    for path in old:
        os.utime(path, (week_ago_s, week_ago_s))
    assert run(lake, client, Wish(7 * 86_400.0)).files == 1
    assert all(path.exists() for path in young) and not any(path.exists() for path in old)


def test_nothing_goes_if_a_table_cannot_be_read(lake: Lake, db: str, client: Client) -> None:
    lake.fill(f"lake.{db}.t", 1)
    lake.fill(f"lake.{db}.broken", 1)
    strays = stray(lake, f"{db}.t", "data/lost.parquet")
    [manifest, *_] = [path for path in files_of(lake, f"{db}.broken") if path.suffix == ".avro"]
    aside = manifest.rename(manifest.with_suffix(".aside"))
    try:
        with pytest.raises(Unreadable, match="nothing was deleted"):
            run(lake, client)
        assert all(path.exists() for path in strays)
    finally:
        aside.rename(manifest)


def test_by_the_command_line(lake: Lake, db: str) -> None:
    lake.fill(f"lake.{db}.t", 1)
    strays = stray(lake, f"{db}.t", "data/lost.parquet")
    command = ["gc", "orphans", "--uri", lake.server.url, "--older-than", "0s"]
    runner = CliRunner()
    assert runner.invoke(app, command).exit_code == 2
    dry = runner.invoke(app, [*command, "--unsafe-any-age", "--dry-run", "--json"])
    assert dry.exit_code == 0, dry.output
    assert any(one["table"] == f"{db}.t" and one["files"] == 1 for one in orjson.loads(dry.stdout)["tables"])
    done = runner.invoke(app, [*command, "--unsafe-any-age"])
    assert done.exit_code == 0, done.output
    assert "lost.parquet" in done.stdout
    assert not any(path.exists() for path in strays)

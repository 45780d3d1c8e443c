"""Mirrors of a server's tables, made by the command and read by engines as they are: delta-rs, DuckDB with its delta
extension, and DuckDB over the file of views, for tables that PyIceberg and DuckDB have written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.types import DoubleType

from lakepact.delta.engine_types import from_arrow
from lakepact.delta.paths import encode_path, partition_path
from lakepact.delta.schema import dump
from tests.support.duckdb_iceberg import connect, extension_path
from tests.support.live_tables import catalog_at
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S, wait_until

IDS = pa.schema([("id", pa.int64()), ("v", pa.string())])
BOTH = {"LAKEPACT_MIRRORS": '["delta_log","duckdb"]'}
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("mirrors"), env=BOTH) as running:
        catalog_at(running.url).create_namespace("db")
        yield running


def send(server: Server, path: str, body: Any) -> Any:
    request = urllib.request.Request(
        f"{server.url}/v1/main{path}", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with _OPENER.open(request, timeout=PATIENCE_S) as answer:
            content = answer.read()
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from None
    return json.loads(content) if content else None


def create(server: Server, name: str, schema: pa.Schema, partitions: tuple[str, ...] = ()) -> Path:
    """A Delta table that both engines follow; its folder."""
    made = send(
        server,
        "/namespaces/db/delta-tables",
        {
            "name": name,
            "schema": dump(from_arrow(schema)),
            "partition-columns": list(partitions),
            "mirrors": ["delta_log", "duckdb"],
        },
    )
    location: str = made["metadata-location"] if "metadata-location" in made else made["metadata"]["location"]
    return Path(location.removeprefix("file://").partition("/_delta_log")[0])


def added(folder: Path, rows: pa.Table, partition: Mapping[str, str | None] | None = None) -> dict[str, Any]:
    partition = partition or {}
    path = (partition_path(partition, list(partition)) + "/" if partition else "") + f"{uuid.uuid4()}.parquet"
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, folder / path)
    return {
        "add": {
            "path": encode_path(path),
            "partitionValues": dict(partition),
            "size": (folder / path).stat().st_size,
            "modificationTime": 1_767_225_600_000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows.num_rows}),
        }
    }


def commit(server: Server, changes: Mapping[str, list[dict[str, Any]]]) -> None:
    send(
        server,
        "/transactions/commit",
        {
            "table-changes": [],
            "delta-changes": [
                {"identifier": {"namespace": ["db"], "name": name}, "actions": actions}
                for name, actions in changes.items()
            ],
        },
    )


def mirror(server: Server, *arguments: str) -> Any:
    """The command, on the server's own store."""
    done = subprocess.run(
        [sys.executable, "-m", "lakepact", "mirror", *arguments, "--json"],
        env={**os.environ, "LAKEPACT_DATA": str(server.folder / "data"), **BOTH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def bring_into_step(server: Server) -> None:
    """Run the command until every mirror is in step.

    The server mirrors too. The command leaves alone what the server is at, and then reports it.
    """
    wait_until(lambda: mirror(server, "run", "--once") == {"behind": []}, lambda: str(mirror(server, "status")))


def viewed(server: Server, query: str) -> list[tuple[Any, ...]]:
    path = server.folder / "data" / "warehouse" / "_mirrors" / "lakepact.duckdb"
    # Python's DuckDB keeps a database that is open under its name: this one is replaced while others look at it.
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{path}' AS lake (READ_ONLY)")
        connection.execute("USE lake")
        return connection.execute(query).fetchall()


def with_delta(folder: Path, query: str = "SELECT * FROM {} ORDER BY ALL") -> list[tuple[Any, ...]]:
    with duckdb.connect(config={"autoinstall_known_extensions": "false"}) as connection:
        connection.execute(f"LOAD '{extension_path('delta')}'")
        return connection.execute(query.format(f"delta_scan('file://{folder}')")).fetchall()


def test_a_mirrored_table_is_read_alike_by_everybody(server: Server) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.string()), ("day", pa.date32()), ("kind", pa.string())])
    folder = create(server, "events", schema, ("day", "kind"))
    expected = []
    for number in range(12):
        values = {"day": f"2026-01-{number + 1:02}", "kind": None if number % 3 == 0 else f"a:b {number}%"}
        commit(server, {"events": [added(folder, pa.table({"id": [number], "v": [f"v{number}"]}), values)]})
        expected.append((number, f"v{number}", values["day"], values["kind"]))
    bring_into_step(server)

    read = DeltaTable(str(folder)).to_pyarrow_table()
    by_delta_rs = sorted((row["id"], row["v"], str(row["day"]), row["kind"]) for row in read.to_pylist())
    by_extension = [(row[0], row[1], str(row[2]), row[3]) for row in with_delta(folder)]
    by_view = [(row[0], row[1], str(row[2]), row[3]) for row in viewed(server, "SELECT * FROM db.events ORDER BY id")]
    assert by_delta_rs == by_extension == by_view == expected
    assert DeltaTable(str(folder)).version() == 12
    status = mirror(server, "status", "--table", "db.events")
    assert [(one["engine"], one["mirrored_version"], one["lag_ms"], one["state"]) for one in status] == [
        ("delta_log", 12, 0, "active"),
        ("duckdb", 12, 0, "active"),
    ]


def test_a_foreign_writer_is_refused_by_the_protocol(server: Server) -> None:
    folder = create(server, "guarded", IDS)
    bring_into_step(server)
    with pytest.raises(Exception, match=r"(?i)feature|writer"):
        write_deltalake(str(folder), pa.table({"id": [1], "v": ["x"]}, IDS), mode="append")
    assert DeltaTable(str(folder)).version() == 0


def test_a_forked_log_is_told_and_left_alone(server: Server) -> None:
    folder = create(server, "forked", IDS)
    bring_into_step(server)
    theirs = folder / "_delta_log" / f"{1:020}.json"
    theirs.write_text("{}\n")
    commit(server, {"forked": [added(folder, pa.table({"id": [1], "v": ["a"]}, IDS))]})

    def conflict() -> list[dict[str, Any]] | None:
        behind: list[dict[str, Any]] = mirror(server, "run", "--once")["behind"]
        found = [(one["table"], one["engine"], one["state"]) for one in behind]
        return behind if found == [("db.forked", "delta_log", "conflict")] else None

    behind = wait_until(conflict, lambda: str(mirror(server, "status"))) or []
    assert theirs.name in behind[0]["last_error"]
    assert theirs.read_text() == "{}\n"
    theirs.unlink()
    assert mirror(server, "retry", "--table", "db.forked", "--engine", "delta_log") == {"retried": 1}
    bring_into_step(server)
    assert DeltaTable(str(folder)).version() == 1


# --- Iceberg tables in the DuckDB file ---


def test_iceberg_tables_are_viewed_as_they_are(server: Server) -> None:
    catalog = catalog_at(server.url)
    table = catalog.create_table(("db", "ice"), IDS)
    mirror(server, "run", "--once")
    assert viewed(server, "SELECT * FROM db.ice") == []
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}, IDS))
    with table.update_schema() as update:
        update.add_column("w", DoubleType())
        update.rename_column("v", "word")
    table.append(pa.table({"id": [3], "word": ["c"], "w": [0.5]}))
    mirror(server, "run", "--once")
    assert viewed(server, "SELECT id, word, w FROM db.ice ORDER BY id") == [
        (1, "a", None),
        (2, "b", None),
        (3, "c", 0.5),
    ]
    with table.update_schema() as update:
        update.delete_column("word")
    with table.update_schema() as update:
        update.add_column("word", DoubleType())
    table.delete("id = 2")
    mirror(server, "run", "--once")
    # A new column of an old name is a new column.
    assert viewed(server, "SELECT id, word, w FROM db.ice ORDER BY id") == [(1, None, None), (3, None, 0.5)]


def test_partitioned_iceberg_tables_are_viewed_as_they_are(server: Server) -> None:
    schema = pa.schema([("id", pa.int64()), ("kind", pa.string())])
    table = catalog_at(server.url).create_table(("db", "parted"), schema)
    with table.update_spec() as update:
        update.add_identity("kind")
    table.append(pa.table({"id": [1, 2, 3], "kind": ["x", None, "a b"]}, schema))
    mirror(server, "run", "--once")
    assert viewed(server, "SELECT * FROM db.parted ORDER BY id") == [(1, "x"), (2, None), (3, "a b")]


def test_deleted_rows_of_iceberg_tables_are_gone(server: Server) -> None:
    with connect(server.url) as writer:
        writer.execute("CREATE TABLE lake.db.shrinking AS SELECT range AS id, 'v' || range AS v FROM range(10)")
        writer.execute("INSERT INTO lake.db.shrinking SELECT range + 10, 'w' FROM range(5)")
        writer.execute("DELETE FROM lake.db.shrinking WHERE id IN (3, 4, 12)")
    files = catalog_at(server.url).load_table("db.shrinking").inspect.files().to_pylist()
    assert {one["content"] for one in files} == {0, 1}, "DuckDB has written position deletes"
    mirror(server, "run", "--once")
    found = [row[0] for row in viewed(server, "SELECT id FROM db.shrinking ORDER BY id")]
    assert found == [number for number in range(15) if number not in (3, 4, 12)]


def test_both_formats_are_in_one_file(server: Server) -> None:
    folder = create(server, "labels", IDS)
    table = catalog_at(server.url).create_table(("db", "features"), IDS)
    table.append(pa.table({"id": [1], "v": ["f"]}, IDS))
    commit(server, {"labels": [added(folder, pa.table({"id": [1], "v": ["l"]}, IDS))]})
    bring_into_step(server)
    joined = viewed(server, "SELECT f.id, f.v, l.v FROM db.features f JOIN db.labels l USING (id)")
    assert joined == [(1, "f", "l")]
    told = viewed(
        server, "SELECT table_name, format, reason FROM _lakepact.tables WHERE table_name IN ('features', 'labels')"
    )
    assert sorted(told) == [("features", "iceberg", None), ("labels", "delta", None)]


def test_spark_reads_the_tables_of_a_cut_and_may_not_write(server: Server, tmp_path: Path) -> None:
    """By path, with delta-spark as it is: the newest versions, and those of the manifest."""
    plain, parted = create(server, "s1", IDS), create(server, "s2", IDS.append(pa.field("p", pa.string())), ("p",))
    for number in range(1, 12):
        rows = pa.table({"id": [number], "v": [f"v{number}"]}, IDS)
        commit(server, {"s1": [added(plain, rows)], "s2": [added(parted, rows, {"p": f"a:b {number % 2}"})]})
    bring_into_step(server)
    manifest = json.loads((server.folder / "data" / "warehouse" / "_transactions" / "latest").read_bytes())
    pinned = [[location, version] for location, version in manifest["tables"].items() if "/db/s" in location]
    assert [version for _, version in pinned] == [11, 11]
    asked = [[str(plain), None], [str(parted), None], *pinned, [str(plain), 5]]
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.mirror_reader", str(tmp_path), json.dumps(asked)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    simple = [{"id": number, "v": f"v{number}"} for number in range(1, 12)]
    with_p = [{**row, "p": f"a:b {number % 2}"} for number, row in enumerate(simple, 1)]
    assert found["rows"][:2] == [simple, with_p]
    assert sorted(map(json.dumps, found["rows"][2:4])) == sorted(map(json.dumps, [simple, with_p]))
    assert found["rows"][4] == simple[:5]
    assert [one["version"] for one in found["history"]] == list(range(11, -1, -1))
    assert found["history"][-1]["operation"] == "CREATE TABLE"
    assert found["history"][-1]["operationParameters"]["partitionBy"] == '["p"]'
    assert found["refusal"] is not None and "x-lakepact-managed" in found["refusal"]
    assert not (plain / "_delta_log" / f"{12:020}.json").exists()


def test_the_command_keeps_mirrors_in_step_until_it_is_stopped(server: Server) -> None:
    folder = create(server, "kept", IDS)
    command = subprocess.Popen(
        [sys.executable, "-m", "lakepact", "mirror", "run"],
        env={**os.environ, "LAKEPACT_DATA": str(server.folder / "data"), "LAKEPACT_MIRROR_INTERVAL_S": "0.2", **BOTH},
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    try:
        assert command.stdout is not None and "kept in step" in command.stdout.readline()
        for version in (0, 1):
            deadline = time.monotonic() + PATIENCE_S
            while not (folder / "_delta_log" / f"{version:020}.json").exists():
                assert command.poll() is None and time.monotonic() < deadline
                time.sleep(0.05)
            if version == 0:
                commit(server, {"kept": [added(folder, pa.table({"id": [1], "v": ["a"]}, IDS))]})
    finally:
        command.terminate()
        told, _ = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, told

"""DuckDB with its iceberg extension, as it is, against a server process: transactions over several tables, whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.support.duckdb_iceberg import EXTENSIONS, connect, extension_path
from tests.support.live_tables import (
    Scanned,
    catalog_at,
    requests,
    scan_live_tables,
    scanned_after_refusals,
    statuses,
)
from tests.support.server import Server, running_server
from tests.support.waiting import wait_until

SCANS: list[Scanned] = []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("duckdb")) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_live_is_deleted(server: Server) -> Iterator[None]:
    """After every test in which the server answered 409 or 5xx, every live table is read in full."""
    with scanned_after_refusals(server) as scans:
        yield
    SCANS.extend(scans)


@pytest.fixture
def lake(server: Server) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = connect(server.url)
    yield connection
    connection.close()


@pytest.fixture
def other(server: Server) -> Iterator[duckdb.DuckDBPyConnection]:
    """A second DuckDB, which knows nothing of the first."""
    connection = connect(server.url)
    yield connection
    connection.close()


@pytest.fixture
def schema(server: Server, request: pytest.FixtureRequest) -> str:
    """A namespace of this test's own."""
    name: str = request.node.name.removeprefix("test_")[:50].replace("[", "_").replace("]", "")
    catalog_at(server.url).create_namespace(name)
    return name


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return connection.execute(query).fetchall()


def seen_by_pyiceberg(server: Server, schema: str, table: str) -> list[int]:
    """The ids in a table, read by somebody else."""
    found = catalog_at(server.url).load_table((schema, table)).scan().to_arrow()
    return sorted(found["id"].to_pylist())


def test_the_versions_are_the_ones_that_are_pinned_and_signatures_are_checked(lake: duckdb.DuckDBPyConnection) -> None:
    assert duckdb.__version__ == "1.5.5"
    assert rows(lake, "SELECT current_setting('allow_unsigned_extensions')") == [(False,)]
    loaded = rows(lake, "SELECT extension_name FROM duckdb_extensions() WHERE loaded ORDER BY 1")
    assert {(name,) for name in EXTENSIONS} <= set(loaded)


def test_an_extension_that_was_tampered_with_is_not_loaded(tmp_path: Path) -> None:
    whole = bytearray(extension_path("avro").read_bytes())
    whole[5_000] ^= 1
    changed = tmp_path / "avro.duckdb_extension"
    changed.write_bytes(whole)
    with pytest.raises(duckdb.IOException, match="signature"):
        duckdb.connect().execute(f"LOAD '{changed}'")


def test_what_others_wrote_is_read(lake: duckdb.DuckDBPyConnection, server: Server, schema: str) -> None:
    table = catalog_at(server.url).create_table((schema, "t"), pa.schema([("id", pa.int64()), ("v", pa.string())]))
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"]}))
    table.append(pa.table({"id": [3], "v": ["c"]}))
    assert rows(lake, f"SELECT * FROM lake.{schema}.t ORDER BY id") == [(1, "a"), (2, "b"), (3, "c")]
    first = table.history()[0].snapshot_id
    assert rows(lake, f"SELECT count(*) FROM lake.{schema}.t AT (VERSION => {first})") == [(2,)]
    names = rows(lake, f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{schema}'")
    assert names == [("t",)]


def test_a_table_is_created_and_written_and_others_read_it(
    lake: duckdb.DuckDBPyConnection, server: Server, schema: str
) -> None:
    lake.execute(f"CREATE TABLE lake.{schema}.t (id BIGINT, v VARCHAR, d DECIMAL(10, 2), made TIMESTAMP)")
    lake.execute(f"INSERT INTO lake.{schema}.t VALUES (1, 'a', 1.50, TIMESTAMP '2026-01-01'), (2, NULL, NULL, NULL)")
    lake.execute(f"INSERT INTO lake.{schema}.t SELECT range + 3, 'x', 0, now()::TIMESTAMP FROM range(1000)")
    assert rows(lake, f"SELECT count(*), sum(id) FROM lake.{schema}.t") == [(1_002, sum(range(1, 1_003)))]
    assert seen_by_pyiceberg(server, schema, "t") == list(range(1, 1_003))


def test_a_table_is_created_from_a_query(lake: duckdb.DuckDBPyConnection, server: Server, schema: str) -> None:
    lake.execute(f"CREATE TABLE lake.{schema}.t AS SELECT range AS id, 'x' AS v FROM range(10)")
    assert rows(lake, f"SELECT count(*) FROM lake.{schema}.t") == [(10,)]
    assert seen_by_pyiceberg(server, schema, "t") == list(range(10))
    lake.execute(f"CREATE TABLE lake.{schema}.u AS SELECT id FROM lake.{schema}.t WHERE id > 7")
    assert seen_by_pyiceberg(server, schema, "u") == [8, 9]


def test_rows_are_updated_and_deleted(lake: duckdb.DuckDBPyConnection, server: Server, schema: str) -> None:
    lake.execute(f"CREATE TABLE lake.{schema}.t AS SELECT range AS id, 'x' AS v FROM range(5)")
    lake.execute(f"UPDATE lake.{schema}.t SET v = 'y' WHERE id = 1")
    lake.execute(f"DELETE FROM lake.{schema}.t WHERE id >= 3")
    assert rows(lake, f"SELECT id, v FROM lake.{schema}.t ORDER BY id") == [(0, "x"), (1, "y"), (2, "x")]
    assert seen_by_pyiceberg(server, schema, "t") == [0, 1, 2]


def test_schemas_and_tables_are_made_listed_and_dropped(lake: duckdb.DuckDBPyConnection, server: Server) -> None:
    lake.execute("CREATE SCHEMA lake.made_by_duckdb")
    lake.execute("CREATE TABLE lake.made_by_duckdb.t (id BIGINT)")
    catalog = catalog_at(server.url)
    assert catalog.list_tables("made_by_duckdb") == [("made_by_duckdb", "t")]
    lake.execute("DROP TABLE lake.made_by_duckdb.t")
    assert catalog.list_tables("made_by_duckdb") == []
    lake.execute("DROP SCHEMA lake.made_by_duckdb")
    assert ("made_by_duckdb",) not in catalog.list_namespaces()


@pytest.mark.parametrize("name", ["with space", "with-dash", "Grüße", "UPPER"])
def test_an_odd_name_is_created_and_read(
    lake: duckdb.DuckDBPyConnection, server: Server, schema: str, name: str
) -> None:
    lake.execute(f'CREATE TABLE lake."{schema}"."{name}" AS SELECT 1 AS id')
    assert rows(lake, f'SELECT id FROM lake."{schema}"."{name}"') == [(1,)]


# --- several tables ---


def _two_tables(connection: duckdb.DuckDBPyConnection, schema: str) -> None:
    for table in ("a", "b"):
        connection.execute(f"CREATE TABLE lake.{schema}.{table} AS SELECT 0 AS id")


def test_a_transaction_over_several_tables_is_one_commit(
    lake: duckdb.DuckDBPyConnection, other: duckdb.DuckDBPyConnection, server: Server, schema: str
) -> None:
    _two_tables(lake, schema)
    start = server.log_end()
    lake.execute("BEGIN")
    lake.execute(f"INSERT INTO lake.{schema}.a VALUES (1)")
    lake.execute(f"INSERT INTO lake.{schema}.b VALUES (1)")
    lake.execute(f"INSERT INTO lake.{schema}.a VALUES (2)")
    assert rows(other, f"SELECT count(*) FROM lake.{schema}.a") == [(1,)], "nothing is seen before the commit"
    lake.execute("COMMIT")
    operations = [request["operation"] for request in requests(server, start)]
    assert operations.count("commitTransaction") == 1
    assert "updateTable" not in operations
    assert seen_by_pyiceberg(server, schema, "a") == [0, 1, 2]
    assert seen_by_pyiceberg(server, schema, "b") == [0, 1]


def test_a_rollback_leaves_nothing_behind(lake: duckdb.DuckDBPyConnection, server: Server, schema: str) -> None:
    _two_tables(lake, schema)
    before = [catalog_at(server.url).load_table((schema, table)).metadata_location for table in ("a", "b")]
    lake.execute("BEGIN")
    for table in ("a", "b"):
        lake.execute(f"INSERT INTO lake.{schema}.{table} VALUES (1)")
    lake.execute("ROLLBACK")
    after = [catalog_at(server.url).load_table((schema, table)).metadata_location for table in ("a", "b")]
    assert after == before
    assert rows(lake, f"SELECT count(*) FROM lake.{schema}.a") == [(1,)]


@pytest.mark.parametrize("moved", ["a", "b"])
def test_a_conflict_in_the_middle_leaves_nothing_behind(
    lake: duckdb.DuckDBPyConnection, other: duckdb.DuckDBPyConnection, server: Server, schema: str, moved: str
) -> None:
    """Whichever of the two tables has moved, neither shows anything of the transaction. PyIceberg is the witness."""
    _two_tables(lake, schema)
    start = server.log_end()
    lake.execute("BEGIN")
    lake.execute(f"INSERT INTO lake.{schema}.a VALUES (1)")
    lake.execute(f"INSERT INTO lake.{schema}.b VALUES (1)")
    other.execute(f"INSERT INTO lake.{schema}.{moved} VALUES (9)")
    with pytest.raises(duckdb.Error, match=r"CommitFailedException|409"):
        lake.execute("COMMIT")
    wait_until(lambda: 409 in statuses(server, start), "the server has logged no 409")
    expected = {"a": [0], "b": [0]} | {moved: [0, 9]}
    assert {table: seen_by_pyiceberg(server, schema, table) for table in ("a", "b")} == expected
    scan_live_tables(server.url)
    # And it goes on: the same work, on what is there now.
    for connection in (lake, other):
        connection.execute("BEGIN")
        for table in ("a", "b"):
            connection.execute(f"INSERT INTO lake.{schema}.{table} VALUES (2)")
        connection.execute("COMMIT")
    assert {table: seen_by_pyiceberg(server, schema, table) for table in ("a", "b")} == {
        table: sorted([*before, 2, 2]) for table, before in expected.items()
    }


def test_a_conflict_with_pyiceberg_leaves_nothing_behind(
    lake: duckdb.DuckDBPyConnection, server: Server, schema: str
) -> None:
    _two_tables(lake, schema)
    lake.execute("BEGIN")
    for table in ("a", "b"):
        lake.execute(f"INSERT INTO lake.{schema}.{table} VALUES (1)")
    theirs = catalog_at(server.url).load_table((schema, "b"))
    theirs.append(pa.table({"id": pa.array([7], pa.int32())}))
    with pytest.raises(duckdb.Error, match=r"CommitFailedException|409"):
        lake.execute("COMMIT")
    assert seen_by_pyiceberg(server, schema, "a") == [0]
    assert seen_by_pyiceberg(server, schema, "b") == [0, 7]


def test_a_drop_in_the_middle_leaves_nothing_behind(
    lake: duckdb.DuckDBPyConnection, other: duckdb.DuckDBPyConnection, server: Server, schema: str
) -> None:
    _two_tables(lake, schema)
    lake.execute("BEGIN")
    for table in ("a", "b"):
        lake.execute(f"INSERT INTO lake.{schema}.{table} VALUES (1)")
    other.execute(f"DROP TABLE lake.{schema}.b")
    with pytest.raises(duckdb.Error):
        lake.execute("COMMIT")
    assert seen_by_pyiceberg(server, schema, "a") == [0]


def test_a_table_created_in_a_transaction_is_not_seen_before_its_commit(
    lake: duckdb.DuckDBPyConnection, server: Server, schema: str
) -> None:
    catalog = catalog_at(server.url)
    lake.execute("BEGIN")
    lake.execute(f"CREATE TABLE lake.{schema}.t (id BIGINT)")
    lake.execute(f"INSERT INTO lake.{schema}.t VALUES (1)")
    assert catalog.list_tables(schema) == []
    lake.execute("COMMIT")
    assert seen_by_pyiceberg(server, schema, "t") == [1]
    lake.execute("BEGIN")
    lake.execute(f"CREATE TABLE lake.{schema}.u (id BIGINT)")
    lake.execute("ROLLBACK")
    assert catalog.list_tables(schema) == [(schema, "t")]


def test_without_multi_table_transactions_one_table_still_works(tmp_path: Path) -> None:
    """The endpoint is not advertised, so DuckDB commits table by table."""
    with running_server(tmp_path, "--no-multi-table-transactions") as server:
        catalog_at(server.url).create_namespace("db")
        lake = connect(server.url)
        lake.execute("CREATE TABLE lake.db.t AS SELECT 1 AS id")
        lake.execute("INSERT INTO lake.db.t VALUES (2)")
        assert "commitTransaction" not in [request["operation"] for request in requests(server)]
        assert seen_by_pyiceberg(server, "db", "t") == [1, 2]
        lake.close()


def test_after_all_of_this_every_snapshot_of_every_table_is_there(
    lake: duckdb.DuckDBPyConnection, server: Server, schema: str, record_property: Callable[[str, object], None]
) -> None:
    lake.execute(f"CREATE TABLE lake.{schema}.t AS SELECT 1 AS id")
    scanned = scan_live_tables(server.url)
    assert scanned.rows >= 1
    told = statuses(server)
    assert not [status for status in told if status >= 500]
    refused = sum(status == 409 for status in told)
    record_property(
        "figure",
        f"DuckDB {duckdb.__version__}: {len(told)} requests, {refused} of them 409, none 5xx; {len(SCANS)} scans after "
        f"refusals; at the end {scanned.tables} tables, {scanned.snapshots} snapshots, {scanned.rows} rows read",
    )


def test_a_client_id_is_accepted_by_a_server_without_authentication(server: Server, schema: str) -> None:
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for extension in EXTENSIONS:
        connection.execute(f"LOAD '{extension_path(extension)}'")
    connection.execute(
        f"CREATE SECRET lake_secret (TYPE iceberg, CLIENT_ID 'any', CLIENT_SECRET 'thing', "
        f"OAUTH2_SERVER_URI '{server.url}/v1/oauth/tokens')"
    )
    connection.execute(f"ATTACH 'main' AS lake (TYPE iceberg, ENDPOINT '{server.url}', SECRET lake_secret)")
    connection.execute(f"CREATE TABLE lake.{schema}.t AS SELECT 42 AS id")
    assert rows(connection, f"SELECT id FROM lake.{schema}.t") == [(42,)]
    connection.close()

"""PyIceberg and DuckDB, as they are, on a table in S3 with nothing but what the catalog gives them."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from unittest import mock

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.rest import RestCatalog

from tests.interop.credentials import server_env, without_keys
from tests.support import s3_guarded
from tests.support.duckdb_iceberg import connect
from tests.support.s3_guarded import ROOT_KEY, ROOT_SECRET, Guard
from tests.support.server import Server, running_server

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    with s3_guarded.running() as running:
        yield running


@pytest.fixture(scope="module")
def server(guard: Guard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(
        tmp_path_factory.mktemp("credentials"), env={**server_env(guard), "LAKEPACT_LOG_LEVEL": "debug"}
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def no_keys_here() -> Iterator[None]:
    with mock.patch.dict(os.environ, without_keys(), clear=True):
        yield


@pytest.fixture
def catalog(server: Server, request: pytest.FixtureRequest) -> RestCatalog:
    made = load_catalog("lake", type="rest", uri=server.url, warehouse="main")
    assert isinstance(made, RestCatalog)
    made.create_namespace_if_not_exists(request.node.name)
    return made


def test_pyiceberg_reads_and_writes_with_vended_credentials_alone(catalog: RestCatalog, guard: Guard) -> None:
    db = "test_pyiceberg_reads_and_writes_with_vended_credentials_alone"
    began = len(guard.seen)
    table = catalog.create_table(f"{db}.t", schema=ROWS.schema)
    table.append(ROWS)
    with catalog.create_table_transaction(f"{db}.staged", schema=ROWS.schema) as staging:
        staging.append(ROWS)
    assert catalog.load_table(f"{db}.t").scan().to_arrow().num_rows == 3
    assert catalog.load_table(f"{db}.staged").scan().to_arrow().num_rows == 3
    catalog.load_table(f"{db}.t").delete("id = 2")
    assert sorted(catalog.load_table(f"{db}.t").scan().to_arrow()["id"].to_pylist()) == [1, 3]
    # By keys of their own, and without being refused once.
    theirs = [one for one in guard.seen[began:] if one[0] != ROOT_KEY]
    assert {method for _, method, _, _ in theirs} >= {"GET", "PUT"}
    assert not [one for one in theirs if one[3] == 403], theirs


def test_pyiceberg_fails_on_a_neighbours_table(catalog: RestCatalog) -> None:
    db = "test_pyiceberg_fails_on_a_neighbours_table"
    mine = catalog.create_table(f"{db}.mine", schema=ROWS.schema)
    other = catalog.create_table(f"{db}.other", schema=ROWS.schema)
    other.append(ROWS)
    [file] = [task.file.file_path for task in other.scan().plan_files()]
    assert other.io.new_input(file).open().read(4) == b"PAR1"
    with pytest.raises(OSError, match=r"ACCESS_DENIED|Access Denied|403"):
        mine.io.new_input(file).open().read(4)
    with (
        pytest.raises(OSError, match=r"ACCESS_DENIED|Access Denied|403"),
        mine.io.new_output(f"{file}.2").create() as out,
    ):
        out.write(b"mine")


def test_duckdb_reads_and_writes_with_vended_credentials_alone(
    server: Server, catalog: RestCatalog, guard: Guard
) -> None:
    db = "test_duckdb_reads_and_writes_with_vended_credentials_alone"
    catalog.create_table(f"{db}.t", schema=ROWS.schema).append(ROWS)
    other = catalog.create_table(f"{db}.other", schema=ROWS.schema)
    other.append(ROWS)
    [file] = [task.file.file_path for task in other.scan().plan_files()]
    began = len(guard.seen)
    with connect(server.url) as lake:
        assert lake.sql(f"SELECT sum(id) FROM lake.{db}.t").fetchall() == [(6,)]
        lake.execute(f"INSERT INTO lake.{db}.t VALUES (4)")
        lake.execute(f"CREATE TABLE lake.{db}.made AS SELECT * FROM lake.{db}.t")
        assert lake.sql(f"SELECT sum(id) FROM lake.{db}.made").fetchall() == [(10,)]
        theirs = [one for one in guard.seen[began:] if one[0] != ROOT_KEY]
        assert theirs and not [one for one in theirs if one[3] == 403], theirs
        # It has keys for these two tables now, and none for the third.
        with pytest.raises(duckdb.Error):
            lake.sql(f"SELECT * FROM '{file}'").fetchall()
    assert catalog.load_table(f"{db}.t").scan().to_arrow().num_rows == 4


def test_in_a_transaction_both_write_what_nobody_else_sees(server: Server, catalog: RestCatalog) -> None:
    db = "test_in_a_transaction_both_write_what_nobody_else_sees"
    import lakepact

    catalog.create_table(f"{db}.t", schema=ROWS.schema)
    lake = lakepact.connect(server.url)
    with lake.transaction() as tx:
        inside = load_catalog("inside", type="rest", uri=server.url, warehouse=f"main@{tx.id}")
        inside.load_table(f"{db}.t").append(ROWS)
        inside.create_table(f"{db}.new", schema=ROWS.schema).append(ROWS)
        with connect(server.url, f"main@{tx.id}") as duck:
            assert duck.sql(f"SELECT count(*) FROM lake.{db}.new").fetchall() == [(3,)]
        assert catalog.load_table(f"{db}.t").scan().to_arrow().num_rows == 0
    assert catalog.load_table(f"{db}.new").scan().to_arrow().num_rows == 3


def test_t_vend_8_no_key_is_in_a_log_a_metric_or_an_error(server: Server, catalog: RestCatalog, guard: Guard) -> None:
    db = "test_t_vend_8_no_key_is_in_a_log_a_metric_or_an_error"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    catalog.create_table(f"{db}.t", schema=ROWS.schema).append(ROWS)
    below = f"{server.url}/v1/main/namespaces/{db}/tables"
    body = b'{"name": "u", "schema": {"type": "struct", "fields": []}}'
    opener.open(urllib.request.Request(below, body, {"Content-Type": "application/json"})).close()
    guard.sts_status = 403
    try:
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(f"{below}/u/credentials")
    finally:
        guard.sts_status = 200
    # Lines are written in the background.
    server.log_end()
    seen = [caught.value.read(), opener.open(f"{server.url}/metrics").read(), server.log.read_bytes()]
    assert b"STS" in seen[0] and b"lakepact_credentials_total" in seen[1]
    assert b'"operation":"createTable"' in seen[2] and b"no credentials" in seen[2]
    secrets = [ROOT_SECRET, *(part for one in guard.sessions.values() for part in (one.secret, one.token))]
    assert len(secrets) > 2
    for secret in secrets:
        assert secret.encode() not in b"".join(seen)

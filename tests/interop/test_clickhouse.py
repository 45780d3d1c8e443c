"""ClickHouse, as it is, on tables in S3 with the credentials that the catalog gives it: it leaves prefixes out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakepact
from lakepact.client import Lake
from tests.interop.credentials import server_env, without_keys
from tests.support import s3_guarded
from tests.support.s3_guarded import Guard
from tests.support.server import Server, running_server
from tests.support.wheels import CHDB, run_with

SCRIPT = Path(__file__).parent / "clickhouse_queries.py"
ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    with s3_guarded.running() as running:
        yield running


@pytest.fixture(scope="module")
def server(guard: Guard, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("clickhouse"), env=server_env(guard)) as running:
        yield running


@pytest.fixture
def lake(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    for name, value in without_keys().items():
        monkeypatch.setenv(name, value)
    with lakepact.connect(server.url) as connected:
        yield connected


def attached(name: str, uri: str, warehouse: str = "main") -> str:
    settings = f"catalog_type = 'rest', warehouse = '{warehouse}', vended_credentials = true"
    return f"CREATE DATABASE {name} ENGINE = DataLakeCatalog('{uri}/v1') SETTINGS {settings}"


def clickhouse(*queries: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = json.loads(run_with(CHDB, SCRIPT, *queries).splitlines()[-1])
    return results


def test_clickhouse_reads_tables_with_vended_credentials_in_main_and_inside_a_transaction(lake: Lake) -> None:
    lake.namespaces.create("read")
    lake.pyiceberg().create_table("read.t", ROWS.schema).append(ROWS)
    with lake.transaction() as tx:
        tx.pyiceberg().load_table("read.t").append(ROWS)
        main, inside = clickhouse(
            attached("lake", lake.uri),
            attached("inside", tx.base_uri),
            "SELECT sum(id) FROM lake.`read.t`",
            "SELECT sum(id) FROM inside.`read.t`",
        )[-2:]
    assert (main, inside) == ({"rows": "6"}, {"rows": "12"})


def test_drop_table_of_clickhouse_inside_a_transaction_leaves_main_intact(lake: Lake, server: Server) -> None:
    """It sends the DELETE without the prefix, twice, and reports the answer to the second one."""
    lake.namespaces.create("dropped")
    catalog = lake.pyiceberg()
    for name in ("t", "u"):
        catalog.create_table(f"dropped.{name}", ROWS.schema).append(ROWS)
    tx = lake.transaction().begin()
    *_, dropped, left, refused = clickhouse(
        attached("inside", tx.base_uri),
        attached("by_prefix", lake.uri, tx.warehouse),
        "DROP TABLE inside.`dropped.t`",
        "SHOW TABLES FROM inside",
        "DROP TABLE by_prefix.`dropped.u`",
    )
    assert [name for _, name in tx.tables.list("dropped")] == ["u"], dropped
    assert "dropped.u" in left["rows"] and "dropped.t" not in left["rows"]
    assert f"/in/{lake.warehouse}@<transaction>" in refused["error"]
    assert len(list(lake.tables.list("dropped"))) == 2
    tx.abort()
    for name in ("t", "u"):
        assert catalog.load_table(f"dropped.{name}").scan().to_arrow().num_rows == 3

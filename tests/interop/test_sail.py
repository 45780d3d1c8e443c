"""Sail, as it is, against a server process: it creates tables below the location of their namespace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakepact
from tests.support.live_tables import catalog_at
from tests.support.server import Server, running_server
from tests.support.wheels import SAIL, run_with

SCRIPT = Path(__file__).parent / "sail_statements.py"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("sail")) as running:
        yield running


def sail(uri: str, warehouse: str, *statements: str) -> list[list[Any]]:
    rows: list[list[Any]] = json.loads(run_with(SAIL, SCRIPT, uri, warehouse, *statements).splitlines()[-1])
    return rows


def test_sail_creates_fills_and_reads_tables_in_a_namespace_without_a_location_of_its_own(server: Server) -> None:
    rows = sail(
        server.url,
        "main",
        "CREATE DATABASE made",
        "CREATE TABLE made.t (id BIGINT, name STRING) USING iceberg",
        "INSERT INTO made.t VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE made.copied USING iceberg AS SELECT id + 10 AS id FROM made.t",
        "SELECT t.id, c.id FROM made.t JOIN made.copied c ON c.id = t.id + 10 ORDER BY 1",
    )
    assert rows == [[1, 11], [2, 12]]
    catalog = catalog_at(server.url)
    location = catalog.load_namespace_properties("made")["location"]
    for name in ("t", "copied"):
        table = catalog.load_table(f"made.{name}")
        assert table.location().startswith(f"{location}/")
        assert table.scan().to_arrow().num_rows == 2


def test_sail_works_inside_a_transaction_over_its_base_uri(server: Server) -> None:
    with lakepact.connect(server.url) as lake:
        lake.namespaces.create("staged")
        with lake.transaction() as tx:
            rows = sail(
                tx.base_uri,
                "main",
                "CREATE TABLE staged.t USING iceberg AS SELECT 7 AS id",
                "SELECT id FROM staged.t",
            )
            assert rows == [[7]]
            assert not list(lake.tables.list("staged"))
        assert lake.pyiceberg().load_table("staged.t").scan().to_arrow().num_rows == 1

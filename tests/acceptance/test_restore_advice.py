"""What the operations page says about a restore: its query finds what was committed, and nothing that was not."""

from __future__ import annotations

import re
import time
from pathlib import Path

import duckdb
import pyarrow as pa

import lakepact
from lakepact.client import Lake
from tests.support.server import running_server
from tests.support.waiting import PATIENCE_S

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def query(root: Path, warehouse: Path) -> str:
    page = (root / "docs" / "operations.md").read_text()
    section = page.partition("### What was committed after the backup")[2]
    [found] = re.findall(r"```sql\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    assert "lakepact-data/warehouse/" in found
    return str(found.replace("lakepact-data/warehouse/", f"{warehouse}/"))


def committed(lake: Lake) -> dict[str, str]:
    return {f"db.{name}": lake.tables.load(("db", name)).metadata_location for name in ("a", "b")}


def test_receipts_tell_the_last_committed_version_whatever_was_staged_and_given_up(root: Path, tmp_path: Path) -> None:
    with running_server(tmp_path) as server, lakepact.connect(server.url) as lake:
        warehouse = tmp_path / "data" / "warehouse"
        lake.namespaces.create("db")
        for name in ("a", "b", "gone"):
            lake.pyiceberg().create_table(("db", name), ROWS.schema).append(ROWS)
        lake.tables.drop("db.gone")
        with lake.transaction() as tx:
            for name in ("a", "a", "b"):
                tx.pyiceberg().load_table(("db", name)).append(ROWS)
        given_up = lake.transaction().begin()
        for name in ("a", "a", "b"):
            given_up.pyiceberg().load_table(("db", name)).append(ROWS)
        given_up.abort()
        expected = committed(lake)
        newest = max(warehouse.glob("db/a-*/metadata/*.metadata.json"), key=lambda file: file.stat().st_mtime_ns)
        assert newest.name not in expected["db.a"], "the newest file was never committed"
        until = time.monotonic() + PATIENCE_S
        while True:
            told = duckdb.sql(query(root, warehouse)).fetchall()
            last = {f"db.{name}": (change, location) for _, name, change, location, *_ in told}
            kept = {name: location for name, (change, location) in last.items() if change != "drop"}
            if kept == expected:
                break
            # They are written a moment after the answer.
            assert time.monotonic() < until, last
            time.sleep(0.2)
        assert last["db.gone"][0] == "drop"

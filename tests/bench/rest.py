"""The REST catalog: loads against a bare handler, commits of many tables, what receipts cost and what grows with what.

The server and the load generator are processes of their own; fsync is on everywhere; the store is named in each title.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.load import load
from tests.bench.report import against, say, table
from tests.support.postgres import running_postgres

ROOT = Path(__file__).parents[2]
CLIENTS = 16
RECEIPT_TURNS = 12
SCHEMA = {
    "type": "struct",
    "fields": [{"id": n, "name": f"c{n}", "type": "long", "required": False} for n in range(1, 51)],
}


class Lake:
    """The server under test, and what the bench does to it by hand."""

    def __init__(self, url: str, token: str | None = None, process: int = 0) -> None:
        self.url = url
        self.process = process
        self._token = token

    def send(self, method: str, path: str, body: Any = None, media: str = "application/json") -> bytes:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Content-Type", media)
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        with urllib.request.urlopen(request) as answer:
            found: bytes = answer.read()
        return found

    def table(self, name: str, snapshots: int = 0) -> None:
        made = json.loads(self.send("POST", "/v1/main/namespaces/bench/tables", {"name": name, "schema": SCHEMA}))
        location = made["metadata"]["location"]
        for first in range(0, snapshots, 250):
            numbers = range(first + 1, min(first + 250, snapshots) + 1)
            updates = [{"action": "add-snapshot", "snapshot": snapshot(number, location)} for number in numbers]
            updates.append(set_main(numbers[-1]))
            self.send("POST", f"/v1/main/namespaces/bench/tables/{name}", {"requirements": [], "updates": updates})


def snapshot(number: int, location: str) -> dict[str, Any]:
    return {
        "snapshot-id": 1_000_000 + number,
        **({"parent-snapshot-id": 1_000_000 + number - 1} if number > 1 else {}),
        "sequence-number": number,
        "timestamp-ms": int(time.time() * 1000),
        "manifest-list": f"{location}/metadata/snap-{number}-1-0b3f6c1e-9d5a-4f0e-8a53-5a9d4a0d6f11.avro",
        "summary": {
            "operation": "append",
            "added-data-files": "1",
            "added-records": "1000",
            "added-files-size": "81920",
            "total-records": str(1000 * number),
            "total-files-size": str(81920 * number),
            "total-data-files": str(number),
            "total-delete-files": "0",
        },
        "schema-id": 0,
    }


def set_main(number: int) -> dict[str, Any]:
    return {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": 1_000_000 + number}


@contextmanager
def running(**settings: Any) -> Iterator[Lake]:
    """A server, and a namespace in it."""
    with tempfile.TemporaryDirectory(prefix="lakepact-bench-") as folder:
        given = json.dumps({"data": folder, **settings})
        with subprocess.Popen(
            [sys.executable, "-m", "tests.bench.rest_server", given], stdout=subprocess.PIPE, text=True, cwd=ROOT
        ) as process:
            try:
                assert process.stdout is not None
                lake = Lake(process.stdout.readline().strip(), process=process.pid)
                lake.send("POST", "/v1/main/namespaces", {"namespace": ["bench"]})
                yield lake
            finally:
                process.terminate()


async def run() -> None:
    with running() as lake:
        _loads(lake)
        _history(lake)
        _listing(lake)
    _many_tables()
    _receipts()


# --- loads ---


def _loads(lake: Lake) -> None:
    rows = []
    for snapshots, aim in ((10, 0.4), (1_000, 0.8)):
        name = f"loaded{snapshots}"
        lake.table(name, snapshots)
        path = f"/v1/main/namespaces/bench/tables/{name}"
        body = lake.send("GET", path)
        lake.send("PUT", f"/bare/{name}", body)
        for clients in (1, CLIENTS):
            bare = load(lake.url, [{"method": "GET", "path": f"/bare/{name}"}] * clients)
            ours = load(lake.url, [{"method": "GET", "path": path}] * clients)
            ratio = ours.per_second / bare.per_second
            shown = against(ratio, f"{aim}", met=ratio >= aim)
            rows.append(
                (
                    f"{snapshots} snapshots, {clients} clients",
                    f"{len(body) / 1024:.0f}",
                    f"{bare.per_second:.0f}",
                    f"{ours.per_second:.0f}",
                    shown,
                )
            )
    table(
        "loadTable a second (SQLite), against a bare handler on the same server sending the same bytes",
        ("", "KiB", "bare/s", "Lakepact/s", "ratio"),
        rows,
    )


# --- commits ---


def property_commit(path: str) -> dict[str, Any]:
    update = {"action": "set-properties", "updates": {"counter": "@N@"}}
    return {"method": "POST", "path": path, "body": json.dumps({"requirements": [], "updates": [update]})}


def _many_tables() -> None:
    rows: list[tuple[object, ...]] = []
    with running() as lake:
        rows += _many_tables_on("SQLite", lake)
    with running_postgres() as url, running(store=url) as lake:
        rows += _many_tables_on("PostgreSQL", lake)
    table(
        "multi-table commits, one client", ("store, tables in a commit", "commits/s", "median ms", "a table ms"), rows
    )


def _many_tables_on(store: str, lake: Lake) -> list[tuple[object, ...]]:
    for number in range(20):
        lake.table(f"m{number}")
    rows: list[tuple[object, ...]] = []
    for tables in (1, 2, 5, 20):
        changes = [
            {
                "identifier": {"namespace": ["bench"], "name": f"m{number}"},
                "requirements": [],
                "updates": [{"action": "set-properties", "updates": {"counter": "@N@"}}],
            }
            for number in range(tables)
        ]
        job = {"method": "POST", "path": "/v1/main/transactions/commit", "body": json.dumps({"table-changes": changes})}
        found = load(lake.url, [job])
        each = found.median_ms / tables
        rows.append((f"{store}, {tables}", f"{found.per_second:.0f}", f"{found.median_ms:.1f}", f"{each:.2f}"))
    return rows


def _history(lake: Lake) -> None:
    rows = []
    first: tuple[float, float] | None = None
    for snapshots in (10, 100, 1_000, 10_000):
        name = f"history{snapshots}"
        lake.table(name, snapshots)
        path = f"/v1/main/namespaces/bench/tables/{name}"
        kib = len(lake.send("GET", path)) / 1024
        found = load(lake.url, [property_commit(path)])
        first = first or (kib, found.median_ms)
        growth = (found.median_ms / first[1]) / (kib / first[0])
        shown = against(growth, "1, linear", met=growth <= 1.0)
        rows.append((f"{snapshots} snapshots", f"{kib:.0f}", f"{found.median_ms:.1f}", shown))
    table(
        "cost of a commit as history grows (SQLite)",
        ("", "KiB of metadata", "median ms", "growth of cost / growth of document"),
        rows,
    )


def _listing(lake: Lake, tables: int = 10_000) -> None:
    lake.send("POST", "/v1/main/namespaces", {"namespace": ["many"]})
    changes = [
        {
            "identifier": {"namespace": ["many"], "name": f"t{n}"},
            "requirements": [{"type": "assert-create"}],
            "updates": _creation(),
        }
        for n in range(tables)
    ]
    for first in range(0, tables, 100):
        lake.send("POST", "/v1/transactions/commit", {"table-changes": changes[first : first + 100]})
    whole = load(lake.url, [{"method": "GET", "path": "/v1/main/namespaces/many/tables"}])
    page = load(lake.url, [{"method": "GET", "path": "/v1/main/namespaces/many/tables?pageToken=&pageSize=100"}])
    say(f"listing {tables:,} tables (SQLite): all {whole.median_ms:.0f} ms, a page of 100 {page.median_ms:.1f} ms\n")


def _creation() -> list[dict[str, Any]]:
    schema = {"schema-id": 0, "type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": False}]}
    return [
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": schema},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ]


def _receipts() -> None:
    """In turns: a disk is not always as quick. What is still to be written gets a second before the other begins."""
    job = property_commit("/v1/main/namespaces/bench/tables/t")
    taken: tuple[list[float], list[float]] = ([], [])
    with running(receipts=False) as without, running(receipts=True) as with_them:
        for lake in (without, with_them):
            lake.table("t")
        for _ in range(RECEIPT_TURNS):
            for lake, median_ms in zip((without, with_them), taken, strict=True):
                time.sleep(1.0)
                median_ms.append(load(lake.url, [job], 1.0).median_ms)
    off, on = map(statistics.median, taken)
    ratio = statistics.median(mine / other for other, mine in zip(*taken, strict=True))
    say(
        f"commit latency with receipts {on:.2f} ms, without {off:.2f} ms: {against(ratio, '1.05', met=ratio <= 1.05)}\n"
    )

"""The web page: the first byte of a table's pages against the first byte of the API call they rest on.

One table with 5,000 versions, every one with its receipt, on SQLite and a folder; both over one connection in turn, so
that whatever else the machine does meets both.
"""

from __future__ import annotations

import http.client
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.bench.report import against, table
from tests.support.server import running_server
from tests.support.showcase import Company

VERSIONS: Final = 5_000
TIMES: Final = 60
AIM: Final = 2.0
API: Final = "/v1/main/namespaces/bench/tables/orders"
PAGES: Final = {
    "overview": "/ui/catalog/main/bench/orders",
    "timeline": "/ui/catalog/main/bench/orders/timeline",
    "snapshots": "/ui/catalog/main/bench/orders/snapshots",
}


async def run() -> None:
    with tempfile.TemporaryDirectory(prefix="lakepact-bench-") as folder:
        place = Path(folder)
        with running_server(place, env={"LAKEPACT_LOG_LEVEL": "error"}) as server:
            lake = Company(server.url, place / "data" / "warehouse")
            lake.namespace("bench")
            lake.past("bench", "orders", VERSIONS, receipts=VERSIONS, step_ms=600_000)
            rows = [_measured(server.url, name, path) for name, path in PAGES.items()]
    title = f"A page of a table with {VERSIONS:,} versions, first byte, SQLite and a folder"
    table(title, ("page", "loadTable ms", "page ms", "first view ms", "page / loadTable"), rows)


def _measured(url: str, name: str, path: str) -> tuple[str, str, str, str, str]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    _first_byte_s(connection, API)
    first = _first_byte_s(connection, path)
    api, page = [], []
    for _ in range(TIMES):
        api.append(_first_byte_s(connection, API))
        page.append(_first_byte_s(connection, path))
    connection.close()
    ours, theirs = statistics.median(page), statistics.median(api)
    ratio = ours / theirs
    return (
        name,
        f"{theirs * 1000:.2f}",
        f"{ours * 1000:.2f}",
        f"{first * 1000:.1f}",
        against(ratio, f"≤ {AIM:g}", met=ratio <= AIM),
    )


def _first_byte_s(connection: http.client.HTTPConnection, path: str) -> float:
    began = time.perf_counter()
    connection.request("GET", path)
    answer = connection.getresponse()
    answer.read(1)
    taken = time.perf_counter() - began
    assert answer.status == 200, answer.read()
    answer.read()
    return taken

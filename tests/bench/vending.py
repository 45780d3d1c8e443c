"""Credentials for storage: a load with vended credentials, once they are made, against a plain load of the same table.

The server is a process of its own, over SQLite and a warehouse in S3 (moto behind a guard, in this process). Metadata
is in the server's memory, as it is for every load but the first.
"""

from __future__ import annotations

import statistics
from typing import Final

from tests.bench.load import load
from tests.bench.report import against, table
from tests.bench.rest import CLIENTS, Lake, running
from tests.support import s3_guarded
from tests.support.s3_guarded import ROLE

_AIM: Final = 1.3
_ROUNDS: Final = 5
_VENDED: Final = {"X-Iceberg-Access-Delegation": "vended-credentials"}


async def run() -> None:
    with (
        s3_guarded.running() as guard,
        running(
            warehouse=f"s3://{guard.bucket}/bench",
            warehouse_options=guard.options(),
            warehouse_credentials={"role_arn": ROLE, "sts_endpoint": guard.url},
        ) as lake,
    ):
        rows = [row for snapshots in (10, 1_000) for row in _loads(lake, snapshots)]
        assert len(guard.assumed) == 2, "one for each table"
    table(
        "loadTable with vended credentials from a warm cache, against a plain load (SQLite, S3)",
        ("", "plain/s", "vended/s", "cost of vending"),
        rows,
    )


def _loads(lake: Lake, snapshots: int) -> list[tuple[str, ...]]:
    name = f"t{snapshots}"
    lake.table(name, snapshots)
    path = f"/v1/main/namespaces/bench/tables/{name}"
    rows = []
    for clients in (1, CLIENTS):
        plain, vended = [], []
        # In turn, so that what else the machine does falls on both.
        for _ in range(_ROUNDS):
            plain.append(load(lake.url, [{"method": "GET", "path": path}] * clients, 1.0).per_second)
            job = {"method": "GET", "path": path, "headers": _VENDED}
            vended.append(load(lake.url, [job] * clients, 1.0).per_second)
        ratio = statistics.median(without / with_them for without, with_them in zip(plain, vended, strict=True))
        rows.append(
            (
                f"{snapshots} snapshots, {clients} clients",
                f"{statistics.median(plain):.0f}",
                f"{statistics.median(vended):.0f}",
                against(ratio, f"{_AIM}", met=ratio <= _AIM),
            )
        )
    return rows

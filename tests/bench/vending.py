"""Credentials for storage: a load with vended credentials, once they are made, against a plain load of the same table.

The server is a process of its own, over SQLite and a warehouse in S3 (moto behind a guard, in this process). Metadata
is in the server's memory, as it is for every load but the first.
"""

from __future__ import annotations

from typing import Final

from tests.bench.report import against, table
from tests.bench.rest import CLIENTS, Lake, running
from tests.bench.turns import compared
from tests.support import s3_guarded
from tests.support.s3_guarded import ROLE

_AIM: Final = 1.3
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
        ("", "plain/s", "vended/s", "ratio", "ratio of the server's CPU a request"),
        rows,
    )


def _loads(lake: Lake, snapshots: int) -> list[tuple[str, ...]]:
    name = f"t{snapshots}"
    lake.table(name, snapshots)
    path = f"/v1/main/namespaces/bench/tables/{name}"
    rows: list[tuple[str, ...]] = []
    for clients in (1, CLIENTS):
        asked = {"method": "GET", "path": path}
        found = compared(
            lake.process, (lake.url, [asked] * clients), (lake.url, [{**asked, "headers": _VENDED}] * clients)
        )
        rows.append(
            (
                f"{snapshots} snapshots, {clients} clients",
                f"{found.first.per_second:.0f}",
                f"{found.second.per_second:.0f}",
                against(found.of_rate, f"{_AIM}", met=found.of_rate <= _AIM),
                against(found.of_cost, f"{_AIM}", met=found.of_cost <= _AIM),
            )
        )
    return rows

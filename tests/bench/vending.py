"""Credentials for storage: a load with vended credentials, once they are made, against a plain load of the same table.

The server is a process of its own, over SQLite and a warehouse in S3 (moto behind a guard, in this process). Metadata
is in the server's memory, as it is for every load but the first.
"""

from __future__ import annotations

import statistics
from typing import Any, Final

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
        ("", "plain/s", "vended/s", "ratio", "ratio of the server's CPU a request"),
        rows,
    )


def _loads(lake: Lake, snapshots: int) -> list[tuple[str, ...]]:
    name = f"t{snapshots}"
    lake.table(name, snapshots)
    path = f"/v1/main/namespaces/bench/tables/{name}"
    rows: list[tuple[str, ...]] = []
    for clients in (1, CLIENTS):
        plain, vended = [], []
        # In turn, so that what else the machine does falls on both.
        for _ in range(_ROUNDS):
            plain.append(_loaded(lake, {"method": "GET", "path": path}, clients))
            vended.append(_loaded(lake, {"method": "GET", "path": path, "headers": _VENDED}, clients))
        (plain_rate, plain_cpu), (vended_rate, vended_cpu) = map(_medians, (plain, vended))
        ratio, of_cpu = plain_rate / vended_rate, vended_cpu / plain_cpu
        rows.append(
            (
                f"{snapshots} snapshots, {clients} clients",
                f"{plain_rate:.0f}",
                f"{vended_rate:.0f}",
                against(ratio, f"{_AIM}", met=ratio <= _AIM),
                against(of_cpu, f"{_AIM}", met=of_cpu <= _AIM),
            )
        )
    return rows


def _loaded(lake: Lake, job: dict[str, Any], clients: int) -> tuple[float, float]:
    """Requests a second, and the processor's time that one takes the server: other work does not count there."""
    before = lake.processor_s
    found = load(lake.url, [job] * clients, 1.0)
    return found.per_second, (lake.processor_s - before) / found.requests


def _medians(rounds: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(rate for rate, _ in rounds), statistics.median(cpu for _, cpu in rounds)

"""What it costs to ask who it is: loads and commits with authentication on, against the same without, side by side.

Two services in one process, asked in turns. The cost of a request is what it takes of the process's processor time; how
many there were a second is shown beside it.
"""

from __future__ import annotations

import asyncio
import json
import tempfile

from tests.bench.report import against, table
from tests.bench.rest import Lake, property_commit, running
from tests.bench.turns import compared
from tests.support.issuer import Issuer, running_issuer
from tests.support.tokens import command

AIM = 1.15


async def run() -> None:
    with tempfile.TemporaryDirectory(prefix="lakepact-bench-") as folder, running_issuer() as issuer:
        store = f"sqlite:///{folder}/lakepact.db"
        asking = {"data": folder, "store": store, **issuer.settings()}
        # In a thread: a command has an event loop of its own.
        made = await asyncio.to_thread(command, "tokens", "create", "bench", "--admin", "--store", store, "--json")
        token = json.loads(made)["token"]
        with running(asking=asking) as plain:
            _compare(plain, Lake(plain.url, token, plain.process), issuer, token)


def _compare(plain: Lake, named: Lake, issuer: Issuer, token: str) -> None:
    form = f"grant_type=client_credentials&client_secret={token}".encode()
    given = named.send("POST", "/v1/oauth/tokens", form, media="application/x-www-form-urlencoded")
    sent_kinds = {
        "API token": token,
        "access token": json.loads(given)["access_token"],
        "OIDC token": issuer.token(exp=2_000_000_000),
    }
    named.send("POST", "/v1/main/namespaces", {"namespace": ["bench"]})
    for lake in (plain, named):
        lake.table("t", 10)
    named.send("POST", "/v1/main/grants", {"holder": "everyone", "role": "write", "on": "warehouse"})
    rows = []
    path = "/v1/main/namespaces/bench/tables/t"
    read = {"method": "GET", "path": path}
    for what, job, clients, kinds in (
        ("load, 1 client", read, 1, tuple(sent_kinds)),
        ("load, 16 clients", read, 16, tuple(sent_kinds)),
        ("commit, 1 client", property_commit(path), 1, ("API token",)),
    ):
        for kind in kinds:
            asked = {**job, "headers": {"Authorization": f"Bearer {sent_kinds[kind]}"}}
            found = compared(plain.process, (plain.url, [job] * clients), (named.url, [asked] * clients))
            rows.append(
                (
                    f"{what}, {kind}",
                    f"{found.first.per_second:.0f}",
                    f"{found.second.per_second:.0f}",
                    f"{found.of_rate:.2f}",
                    against(found.of_cost, f"{AIM}", met=found.of_cost <= AIM),
                )
            )
    table(
        "authentication (SQLite): cost of a request with it against the same without",
        ("", "without/s", "with/s", "by rate", "by processor time"),
        rows,
    )

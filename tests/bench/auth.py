"""What it costs to ask who it is: loads and commits with authentication on, against the same without, side by side.

Two services in one process, asked in turns. The cost of a request is what it takes of the process's processor time, in
the turn in which it took least: the work of others on the same machine can only add to it. How many there were
a second is shown beside it.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
from typing import Any

from tests.bench.load import Figures, load
from tests.bench.report import against, table
from tests.bench.rest import Lake, property_commit, running
from tests.support.issuer import Issuer, running_issuer
from tests.support.tokens import command

AIM = 1.15
TURNS = 9
SECONDS = 1.0


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
    named.send("POST", "/v1/namespaces", {"namespace": ["bench"]})
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
            turns = []
            for _ in range(TURNS):
                off, off_s = _asked(plain, [job] * clients)
                on, on_s = _asked(named, [asked] * clients)
                turns.append((off_s, on_s, off.per_second, on.per_second))
            offs_s, ons_s, *rates = zip(*turns, strict=True)
            ratio = min(ons_s) / min(offs_s)
            without, with_it = map(statistics.median, rates)
            rows.append(
                (f"{what}, {kind}", f"{without:.0f}", f"{with_it:.0f}", against(ratio, f"{AIM}", met=ratio <= AIM))
            )
    table(
        "authentication (SQLite): cost of a request with it against the same without",
        ("", "without/s", "with/s", "least processor time"),
        rows,
    )


def _asked(lake: Lake, jobs: list[dict[str, Any]]) -> tuple[Figures, float]:
    """What came of it, and what one request took of the server's processor time."""
    before_s = lake.processor_s
    figures = load(lake.url, jobs, SECONDS)
    return figures, (lake.processor_s - before_s) / figures.requests

"""What rights cost: loads and commits with them against the same without, and a long list of which most is hidden.

One server serves both kinds of requests, in turns. The cost of a request is what it takes of the server's processor
time.
"""

from __future__ import annotations

import json
from typing import Any

from tests.bench.load import load
from tests.bench.report import against, say, table
from tests.bench.rest import Lake, _creation, running
from tests.bench.turns import compared
from tests.support.postgres import running_postgres

AIM = 1.15
MANY = 10_000
GRANTS = 1_000


async def run() -> None:
    rows: list[tuple[object, ...]] = []
    with running(by_query=True) as lake:
        rows += _costs("SQLite", lake)
        _listing(lake)
    with running_postgres() as url, running(store=url, by_query=True) as lake:
        rows += _costs("PostgreSQL", lake)
    table(
        f"the cost of rights: {GRANTS:,} grants in the warehouse, one client, processor time a request",
        ("store, request", "without ms", "with ms", "ratio"),
        rows,
    )


def _costs(store: str, lake: Lake) -> list[tuple[object, ...]]:
    for number in range(3):
        lake.table(f"t{number}")
    lake.table("loaded", 10)
    where = "/v1/main/namespaces/bench/tables"
    grant(lake, "group:readers", "read", on="namespace", namespace=["bench"])
    for name in ("t0", "t1", "t2"):
        grant(lake, "user:eve", "write", on="table", namespace=["bench"], name=name)
    fill(lake)
    update = {"action": "set-properties", "updates": {"counter": "@N@"}}
    many = [
        {"identifier": {"namespace": ["bench"], "name": f"t{n}"}, "requirements": [], "updates": [update]}
        for n in range(3)
    ]
    jobs = {
        "loadTable": {"method": "GET", "path": f"{where}/loaded"},
        "tableExists": {"method": "HEAD", "path": f"{where}/loaded"},
        "commit of one": {"method": "POST", "path": f"{where}/t0", "body": _body(updates=[update], requirements=[])},
        "commit of three": {
            "method": "POST",
            "path": "/v1/main/transactions/commit",
            "body": _body(**{"table-changes": many}),
        },
    }
    return [(f"{store}, {what}", *_compared(lake, job)) for what, job in jobs.items()]


def _compared(lake: Lake, job: dict[str, Any]) -> tuple[str, str, str]:
    named = {**job, "path": f"{job['path']}?as=eve"}
    plain = {**job, "path": f"{job['path']}?as="}
    found = compared(lake.process, (lake.url, [plain]), (lake.url, [named]))
    ratio = against(found.of_cost, f"{AIM}", met=found.of_cost <= AIM)
    return f"{found.first.cost_ms:.3f}", f"{found.second.cost_ms:.3f}", ratio


def _listing(lake: Lake) -> None:
    """Ten thousand tables, of which somebody may see a tenth, each by a grant of its own."""
    lake.send("POST", "/v1/main/namespaces", {"namespace": ["many"]})
    for first in range(0, MANY, 100):
        changes = [
            {
                "identifier": {"namespace": ["many"], "name": f"t{n:05}"},
                "requirements": [{"type": "assert-create"}],
                "updates": _creation(),
            }
            for n in range(first, first + 100)
        ]
        lake.send("POST", "/v1/transactions/commit", {"table-changes": changes})
    for n in range(0, MANY, 10):
        grant(lake, "user:tenth", "read", on="table", namespace=["many"], name=f"t{n:05}")
    path = "/v1/main/namespaces/many/tables"
    seen = json.loads(lake.send("GET", f"{path}?as=tenth"))["identifiers"]
    assert len(seen) == MANY // 10
    everything = load(lake.url, [{"method": "GET", "path": f"{path}?as="}], 3.0)
    tenth = load(lake.url, [{"method": "GET", "path": f"{path}?as=tenth"}], 3.0)
    page = load(lake.url, [{"method": "GET", "path": f"{path}?as=tenth&pageToken=&pageSize=100"}], 3.0)
    namespaces = load(lake.url, [{"method": "GET", "path": "/v1/main/namespaces?as=tenth"}], 3.0)
    say(
        f"listing {MANY:,} tables (SQLite): all {everything.median_ms:.0f} ms; for who may see a tenth of them "
        f"{tenth.median_ms:.0f} ms, {tenth.median_ms / everything.median_ms:.2f} of it; a page "
        f"{page.median_ms:.1f} ms; the namespaces that they lie in {namespaces.median_ms:.0f} ms\n"
    )


def fill(lake: Lake) -> None:
    """Grants of others: a decision must not grow with them."""
    for number in range(GRANTS):
        grant(lake, f"user:{number}", "read", on="namespace", namespace=["bench"])


def grant(lake: Lake, holder: str, role: str, **on: Any) -> None:
    lake.send("POST", "/v1/main/grants", {"holder": holder, "role": role, **on})


def _body(**fields: Any) -> str:
    return json.dumps(fields)

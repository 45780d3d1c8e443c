"""A server killed anywhere between the beginning of a transaction and its end: all of it happens, once, or none of it.

The transaction begins, is given a statement for each of two tables and a document, and is committed. The server is
killed at each storage operation of that, one run each. Then another one finds all or nothing, and the client either
sends everything again or gives the transaction up.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.crash.server_tables import (
    NAMESPACE,
    adding,
    commit_key,
    creation,
    new_key,
    read_chain,
    receipts_in,
    snapshot_id,
    snapshots_of,
    version_of,
)
from tests.crash.test_server import LEFT, RIGHT, Victims, opened, table
from tests.support.asgi_client import Answer, AsgiClient
from tests.support.waiting import wait_until_async

LONG = bool(os.environ.get("LAKEPACT_LONG"))
MORE_POINTS_THAN_ANY_TRANSACTION_HAS = 3_000
TABLES = (LEFT, RIGHT)


@dataclass
class Run:
    """What has come of the transactions so far."""

    settings: dict[str, Any]
    warehouse: Path
    committed: list[int] = field(default_factory=list)
    """The snapshots that every table must have, in order."""

    ids: list[str] = field(default_factory=list)
    """The transactions that were committed."""

    found: Counter[str] = field(default_factory=Counter)
    """In which states a crash has left transactions."""


@dataclass(frozen=True)
class Job:
    """One transaction: begin, stage, stage, stage, commit."""

    id: str
    number: int
    parent: int | None
    after: int
    keys: tuple[str | None, ...]
    made_ms: int
    """When its snapshots say they were made: a request that is sent again is the same to the last byte."""

    @property
    def snapshot(self) -> int:
        return snapshot_id(self.number, [0, 1])

    def requests(self) -> list[dict[str, Any]]:
        inside = f"/v1/main@{self.id}/namespaces/{NAMESPACE}/tables"
        change = adding(self.snapshot, parent=self.parent, head=True, after=self.after)
        change["updates"][0]["snapshot"]["timestamp-ms"] = self.made_ms
        return [
            _request("POST", "/v1/transactions", {"ttl-seconds": 600}, self.id),
            *(_request("POST", f"{inside}/{name}", change, key) for name, key in zip(TABLES, self.keys, strict=False)),
            _request(
                "PUT", f"/v1/transactions/{self.id}/state/position", {"value": {"at": self.number}}, self.keys[-1]
            ),
            _request("POST", f"/v1/transactions/{self.id}/commit", {}, None),
        ]


def _request(method: str, path: str, body: Any, key: str | None) -> dict[str, Any]:
    return {"method": method, "path": path, "body": body, "headers": {} if key is None else {"Idempotency-Key": key}}


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("store", "every"),
    [
        pytest.param("sqlite", 1, marks=pytest.mark.long),
        ("sqlite", 3),
        pytest.param("file", 1, marks=pytest.mark.long),
        ("file", 12),
    ],
    ids=["sqlite", "sqlite-every-3rd", "file", "file-every-12th"],
)
def test_a_transaction_killed_at_any_storage_operation_is_finished_or_given_up_as_a_whole(
    store: str, every: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    settings = {"data": str(tmp_path / "data"), "lease_s": 0.1, "log_level": "error"}
    if store == "file":
        settings["store"] = f"file://{tmp_path / 'cells'}"
    run = Run(settings, tmp_path / "data" / "warehouse")
    victims = Victims()
    try:
        points, kills = asyncio.run(_kill_at_every_point(victims, run, every))
    finally:
        victims.close()
    audit_receipts(run)
    states = ", ".join(f"{count} {state}" for state, count in sorted(run.found.items()))
    record_property(
        "figure",
        f"server on {store}, a transaction begun, staged three times and committed: killed at {kills} of its {points} "
        f"storage operations, found {states}; {len(run.committed)} committed in the end, the others aborted",
    )
    assert run.found["committed"] > 0, "some kills must fall after the commit point"
    assert run.found["open"] > 0, "and some before it"
    assert len(run.committed) < kills, "and some must have been given up"


async def _kill_at_every_point(victims: Victims, run: Run, every: int) -> tuple[int, int]:
    chance = random.Random(0)
    async with opened(run.settings) as (client, _):
        assert (await client.send("POST", "/v1/main/namespaces", json={"namespace": [NAMESPACE]})).status == 200
        for name in TABLES:
            made = await client.send("POST", f"/v1/main/namespaces/{NAMESPACE}/tables", json=creation(name))
            assert made.status == 200
    for kills, at in enumerate(range(1, MORE_POINTS_THAN_ANY_TRANSACTION_HAS, every)):
        parent = run.committed[-1] if run.committed else None
        # Every other time the statements have no keys, as most engines send them.
        keys = tuple(new_key(chance) if at % 2 else None for _ in range(3))
        job = Job(new_key(chance), at, parent, len(run.committed), keys, time.time_ns() // 1_000_000)
        before = [f"/v1/main/namespaces/{NAMESPACE}/tables/{name}" for name in TABLES]
        ended = victims.run({"settings": run.settings, "at": at, "before": before, "requests": job.requests()})
        give_up = bool(at // every % 3 == 2)
        await _audit_point(run, job, answered=ended["status"] is not None, give_up=give_up)
        if not ended["killed"]:
            assert ended["status"] == 200
            return at - 1, kills
    raise AssertionError("the victim never came to its end")


async def _audit_point(run: Run, job: Job, *, answered: bool, give_up: bool) -> None:
    async with opened(run.settings) as (client, _):
        state, happened = await _as_found(client, job)
        assert happened or not answered, f"transaction {job.number} was answered and is not there"
        run.found[state] += 1
        if give_up and not happened and state != "never begun":
            answer = await client.send("POST", f"/v1/transactions/{job.id}/abort")
            if answer.status == 200:
                assert await _as_found(client, job) == ("aborted", False)
                await _check_refused(client, job)
                return
            assert "being committed" in answer.error["message"], answer.body
        for _ in range(2):
            await _finish(client, job)
        assert await _as_found(client, job) == ("committed", True)
        run.committed.append(job.snapshot)
        run.ids.append(job.id)
        for name in TABLES:
            found = await table(client, name)
            assert snapshots_of(found["metadata"]) == run.committed, f"{name}: each once, and nothing that was given up"
            assert version_of(found["metadata-location"]) == len(run.committed), "one version for each commit"


async def _as_found(client: AsgiClient, job: Job) -> tuple[str, bool]:
    """The state of the transaction, and whether it shows. It shows everywhere or nowhere, and its record agrees."""
    asked = await client.send("GET", f"/v1/transactions/{job.id}")
    state = "never begun" if asked.status == 404 else str(asked.json()["state"])
    shows = [job.snapshot in snapshots_of((await table(client, name))["metadata"]) for name in TABLES]
    position = await client.send("GET", "/v1/main/state/position")
    shows.append(position.status == 200 and position.json()["value"]["at"] == job.number)
    assert len(set(shows)) == 1, f"half of transaction {job.number} is visible: {shows}"
    assert (state == "committed") == shows[0], f"it is {state}, and visible: {shows}"
    return state, shows[0]


async def _finish(client: AsgiClient, job: Job) -> None:
    """Send everything again, as a client does that has heard nothing."""
    for one in job.requests():
        answer = await _until_answered(client, one)
        if "state/" in one["path"] and answer.status == 400:
            # A document leaves no trace by which it would be known again; a snapshot does.
            assert (await client.send("GET", f"/v1/transactions/{job.id}")).json()["state"] != "aborted"
            continue
        assert answer.status == 200, f"{one['method']} {one['path']}: {answer.status} {answer.body!r}"


async def _check_refused(client: AsgiClient, job: Job) -> None:
    """Nothing of a transaction that was given up can come back."""
    for one in job.requests()[1:]:
        answer = await client.send(one["method"], one["path"], json=one["body"], headers=one["headers"])
        assert answer.refusal == (400, "BadRequestException"), answer.body
    for name in TABLES:
        assert job.snapshot not in snapshots_of((await table(client, name))["metadata"])


async def _until_answered(client: AsgiClient, one: dict[str, Any]) -> Answer:
    """A 503 is no answer: it says that nothing has happened yet."""

    async def attempt() -> Answer | None:
        answer = await client.send(one["method"], one["path"], json=one["body"], headers=one["headers"])
        return None if answer.status == 503 else answer

    answer = await wait_until_async(attempt, "the server keeps answering 503")
    assert answer is not None
    return answer


def audit_receipts(run: Run) -> None:
    """One for each table of each committed transaction, whoever wrote it; none of what was staged or given up."""
    asyncio.run(_upkeep(run))
    receipts = receipts_in(run.warehouse)
    chains = [asyncio.run(_chain(run, name)) for name in TABLES]
    for chain in chains:
        for location, transaction_id in zip(chain[1:], run.ids, strict=True):
            told = receipts[commit_key(location)]
            assert (told["transaction-id"], told["transaction-tables"]) == (transaction_id, 2)
    assert len(receipts) == 1 + sum(len(chain) for chain in chains)


async def _upkeep(run: Run) -> None:
    async with opened(run.settings) as (_, upkeep):
        while not await upkeep.turn():
            await asyncio.sleep(0.01)


async def _chain(run: Run, name: str) -> list[str]:
    async with opened(run.settings) as (client, _):
        return read_chain((await table(client, name))["metadata-location"])

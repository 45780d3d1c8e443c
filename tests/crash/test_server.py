"""A killed server breaks no promise: what it answered has happened, once and wholly, and all that happened is told.

One file: all of it is the same server, the same client and the same judgement, under three kinds of misfortune.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakepact.kernel.identity import uuid7
from lakepact.server.app import build
from lakepact.settings import Settings
from lakepact.stores import open_store
from lakepact.upkeep.runner import Runner
from tests.crash.server_chaos import KINDS, TABLES, Chaos, Sent, ask
from tests.crash.server_tables import (
    NAMESPACE,
    SCHEMA,
    adding,
    commit_key,
    creation,
    named,
    new_key,
    read_chain,
    receipts_in,
    snapshot_id,
    snapshots_of,
    tables_of,
    version_of,
)
from tests.support.asgi_client import Answer, AsgiClient
from tests.support.postgres import running_postgres
from tests.support.server import running_server
from tests.support.waiting import PATIENCE_S, wait_until_async

ROOT = Path(__file__).parents[2]
LONG = bool(os.environ.get("LAKEPACT_LONG"))


@contextmanager
def sqlite_store(_folder: Path) -> Iterator[str | None]:
    yield None


@contextmanager
def file_store(folder: Path) -> Iterator[str | None]:
    yield f"file://{folder / 'cells'}"


@contextmanager
def postgres_store(_folder: Path) -> Iterator[str | None]:
    with running_postgres() as url:
        yield url


STORES = {"sqlite": sqlite_store, "postgres": postgres_store, "file": file_store}
LONG_ONES = ("postgres", "file")


@pytest.mark.begins_first
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    "store", [pytest.param(name, marks=pytest.mark.long) if name in LONG_ONES else name for name in STORES]
)
def test_a_server_killed_at_random_instants_does_every_keyed_request_once(
    store: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    seed = int(os.environ.get("LAKEPACT_CHAOS_SEED") or secrets.randbelow(1_000_000))
    with STORES[store](tmp_path) as url:
        options = () if url is None else ("--store", url)
        chaos = Chaos(tmp_path, options, seed, kills=60 if LONG else 8)
        try:
            chaos.run()
            with running_server(tmp_path, *options, env={"LAKEPACT_UPKEEP_INTERVAL_S": "1"}) as server:
                audit(server.url, tmp_path / "data" / "warehouse", chaos)
        except BaseException as error:
            error.add_note(f"LAKEPACT_CHAOS_SEED={seed} plays the same requests again; the moments differ")
            raise
    done = Counter(sent.what for sent in chaos.sent if sent.status < 300)
    refused = sum(sent.status >= 400 for sent in chaos.sent)
    sent = sum(chaos.attempts[way] for way in ("plain", "twice", "dropped"))
    record_property(
        "figure",
        f"server on {store}, seed {seed}: killed {chaos.killed} times under {sent} attempts "
        f"({chaos.attempts['twice']} doubled, {chaos.attempts['dropped']} dropped, "
        f"{chaos.attempts['not answered']} not answered); each of {sum(done.values())} changes once "
        f"({', '.join(f'{count} {what}' for what, count in sorted(done.items()))}), {refused} refused",
    )
    assert min(done[what] for what in KINDS) > 0
    assert refused > 0


def audit(url: str, warehouse: Path, chaos: Chaos) -> None:
    """Hold what was answered against what is there."""
    shared = {f"t{number}": loaded(url, f"t{number}") for number in range(TABLES)}
    chains = {name: read_chain(answer["metadata-location"]) for name, answer in shared.items()}
    audit_snapshots(chaos.sent, shared)
    audit_names(url, chaos.sent, chains)
    audit_properties(url, chaos.sent)
    states = audit_transactions(url, chaos.sent)
    audit_receipts(warehouse, chaos.sent, chains, states)


def loaded(url: str, name: str) -> Any:
    status, answer = ask(url, f"/v1/main/namespaces/{NAMESPACE}/tables/{name}")
    assert status == 200, answer
    return answer


def audit_snapshots(sent: list[Sent], shared: dict[str, Any]) -> None:
    there = {name: snapshots_of(answer["metadata"]) for name, answer in shared.items()}
    for commit in sent:
        if not commit.snapshot:
            continue
        holding = {name for name, snapshots in there.items() if commit.snapshot in snapshots}
        if commit.status < 300:
            assert holding == set(commit.tables), f"{commit} was acknowledged and is in {holding}"
        else:
            assert not holding, f"{commit} was refused and is in {holding}"
    for name, snapshots in there.items():
        assert len(set(snapshots)) == len(snapshots)
        for snapshot in snapshots:
            missing = [table for table in tables_of(snapshot) if snapshot not in there[f"t{table}"]]
            assert not missing, f"{snapshot} is in {name} and not in t{missing}"
        # Every commit here adds one snapshot, and so one version: none was made twice.
        assert version_of(shared[name]["metadata-location"]) == len(snapshots)


def audit_names(url: str, sent: list[Sent], chains: dict[str, list[str]]) -> None:
    _, listed = ask(url, f"/v1/main/namespaces/{NAMESPACE}/tables")
    names = {one["name"] for one in listed["identifiers"]}
    dropped = {one.name for one in sent if one.what == "drop"}
    renamed = {one.name for one in sent if one.what == "rename"}
    created = {one.name for one in sent if one.what == "create"}
    assert all(one.status < 300 for one in sent if one.what in ("create", "rename", "drop", "property"))
    # A client may have been stopped between two of its steps.
    unmoved = {name for name in created if f"{name}_renamed" not in renamed}
    assert names == {*chains, *(renamed - dropped), *unmoved}
    for name in names - chains.keys():
        chains[name] = read_chain(loaded(url, name)["metadata-location"])
        assert len(chains[name]) == 1, f"{name} was created once: {chains[name]}"


def audit_properties(url: str, sent: list[Sent]) -> None:
    _, namespace = ask(url, f"/v1/main/namespaces/{NAMESPACE}")
    assert set(namespace["properties"]) - {"location"} == {one.name for one in sent if one.what == "property"}


def audit_transactions(url: str, sent: list[Sent]) -> dict[str, Any]:
    states: dict[str, Any] = {}
    for one in sent:
        status, states[one.key] = ask(url, f"/v1/main/transactions/{one.key}")
        assert status == 200, f"{one}: {states[one.key]}"
        assert states[one.key]["state"] == ("committed" if one.status < 300 else "failed"), f"{one}: {states[one.key]}"
    return states


def audit_receipts(warehouse: Path, sent: list[Sent], chains: dict[str, list[str]], states: dict[str, Any]) -> None:
    """Upkeep runs in the server, every second. What it has to come to is known from the tables' own files."""
    expected = {commit_key(location): location for chain in chains.values() for location in chain}
    changing = {one.key for one in sent if one.status < 300}
    until = time.monotonic() + PATIENCE_S
    while True:
        receipts = receipts_in(warehouse)
        told = {receipt["transaction-id"] for receipt in receipts.values()}
        missing = [location for key, location in expected.items() if key not in receipts]
        if not missing and changing <= told:
            break
        assert time.monotonic() < until, f"no receipts of {missing[:3]} and {len(changing - told)} transactions"
        time.sleep(0.2)
    for key, location in expected.items():
        assert receipts[key]["metadata-location"] == location
    refused = {one.key for one in sent if one.status >= 400}
    assert not refused & told, "a receipt of something that was refused"
    by_transaction: dict[str, list[Any]] = {}
    for receipt in receipts.values():
        by_transaction.setdefault(receipt["transaction-id"], []).append(receipt)
    for one in sent:
        if one.status >= 300:
            continue
        mine = by_transaction[one.key]
        assert len(mine) == max(1, len(one.tables)) == mine[0]["transaction-tables"], f"{one}: {mine}"
        changed = {
            change["metadata-location"] for change in states[one.key]["changes"] if "metadata-location" in change
        }
        if one.tables or one.what == "create":
            assert {receipt["metadata-location"] for receipt in mine} == changed
        assert {receipt["change"] for receipt in mine} == {CHANGES[one.what]}


CHANGES = {
    "commit": "commit",
    "commit-many": "commit",
    "commit-to-head": "commit",
    "create": "create",
    "rename": "rename",
    "drop": "drop",
    "property": "commit",
}


# --- killed at every storage operation of one commit ---

LEFT, MIDDLE, RIGHT = "t0", "t1", "t2"
MORE_POINTS_THAN_ANY_COMMIT_HAS = 2_000


class Victims:
    """A process whose children are killed."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.server_victim"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        ended: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        assert ended, "the victims' process has ended; its reason is above"
        return ended

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@asynccontextmanager
async def opened(settings: dict[str, Any]) -> AsyncIterator[tuple[AsgiClient, Runner]]:
    """The server anew, as after a restart, without its socket. Its upkeep is run by hand."""
    # An interval so short that the lease of the server before has ended.
    service = await build(Settings.load(**settings, upkeep_interval_s=0.01))
    try:
        yield AsgiClient(service.asgi), service.upkeep
    finally:
        await service.close()


async def table(client: AsgiClient, name: str) -> Any:
    answer = await client.send("GET", f"/v1/main/namespaces/{NAMESPACE}/tables/{name}")
    assert answer.status == 200, answer.body
    return answer.json()


@pytest.mark.begins_first
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("keyed", [True, False], ids=["keyed", "unkeyed"])
@pytest.mark.parametrize("store", ["sqlite", pytest.param("file", marks=pytest.mark.long)])
def test_a_commit_of_three_tables_killed_at_any_storage_operation_happens_once_when_it_is_sent_again(
    store: str, keyed: bool, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    victims = Victims()
    try:
        points, kills, happened, answered = asyncio.run(_kill_at_points(victims, store, keyed, tmp_path))
    finally:
        victims.close()
    record_property(
        "figure",
        f"server on {store}, {'keyed' if keyed else 'unkeyed'} commit of 3 tables: killed at {kills} of {points} "
        f"storage operations, {happened} after the commit, {answered} after the answer",
    )
    assert 0 < happened < kills, "some kills must fall before the commit point and some after it"
    assert answered > 0, "some kills must fall between the answer and its receipts"


async def _kill_at_points(victims: Victims, store: str, keyed: bool, folder: Path) -> tuple[int, int, int, int]:
    """How many there are, at how many it was killed, and how many of those were after the commit, and its answer."""
    # A key makes no difference to what is stored when: every second point with one and every third without one will do
    # together, unless there is time.
    step = 1 if LONG else 2 if keyed else 3
    settings = {"data": str(folder / "data"), "lease_s": 0.1, "log_level": "error"}
    if store == "file":
        settings["store"] = f"file://{folder / 'cells'}"
    chance = random.Random(0)
    async with opened(settings) as (client, _):
        assert (await client.send("POST", "/v1/main/namespaces", json={"namespace": [NAMESPACE]})).status == 200
        for name in (LEFT, MIDDLE, RIGHT):
            made = await client.send("POST", f"/v1/main/namespaces/{NAMESPACE}/tables", json=creation(name))
            assert made.status == 200
    happened = answered = 0
    for number, at in enumerate(range(1, MORE_POINTS_THAN_ANY_COMMIT_HAS, step), start=1):
        job = {
            "settings": settings,
            "at": at,
            "before": [f"/v1/main/namespaces/{NAMESPACE}/tables/{name}" for name in (LEFT, MIDDLE, RIGHT)],
            "method": "POST",
            "path": "/v1/transactions/commit",
            # Each commit is to the head the one before has left, so a second execution could not go unnoticed.
            "body": {"table-changes": [_to_head(name, number) for name in (LEFT, MIDDLE, RIGHT)]},
            "headers": {"Idempotency-Key": new_key(chance)} if keyed else {},
        }
        ended = victims.run(job)
        before = await _audit_point(settings, job, number, folder)
        assert before or ended["status"] is None, f"commit {at} was answered with {ended['status']} and is not there"
        happened += before
        answered += ended["status"] is not None
        if not ended["killed"]:
            assert ended["status"] == 204
            return at - 1, number - 1, happened - 1, answered - 1
    raise AssertionError("the victim never came to its end")


def _to_head(name: str, number: int) -> dict[str, Any]:
    parent = snapshot_id(number - 1, [0, 1, 2]) if number > 1 else None
    return named(name, adding(snapshot_id(number, [0, 1, 2]), parent=parent, head=True, after=number - 1))


async def _audit_point(settings: dict[str, Any], job: dict[str, Any], number: int, folder: Path) -> bool:
    """All or nothing; then, sent again, once. Whether it had happened before it was sent again."""
    snapshot, key = snapshot_id(number, [0, 1, 2]), job["headers"].get("Idempotency-Key")
    async with opened(settings) as (client, upkeep):
        tables = [await table(client, name) for name in (LEFT, MIDDLE, RIGHT)]
        holding = [snapshot in snapshots_of(one["metadata"]) for one in tables]
        assert len(set(holding)) == 1, f"half of commit {number} is visible: {holding}"
        if key is not None:
            asked = await client.send("GET", f"/v1/transactions/{key}")
            committed = asked.status == 200 and asked.json()["state"] == "committed"
            assert committed == holding[0], f"{asked.body!r}, but visible: {holding}"
        for _ in range(2):
            again = await _until_answered(client, job)
            assert again.status == 204, f"commit {number}, sent again: {again.status} {again.body!r}"
        tables = [await table(client, name) for name in (LEFT, MIDDLE, RIGHT)]
        for one in tables:
            assert snapshots_of(one["metadata"]).count(snapshot) == 1
            assert version_of(one["metadata-location"]) == number, f"{one['metadata-location']} after {number} commits"
        while not await upkeep.turn():
            await asyncio.sleep(0.01)
    receipts = receipts_in(folder / "data" / "warehouse")
    for one in tables:
        told = receipts[commit_key(one["metadata-location"])]
        assert (told["snapshot-id"], told["transaction-tables"]) == (snapshot, 3)
    return holding[0]


async def _until_answered(client: AsgiClient, job: dict[str, Any]) -> Answer:
    """A 503 is no answer: it says that nothing has happened yet."""

    async def attempt() -> Answer | None:
        answer = await client.send(job["method"], job["path"], json=job["body"], headers=job["headers"])
        return None if answer.status == 503 else answer

    answer = await wait_until_async(attempt, "the server keeps answering 503")
    assert answer is not None
    return answer


# --- answers that were lost: the same request comes again, without a key, later ---


@asynccontextmanager
async def three_tables(folder: Path) -> AsyncIterator[AsgiClient]:
    async with opened({"data": str(folder / "data"), "log_level": "error"}) as (client, _):
        assert (await client.send("POST", "/v1/main/namespaces", json={"namespace": [NAMESPACE]})).status == 200
        for name in (LEFT, MIDDLE, RIGHT):
            made = await client.send("POST", f"/v1/main/namespaces/{NAMESPACE}/tables", json=creation(name))
            assert made.status == 200
        yield client


async def send(client: AsgiClient, method: str, path: str, body: Any = None, key: str | None = None) -> Answer:
    headers = {} if key is None else {"Idempotency-Key": key}
    if body is None:
        return await client.send(method, path, headers=headers)
    return await client.send(method, path, json=body, headers=headers)


async def commit_with_uuid(client: AsgiClient) -> dict[str, Any]:
    """A commit to LEFT as engines send it: to the head, of this very table."""
    uuid = (await table(client, LEFT))["metadata"]["table-uuid"]
    commit = adding(snapshot_id(1, [0]), head=True)
    return {**commit, "requirements": [{"type": "assert-table-uuid", "uuid": uuid}, *commit["requirements"]]}


LEFT_PATH = f"/v1/main/namespaces/{NAMESPACE}/tables/{LEFT}"


@pytest.mark.parametrize("since", ["nothing", "renamed", "dropped", "replaced"])
async def test_a_commit_that_took_effect_is_a_success_when_repeated_whatever_became_of_the_table(
    since: str, tmp_path: Path
) -> None:
    """A 4xx would make the client delete files that a table, or the undoing of a drop, still needs."""
    async with three_tables(tmp_path) as client:
        commit = await commit_with_uuid(client)
        assert (await send(client, "POST", LEFT_PATH, commit)).status == 200
        if since == "renamed":
            names = ({"namespace": [NAMESPACE], "name": name} for name in (LEFT, "elsewhere"))
            moved = dict(zip(("source", "destination"), names, strict=True))
            assert (await send(client, "POST", "/v1/main/tables/rename", moved)).status == 204
        elif since != "nothing":
            assert (await send(client, "DELETE", LEFT_PATH)).status == 204
        if since == "replaced":
            path = f"/v1/main/namespaces/{NAMESPACE}/tables"
            assert (await send(client, "POST", path, creation(LEFT))).status == 200
        again = await send(client, "POST", LEFT_PATH, commit)
        assert again.status == 200, again.body
        assert snapshots_of(again.json()["metadata"]) == [snapshot_id(1, [0])]
        if since == "replaced":
            assert not snapshots_of((await table(client, LEFT))["metadata"]), "it was made to another table"


async def test_a_commit_that_did_not_take_effect_is_refused_though_another_table_took_the_name(tmp_path: Path) -> None:
    async with three_tables(tmp_path) as client:
        commit = await commit_with_uuid(client)
        assert (await send(client, "DELETE", LEFT_PATH)).status == 204
        assert (await send(client, "POST", LEFT_PATH, commit)).refusal == (404, "NoSuchTableException")
        made = await send(client, "POST", f"/v1/main/namespaces/{NAMESPACE}/tables", creation(LEFT))
        assert made.status == 200
        assert (await send(client, "POST", LEFT_PATH, commit)).refusal == (409, "CommitFailedException")


async def test_a_commit_of_many_tables_that_took_effect_is_recognised_as_a_whole(tmp_path: Path) -> None:
    """The table that got only a property shows no trace of it. The others do, and all of it was one commit."""
    async with three_tables(tmp_path) as client:
        first, second = snapshot_id(1, [0]), snapshot_id(2, [1])
        schema = {"type": "assert-current-schema-id", "current-schema-id": 0}
        note = {"action": "set-properties", "updates": {"note": "first"}}
        body = {
            "table-changes": [
                named(LEFT, adding(first, head=True)),
                named(MIDDLE, {"requirements": [schema], "updates": [note]}),
            ]
        }
        assert (await send(client, "POST", "/v1/transactions/commit", body)).status == 204
        # Somebody else goes on, and the requirement of the middle table does not hold any more.
        evolve = [
            {"action": "add-schema", "schema": {**SCHEMA, "fields": [*SCHEMA["fields"], COLUMN]}},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "set-properties", "updates": {"note": "second"}},
        ]
        middle = f"/v1/main/namespaces/{NAMESPACE}/tables/{MIDDLE}"
        assert (await send(client, "POST", middle, {"requirements": [], "updates": evolve})).status == 200
        before = (await table(client, MIDDLE))["metadata-location"]
        again = await send(client, "POST", "/v1/transactions/commit", body)
        assert again.status == 204, again.body
        assert (await table(client, MIDDLE))["metadata-location"] == before, "nothing was applied twice"
        # Where one table shows it and another, which should, does not, nobody can know. It must not be a refusal.
        body["table-changes"][1] = named(MIDDLE, {**adding(second, head=True), "requirements": [schema]})
        torn = await send(client, "POST", "/v1/transactions/commit", body)
        assert torn.refusal == (504, "CommitStateUnknownException")
        assert (await table(client, MIDDLE))["metadata-location"] == before


COLUMN = {"id": 2, "name": "more", "required": False, "type": "string"}


async def test_a_created_table_is_recognised_under_another_name_if_it_has_the_snapshots(tmp_path: Path) -> None:
    async with three_tables(tmp_path) as client:
        uuid = "0b64b0d0-6a4f-4d62-8d63-3b9d3f3a1c55"
        updates = [
            {"action": "assign-uuid", "uuid": uuid},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            *adding(snapshot_id(1, [0]), head=True)["updates"],
        ]
        body = {"requirements": [{"type": "assert-create"}], "updates": updates}
        path = f"/v1/main/namespaces/{NAMESPACE}/tables/made"
        for _ in range(2):
            assert (await send(client, "POST", path, body)).status == 200
        names = ({"namespace": [NAMESPACE], "name": name} for name in ("made", "elsewhere"))
        moved = dict(zip(("source", "destination"), names, strict=True))
        assert (await send(client, "POST", "/v1/main/tables/rename", moved)).status == 204
        again = await send(client, "POST", path, body)
        assert again.status == 200, again.body
        assert (await send(client, "HEAD", path)).status == 404, "it is not made a second time"


# --- other ways to be dishonest ---


async def test_a_metadata_file_that_is_gone_is_no_refusal_of_a_commit_that_happened(tmp_path: Path) -> None:
    async with three_tables(tmp_path) as client:
        key, commit = new_key(random.Random(1)), adding(snapshot_id(1, [0]))
        done = await send(client, "POST", LEFT_PATH, commit, key)
        assert done.status == 200
        file_of(done.json()["metadata-location"]).unlink()
        again = await send(client, "POST", LEFT_PATH, commit, key)
        assert again.refusal == (504, "CommitStateUnknownException")
        assert again.header("X-Lakepact-Transaction") == key


def file_of(location: str) -> Path:
    return Path(location.removeprefix("file://"))


async def test_a_drop_of_a_namespace_sent_many_times_at_once_is_a_success_each_time(tmp_path: Path) -> None:
    async with three_tables(tmp_path) as client:
        for number in range(10):
            assert (await send(client, "POST", "/v1/main/namespaces", {"namespace": [f"n{number}"]})).status == 200
            key = new_key(random.Random(number))
            drops = [send(client, "DELETE", f"/v1/main/namespaces/n{number}", key=key) for _ in range(4)]
            statuses = [answer.status for answer in await asyncio.gather(*drops)]
            assert {204} <= set(statuses) <= {204, 503}, statuses
            assert (await send(client, "DELETE", f"/v1/main/namespaces/n{number}", key=key)).status == 204


async def test_a_table_that_is_only_looked_at_is_a_guard_of_the_others(tmp_path: Path) -> None:
    """Its requirement holds when the others change, not only when it was checked: two guards cannot both get through.

    Each of two commits requires that the other's table has no snapshot yet, and adds one to its own.
    """
    async with three_tables(tmp_path) as client:
        none_yet = {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": None}
        for number in range(10):
            names = [f"l{number}", f"r{number}"]
            for name in names:
                path = f"/v1/main/namespaces/{NAMESPACE}/tables"
                assert (await send(client, "POST", path, creation(name))).status == 200
            bodies = [
                {
                    "table-changes": [
                        named(mine, adding(snapshot_id(number + 1, [place]), head=True)),
                        named(other, {"requirements": [none_yet], "updates": []}),
                    ]
                }
                for place, (mine, other) in enumerate([names, names[::-1]])
            ]
            sent = [send(client, "POST", "/v1/transactions/commit", body) for body in bodies]
            statuses = [answer.status for answer in await asyncio.gather(*sent)]
            assert sorted(statuses) == [204, 409], f"round {number}: {statuses}"


async def test_a_table_that_is_registered_again_is_not_marked_for_purging_any_more(tmp_path: Path) -> None:
    async with three_tables(tmp_path) as client:
        location = (await table(client, LEFT))["metadata-location"]
        assert (await send(client, "DELETE", f"{LEFT_PATH}?purgeRequested=true")).status == 204
        path = f"/v1/main/namespaces/{NAMESPACE}/register"
        back = await send(client, "POST", path, {"name": LEFT, "metadata-location": location})
        assert back.status == 200
    store = await open_store(f"sqlite:///{tmp_path / 'data' / 'lakepact.db'}")
    try:
        assert not (await store.scan("main/dropped")).cells
    finally:
        await store.close()


async def test_marks_that_nobody_sees_leave_no_receipts(tmp_path: Path) -> None:
    async with three_tables(tmp_path) as client:
        assert (await send(client, "DELETE", f"/v1/main/namespaces/{NAMESPACE}")).status == 409
        path = f"/v1/main/namespaces/{NAMESPACE}/tables"
        assert (await send(client, "POST", path, creation("more"))).status == 200
    told = [receipt["change"] for receipt in receipts_in(tmp_path / "data" / "warehouse").values()]
    assert sorted(told) == ["create"] * 5, "a namespace and four tables"


async def test_receipts_are_written_however_long_no_server_ran_and_however_old_the_key_was(tmp_path: Path) -> None:
    settings = {"data": str(tmp_path / "data"), "log_level": "error"}
    three_hours_ago_ms = time.time_ns() // 1_000_000 - 3 * 3_600_000
    key = uuid7(three_hours_ago_ms, 1)
    # A server that writes none is one that was killed before it wrote any.
    async with opened({**settings, "receipts": False}) as (client, _):
        assert (await send(client, "POST", "/v1/main/namespaces", {"namespace": [NAMESPACE]}, key)).status == 200
        made = await send(client, "POST", f"/v1/main/namespaces/{NAMESPACE}/tables", creation(LEFT))
        location = made.json()["metadata-location"]
    assert not receipts_in(tmp_path / "data" / "warehouse")
    async with opened(settings) as (_, upkeep):
        assert await upkeep.turn()
    receipts = receipts_in(tmp_path / "data" / "warehouse")
    assert {receipt["transaction-id"] for receipt in receipts.values()} > {key}
    assert commit_key(location) in receipts


async def test_a_table_from_the_far_future_does_not_keep_others_from_their_receipts(tmp_path: Path) -> None:
    async with three_tables(tmp_path) as client:
        left = await table(client, LEFT)
        file = file_of(left["metadata-location"])
        strange = file.with_name("00001-strange.metadata.json")
        strange.write_text(json.dumps({**left["metadata"], "last-updated-ms": 2**62}))
        body = {"name": LEFT, "metadata-location": f"file://{strange}", "overwrite": True}
        assert (await send(client, "POST", f"/v1/main/namespaces/{NAMESPACE}/register", body)).status == 200
        # Somebody commits to it: the new version is no older than the one before, so its own date is as strange.
        assert (await send(client, "POST", LEFT_PATH, adding(snapshot_id(1, [0])))).status == 200
        location = (await table(client, LEFT))["metadata-location"]
    receipts = receipts_in(tmp_path / "data" / "warehouse")
    registered = [one for one in receipts.values() if one["metadata-location"] == f"file://{strange}"]
    assert [one["change"] for one in registered] == ["register"]
    assert receipts[commit_key(location)]["change"] == "commit"

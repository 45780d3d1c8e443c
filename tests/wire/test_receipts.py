"""Every committed change leaves one receipt, at a place that anybody can work out."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from lakepact.catalog import Catalog, CatalogSettings
from lakepact.catalog.warehouse import Warehouse
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.kernel.model import State, Transaction
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.stores import open_blobs, open_store
from lakepact.upkeep.receipts import Receipts
from tests.wire import test_delta as delta
from tests.wire.world import (
    CONTENDED,
    WIDER,
    Json,
    Wire,
    append,
    change,
    creation,
    new_key,
    set_properties,
    table_path,
    view_path,
)


def receipts(wire: Wire) -> list[Json]:
    """All of them, in the order in which their transactions were made. The server has been closed by now."""
    found = []
    for path in wire.path_of(f"{wire.root}/_catalog/events").rglob("*.json"):
        document = orjson.loads(path.read_bytes())
        assert path.stem == document["commit-key"]
        found.append(document)
    # Ids of the same millisecond have no order of their own. Two changes of one table have: its revisions.
    revisions: dict[str, int] = {}
    for one in found:
        revisions[one["transaction-id"]] = max(one["revision"], revisions.get(one["transaction-id"], 0))

    def order(one: Json) -> tuple[int, int, str, str]:
        made_by = one["transaction-id"]
        return timestamp_ms(made_by), revisions[made_by], made_by, one["name"] or ""

    return sorted(found, key=order)


def shown(wire: Wire) -> list[tuple[str, str, str]]:
    return [(one["kind"], one["change"], ".".join((*one["namespace"], one["name"] or "-"))) for one in receipts(wire)]


def place_of(wire: Wire, of: str, at_ms: int) -> Path:
    """Where a receipt lies, by the rule alone."""
    key = hashlib.sha256(of.encode()).hexdigest()
    day = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d")
    return wire.path_of(f"{wire.root}/_catalog/events/{day}/iceberg/committed/{key}.json")


async def test_there_is_one_receipt_for_every_change_of_every_kind(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace("db", owner="ada")
        await wire.post("/namespaces/db/properties", {"updates": {"owner": "bob"}})
        made = await wire.table()
        await wire.commit(append(1))
        await wire.post("/tables/rename", _rename("t", "u"))
        await wire.delete(table_path("u"))
        foreign = f"{made['metadata']['location']}/metadata/foreign.metadata.json"
        wire.path_of(foreign).write_bytes(orjson.dumps(made["metadata"]))
        await wire.post("/namespaces/db/register", {"name": "back", "metadata-location": foreign})
        await wire.post(f"{table_path('back')}/unregister")
        await wire.view()
        await wire.post(view_path(), {"updates": [set_properties(a="b")]})
        await wire.post("/views/rename", _rename("v", "w"))
        await wire.delete(view_path("w"))
        assert (await wire.delete("/namespaces/db")).status == 204
    # Each thing's own changes have an order; those of different things may fall into one millisecond.
    assert sorted(shown(wire), key=lambda one: one[0]) == [
        ("namespace", "create", "db.-"),
        ("namespace", "commit", "db.-"),
        ("namespace", "drop", "db.-"),
        ("table", "create", "db.t"),
        ("table", "commit", "db.t"),
        ("table", "rename", "db.u"),
        ("table", "drop", "db.u"),
        ("table", "register", "db.back"),
        ("table", "drop", "db.back"),
        ("view", "create", "db.v"),
        ("view", "commit", "db.v"),
        ("view", "rename", "db.w"),
        ("view", "drop", "db.w"),
    ]
    assert len({one["event-id"] for one in receipts(wire)}) == 13


async def test_registering_a_version_that_was_committed_here_before_leaves_a_receipt_too(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        await wire.delete(table_path())
        body = {"name": "back", "metadata-location": made["metadata-location"]}
        assert (await wire.post("/namespaces/db/register", body)).status == 200
    assert ("table", "register", "db.back") in shown(wire)


async def test_what_changed_nothing_or_was_refused_leaves_none(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace("db", a="b")
        await wire.table("t", properties={"a": "b"})
        key = new_key()
        for _ in range(3):
            await wire.commit([set_properties(a="c")], key=key)
        await wire.commit([set_properties(a="c")])
        await wire.commit([set_properties(a="d")], [{"type": "assert-table-uuid", "uuid": "x"}], key=new_key())
        await wire.create()
        await wire.create("staged", **{"stage-create": True})
        await wire.post("/namespaces/db/properties", {"updates": {"a": "b"}})
        assert (await wire.delete("/namespaces/db")).status == 409
        await wire.get(table_path())
    assert [one[1] for one in shown(wire)] == ["create", "create", "commit"]


async def test_anybody_can_work_out_where_a_receipt_is(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        committed = (await wire.commit(append(1))).json()
        renamed = await wire.post("/tables/rename", _rename("t", "u"))
    for one in (made, committed):
        assert place_of(wire, one["metadata-location"], one["metadata"]["last-updated-ms"]).is_file()
    transaction = TransactionId(renamed.header("X-Lakepact-Transaction") or "")
    # The third change of this table's pointer: created, committed, renamed.
    cell = f"cell:{made['metadata']['table-uuid']}:3"
    assert place_of(wire, cell, timestamp_ms(transaction)).is_file()


async def test_a_receipt_says_what_happened_and_who_did_it(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        headers = {"User-Agent": "test/1", "X-Client-Version": "Engine 7"}
        done = await wire.commit(append(7), headers=headers)
    [receipt] = [one for one in receipts(wire) if one["change"] == "commit"]
    committed = done.json()
    expected: dict[str, Any] = {
        "format": 1,
        "kind": "table",
        "id": made["metadata"]["table-uuid"],
        "namespace": ["db"],
        "name": "t",
        "transaction-id": done.header("X-Lakepact-Transaction"),
        "transaction-tables": 1,
        "metadata-location": committed["metadata-location"],
        "previous-metadata-location": made["metadata-location"],
        "base-metadata-location": made["metadata-location"],
        "snapshot-id": 7,
        "schema-id": 0,
        "lineage": "declared-unverified",
        "quality": "not-checked",
        "inputs": [],
        "checks": [],
    }
    assert {name: receipt[name] for name in expected} == expected
    assert receipt["source"] == {"kind": "rest", "client": "Engine 7", "principal": None}
    assert receipt["snapshot-operation"] == "append"


async def test_a_transaction_of_many_tables_leaves_one_receipt_for_each(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table("a")
        await wire.commit_all(
            change("a", append(1)),
            {**creation(updates=append(2)), "identifier": {"namespace": ["db"], "name": "b"}},
        )
    both = [one for one in receipts(wire) if one["transaction-tables"] == 2]
    assert [(one["name"], one["change"]) for one in both] == [("a", "commit"), ("b", "create")]
    assert len({one["transaction-id"] for one in both}) == 1


async def test_racing_writers_leave_exactly_one_receipt_a_version(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, **CONTENDED) as wire:
        await wire.namespace()
        await wire.table()
        await asyncio.gather(*(wire.commit([set_properties(**{f"p{number}": "x"})]) for number in range(10)))
        log = (await wire.load())["metadata"]
    commits = [one for one in receipts(wire) if one["change"] == "commit"]
    assert len(commits) == 10
    previous = {one["previous-metadata-location"] for one in commits}
    assert previous == {entry["metadata-file"] for entry in log["metadata-log"]}


async def test_switched_off_there_are_none(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, receipts=False) as wire:
        await wire.namespace()
        await wire.table()
    assert not wire.path_of(f"{wire.root}/_catalog").exists()


async def test_what_a_crash_has_left_out_is_written_by_upkeep(tmp_path: Path) -> None:
    """A server that never writes receipts is one that dies between every commit and its receipt."""
    async with Wire.opened(tmp_path, receipts=False) as wire:
        await wire.namespace("db")
        made = await wire.table("t", properties={"write.metadata.previous-versions-max": "1"})
        await wire.commit(append(1))
        await wire.commit_all(
            change("t", [set_properties(a="b")]), {**creation(), "identifier": {"namespace": ["db"], "name": "b"}}
        )
        await wire.view()
        await wire.post("/tables/rename", _rename("t", "u"))
        await wire.delete(f"{table_path('u')}?purgeRequested=true")
    async with _upkeep(wire) as upkeep:
        await _to_the_end(upkeep)
    late = receipts(wire)
    assert [(one["kind"], one["change"]) for one in late] == [
        ("namespace", "create"),
        ("table", "create"),
        ("table", "commit"),
        ("table", "create"),
        ("table", "commit"),
        ("view", "create"),
        ("table", "rename"),
        ("table", "drop"),
    ]
    assert place_of(wire, made["metadata-location"], made["metadata"]["last-updated-ms"]).is_file()
    # And once more, by somebody who does not know that it was done: nothing changes.
    async with _upkeep(wire) as upkeep:
        await _to_the_end(upkeep)
    assert receipts(wire) == late


async def test_a_receipt_written_late_is_the_one_that_would_have_been_written_at_once(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        await wire.commit(append(1))
    at_once = receipts(wire)
    for path in wire.path_of(f"{wire.root}/_catalog/events").rglob("*.json"):
        path.unlink()
    async with _upkeep(wire) as upkeep:
        await _to_the_end(upkeep)
    assert receipts(wire) == at_once


async def test_a_warehouse_that_cannot_be_written_to_does_not_fail_a_commit(tmp_path: Path) -> None:
    """Receipts are written after the answer. A place that is taken by something else is upkeep's problem."""
    async with Wire.opened(tmp_path) as wire:
        blocked = wire.path_of(f"{wire.root}/_catalog")
        blocked.write_bytes(b"in the way")
        await wire.namespace()
        made = await wire.table()
        assert (await wire.commit(append(1))).status == 200
    blocked.unlink()
    async with _upkeep(wire) as upkeep:
        await _to_the_end(upkeep)
    assert place_of(wire, made["metadata-location"], made["metadata"]["last-updated-ms"]).is_file()


async def test_a_receipt_that_cannot_be_written_does_not_keep_others_of_its_batch_from_it(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = [await wire.table(name) for name in ("a", "b", "c")]
    places = [place_of(wire, one["metadata-location"], one["metadata"]["last-updated-ms"]) for one in made]
    for place in places:
        place.unlink()
    places[1].mkdir()
    async with _upkeep(wire) as upkeep:
        store = await open_store(wire.settings.store)
        page = await store.transactions([State.COMMITTED])
        for one in page.transactions:
            upkeep.later(Transaction(one.id, one.request_hash, one.writes, answer=one.answer or {}))
        await store.close()
        upkeep.hurry()
    assert [place.is_file() for place in places] == [True, False, True]


async def _to_the_end(upkeep: Receipts) -> None:
    while await upkeep.catch_up():
        pass


@asynccontextmanager
async def _upkeep(wire: Wire) -> AsyncIterator[Receipts]:
    """Upkeep of a process that has just started, over what the server has left."""
    clock, tasks = SystemClock(), AsyncioTasks()
    store, blobs = await open_store(wire.settings.store), await open_blobs(wire.root)
    try:
        catalog = Catalog(Warehouse("main", wire.root), store, blobs, clock, SystemRng(), tasks, CatalogSettings())
        yield Receipts({"main": catalog}, store, clock, tasks)
    finally:
        await tasks.drain()
        await blobs.close()
        await store.close()


def _rename(source: str, target: str) -> Json:
    return {
        "source": {"namespace": ["db"], "name": source},
        "destination": {"namespace": ["db"], "name": target},
    }


async def test_a_receipt_names_the_snapshots_that_its_commit_has_added_and_no_others(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table()
        await wire.commit([*append(1), *append(2)])
        await wire.commit([set_properties(a="b")])
    named = [
        [one["snapshot-id"] for one in receipt["snapshots"]] for receipt in receipts(wire) if "snapshots" in receipt
    ]
    assert named == [[], [], [1, 2], []]
    [added] = [receipt for receipt in receipts(wire) if receipt["snapshots"]]
    assert added["snapshots"][-1]["operation"] == added["snapshot-operation"]
    assert added["snapshots"][-1]["summary"] == added["summary"]


async def test_a_receipt_of_a_delta_table_says_how_large_it_is(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await delta.create(wire)
        for actions in (
            [delta.add("a"), delta.add("b", stats='{"numRecords":7}')],
            [delta.add("c", size=5)],
            [delta.remove("a"), delta.add("d", stats=None)],
            [delta.remove("d")],
        ):
            assert (await delta.commit(wire, *actions)).status == 200
        loaded = [await delta.load(wire, version=str(number)) for number in range(5)]
    told = [one["totals"] for one in sorted(receipts(wire), key=lambda one: one["revision"]) if one["kind"] == "delta"]
    assert told == [
        {"files": 0, "bytes": 0, "records": 0},
        {"files": 2, "bytes": 200, "records": 8},
        {"files": 3, "bytes": 205, "records": 9},
        {"files": 3, "bytes": 205},
        {"files": 2, "bytes": 105, "records": 8},
    ]
    for version, totals in zip(loaded, told, strict=True):
        files = [action["add"] for action in version["files"]]
        assert (totals["files"], totals["bytes"]) == (len(files), sum(one["size"] for one in files))


async def test_a_receipt_says_what_a_commit_has_changed_beside_rows(tmp_path: Path) -> None:
    def ref(name: str, kind: str, snapshot_id: int) -> Json:
        return {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot_id}

    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        await wire.table("t", properties={"old": "1"})
        steps: list[list[Json]] = [
            append(1),
            [*append(2, sequence=2, parent=1), set_properties(a="b")],
            [
                {"action": "add-schema", "schema": {**WIDER, "schema-id": 1}},
                {"action": "set-current-schema", "schema-id": -1},
            ],
            [ref("eoy", "tag", 1), ref("dev", "branch", 2)],
            [set_properties(a="c", d="e"), {"action": "remove-properties", "removals": ["old"]}],
            [ref("main", "branch", 1)],
            [{"action": "remove-snapshot-ref", "ref-name": "eoy"}],
        ]
        for updates in steps:
            answer = await wire.commit(updates)
            assert answer.status == 200, answer.json()
    made, *commits = [one for one in receipts(wire) if one["kind"] == "table"]
    assert "changed" not in made
    assert [one["changed"] for one in commits] == [
        {},
        {"properties": {"set": ["a"]}},
        {"schema": {"from": 0, "to": 1}},
        {"refs": {"set": {"dev": {"type": "branch", "snapshot-id": 2}, "eoy": {"type": "tag", "snapshot-id": 1}}}},
        {"properties": {"set": ["a", "d"], "removed": ["old"]}},
        {"refs": {"set": {"main": {"type": "branch", "snapshot-id": 1}}}},
        {"refs": {"removed": ["eoy"]}},
    ]

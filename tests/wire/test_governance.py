"""What people say about tables, and the audit trail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakepact.catalog.trail import Entry, Outcome
from lakepact.errors import StoreUnavailable
from lakepact.runtime import SystemClock
from lakepact.stores.memory import MemoryBlobs
from lakepact.upkeep.audit import AuditTrail
from tests.support.collecting import collected
from tests.wire import test_delta as delta
from tests.wire.people import Person, house, on_namespace, on_table
from tests.wire.test_receipts import receipts
from tests.wire.world import Json, Wire, creation, new_key, set_properties, table_path

EMPTY: Json = {"owner": None, "description": None, "tags": {}, "protected": False}


async def put(wire: Wire, name: str = "t", key: str | None = None, **fields: Any) -> Json:
    headers = {} if key is None else {"Idempotency-Key": key}
    path = f"{wire.base}{table_path(name)}/governance"
    answer = await wire.client.send("PUT", path, json=fields, headers=headers)
    assert answer.status == 200, answer.body
    said: Json = answer.json()
    return said


async def said(wire: Wire, name: str = "t") -> Json:
    answer = await wire.get(f"{table_path(name)}/governance")
    assert answer.status == 200, answer.body
    found: Json = answer.json()
    return found


async def test_fields_that_are_given_are_set_and_others_stay(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace()
    before = await wire.table()
    assert await said(wire) == EMPTY
    await put(wire, owner="finance", tags={"pii": "no"})
    await put(wire, description="orders", protected=True)
    full = {"owner": "finance", "description": "orders", "tags": {"pii": "no"}, "protected": True}
    assert await said(wire) == full
    assert await put(wire, owner=None, tags=None, protected=None) == {**EMPTY, "description": "orders"}
    # Nothing of it is Iceberg's.
    assert await wire.load() == before


async def test_it_goes_with_the_table_and_not_with_the_name(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    await put(wire, owner="finance")
    body = {"source": {"namespace": ["db"], "name": "t"}, "destination": {"namespace": ["db"], "name": "u"}}
    assert (await wire.post("/tables/rename", body)).status == 204
    await wire.table()
    assert (await said(wire, "u"))["owner"] == "finance"
    assert await said(wire, "t") == EMPTY
    assert (await wire.get(f"{table_path('none')}/governance")).status == 404


async def test_what_was_said_about_a_table_goes_with_its_files_and_not_to_who_takes_its_uuid(wire: Wire) -> None:
    await wire.namespace()
    uuid = (await wire.table())["metadata"]["table-uuid"]
    await put(wire, owner="finance", description="who earns what")
    assert (await wire.delete(f"{table_path()}?purgeRequested=true")).status == 204
    await collected(wire.settings, drop_retention_s=0)
    again = creation(updates=[{"action": "assign-uuid", "uuid": uuid}])
    made = await wire.post(table_path("u"), again)
    assert made.status == 200, made.body
    assert await said(wire, "u") == EMPTY


async def test_views_and_delta_tables_have_it_too(wire: Wire) -> None:
    await wire.namespace()
    await wire.view()
    await delta.create(wire)
    for name in ("v", "labels"):
        await put(wire, name, owner=name)
        assert (await said(wire, name))["owner"] == name


async def test_it_is_said_once_under_a_key_and_staged_in_a_transaction(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    key = new_key()
    first = await put(wire, key=key, owner="one")
    await put(wire, owner="two")
    assert await put(wire, key=key, owner="one") == first
    assert (await said(wire))["owner"] == "two"
    begun = (await wire.post("/transactions", {})).json()
    inside = Wire(wire.client, wire.settings, base=f"/v1/{begun['prefix']}")
    await put(inside, owner="three")
    assert ((await said(inside))["owner"], (await said(wire))["owner"]) == ("three", "two")
    assert (await wire.post(f"/transactions/{begun['transaction-id']}/commit", {})).status == 200
    assert (await said(wire))["owner"] == "three"


async def test_a_change_leaves_a_receipt_of_its_own_kind(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
        made = await wire.table()
        await put(wire, owner="finance", description="orders")
        await put(wire, owner="finance")
        await put(wire, tags={"a": "b"})
    found = [one for one in receipts(wire) if one["kind"] == "governance"]
    assert [one["governance"]["tags"] for one in found] == [{}, {"a": "b"}]
    assert {one["id"] for one in found} == {made["metadata"]["table-uuid"]}
    assert [(one["change"], one["namespace"], one["name"]) for one in found] == [("commit", ["db"], "t")] * 2
    assert found[0]["governance"] == {**EMPTY, "owner": "finance", "description": "orders"}
    assert len({one["commit-key"] for one in receipts(wire)}) == len(receipts(wire))


async def test_registering_over_a_protected_table_is_refused(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    await put(wire, protected=True)
    file = wire.path_of(f"{wire.root}/elsewhere/metadata/1.metadata.json")
    file.parent.mkdir(parents=True)
    other = {**made["metadata"], "table-uuid": new_key(), "location": f"{wire.root}/elsewhere"}
    file.write_text(json.dumps(other))
    body = {"name": "t", "metadata-location": f"file://{file}", "overwrite": True}
    answer = await wire.post("/namespaces/db/register", body)
    assert answer.refusal == (409, "ProtectedException"), answer.body
    await put(wire, protected=False)
    assert (await wire.post("/namespaces/db/register", body)).status == 200


# --- the audit trail ---


def trail(person: Person) -> list[Json]:
    files = sorted(person.path_of(f"{person.root}/_catalog/audit").rglob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


async def test_every_change_of_somebody_leaves_one_line(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await root.namespace()
        await root.table()
        await root.grant("user:eve", "write", **on_namespace())
        await eve.commit([set_properties(a="b")], key=(key := new_key()))
        await eve.commit([], [{"type": "assert-table-uuid", "uuid": new_key()}])
        await eve.delete(table_path())
        begun = (await eve.post("/transactions")).json()["transaction-id"]
        await eve.at(f"main@{begun}").commit([set_properties(a="c")])
        await eve.post(f"/transactions/{begun}/commit")
        await eve.get(table_path())
    told = [(one["principal"], one["operation"], one["outcome"], one["tables"]) for one in trail(people.root)]
    assert told == [
        ("root", "createNamespace", "applied", []),
        ("root", "createTable", "applied", []),
        ("root", "addGrant", "applied", []),
        ("eve", "updateTable", "applied", ["db.t"]),
        ("eve", "updateTable", "refused", ["db.t"]),
        ("eve", "dropTable", "denied", ["db.t"]),
        ("eve", "beginTransaction", "applied", []),
        ("eve", "updateTable", "staged", ["db.t"]),
        ("eve", "publishTransaction", "applied", ["db.t"]),
    ]
    entries = trail(people.root)
    assert entries[3]["transaction-id"] == key
    assert entries[-1]["transaction-id"] == begun
    assert entries[1]["detail"] == {"name": "t"} and entries[1]["namespaces"] == ["db"]
    assert entries[2]["detail"] == {"holder": "user:eve", "role": "write", "on": "db"}
    assert "manage" in entries[5]["reason"]


async def test_reads_are_told_only_if_that_is_asked_for_and_nothing_if_it_is_off(tmp_path: Path) -> None:
    for audit, expected in (("all", ["loadTable"]), ("off", [])):
        async with house(tmp_path / audit, audit=audit) as people:
            await people.root.namespace()
            await people.root.table()
            await people.root.load()
        assert [one["operation"] for one in trail(people.root) if one["operation"] == "loadTable"] == expected
        assert bool(trail(people.root)) == (audit == "all")


async def test_a_server_without_names_has_no_trail(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace()
    assert not wire.path_of(f"{wire.root}/_catalog/audit").exists()


class Moody(MemoryBlobs):
    """Does not take anything while it is down."""

    down = False

    async def put(self, name: str, data: bytes) -> bool:
        if self.down:
            raise StoreUnavailable("down")
        return await super().put(name, data)


async def test_entries_wait_for_the_warehouse_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakepact.upkeep.audit._MOST_WAITING", 3)
    blobs, lost = Moody(), [0]

    def count() -> None:
        lost[0] += 1

    audit = AuditTrail({"main": blobs}, SystemClock(), process="p", interval_s=1.0, on_lost=count)
    blobs.down = True
    for number in range(5):
        audit.note("main", Entry(1_700_000_000_000, "default", "eve", f"operation{number}", Outcome.APPLIED))
        await audit.flush()
    assert lost == [2]
    blobs.down = False
    audit.note("main", Entry(1_700_100_000_000, "default", "eve", "later", Outcome.DENIED))
    await audit.stop()
    await audit.stop()
    names = [entry.name for entry in await blobs.list("")]
    assert [name.split("/")[2] for name in names] == ["2023-11-14", "2023-11-16"]
    lines = [json.loads(line) for name in names for line in (await blobs.get(name) or b"").splitlines()]
    assert [line["operation"] for line in lines] == ["operation3", "operation4", "later"]


async def test_a_table_that_is_hidden_has_nothing_to_say(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, eve = people.root, people.eve
        await root.namespace()
        await root.table()
        assert (await eve.get(f"{table_path()}/governance")).status == 404
        await root.grant("user:eve", "create", **on_table())
        assert await said(eve) == EMPTY
        assert (await eve.put(f"{table_path()}/governance", {"owner": "eve"})).status == 403


async def test_a_table_that_comes_with_a_grant_has_its_receipt_whoever_writes_it(tmp_path: Path) -> None:
    async with house(tmp_path, receipts=False) as people:
        await people.root.namespace()
        await people.root.grant("user:eve", "create", **on_namespace())
        await people.eve.table("mine")
        await people.root.grant("user:eve", "manage", **on_namespace())
        await people.root.table("last")
    async with house(tmp_path) as people:
        assert people.root.service is not None
        assert await people.root.service.upkeep.turn()
    kinds = [(one["kind"], one["change"], one["name"]) for one in receipts(people.root)]
    assert kinds == [("namespace", "create", None), ("table", "create", "mine"), ("table", "create", "last")]

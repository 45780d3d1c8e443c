"""The location policy: one spelling of each location, no overlap of tables, and no disclosure of hidden ones."""

from __future__ import annotations

import asyncio
import json
from itertools import permutations
from pathlib import Path
from typing import Any

import grpc
import pytest

from lakepact.catalog.announced import announce
from lakepact.v1 import transactions_pb2 as pb
from tests.support.showcase import DELTA_SCHEMA
from tests.wire.overlays import begin
from tests.wire.people import house, on_namespace, on_table
from tests.wire.test_grpc import change as grpc_change
from tests.wire.test_grpc import successor
from tests.wire.test_grpc_rights import _opened
from tests.wire.world import Json, Wire, change, table_path

ESCAPES = (
    "x/../y",
    "x/./y",
    "x//y",
    "x\\y",
    "%2e%2e/y",
    "x/%2E%2e/y",
    "%252e%252e/y",
    "x/%25252e%25252e/y",
    "x/%5c/y",
    "x%00y",
    "_catalog/y",
    "_CATALOG/y",
    "_Mirrors/y",
    "%5fcatalog/y",
    "%5Fcata%6cog/y",
    "_catalog./y",
    "\uff3fcatalog/y",
    "x%2fy",
    "x%252fy",
    "x/%61",
    "cafe\u0301/y",
)
"""Below the warehouse's root: each of them has two readings, leads elsewhere, or is in Lakepact's own folders."""


def view(**more: Any) -> Json:
    version = {
        "version-id": 1,
        "timestamp-ms": 1,
        "schema-id": 0,
        "summary": {},
        "default-namespace": ["db"],
        "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
    }
    schema = {"type": "struct", "schema-id": 0, "fields": []}
    return {"name": "v", "schema": schema, "view-version": version, "properties": {}, **more}


@pytest.mark.parametrize("escape", ESCAPES)
async def test_location_with_two_readings_is_refused_everywhere(wire: Wire, escape: str) -> None:
    await wire.namespace()
    await wire.table("t")
    location = f"{wire.root}/{escape}"
    requests: list[tuple[str, Json]] = [
        ("/namespaces/db/tables", {"name": "n", "schema": {"type": "struct", "fields": []}, "location": location}),
        (
            "/namespaces/db/tables",
            {"name": "n", "schema": {"type": "struct", "fields": []}, "location": location, "stage-create": True},
        ),
        ("/namespaces", {"namespace": ["n"], "properties": {"location": location}}),
        ("/namespaces/db/properties", {"updates": {"location": location}}),
        ("/namespaces/db/views", view(location=location)),
        ("/namespaces/db/delta-tables", {"name": "n", "schema": DELTA_SCHEMA, "location": location}),
        ("/namespaces/db/register", {"name": "n", "metadata-location": f"{location}/v1.metadata.json"}),
        (
            table_path("t"),
            {"requirements": [], "updates": [{"action": "set-location", "location": location}]},
        ),
        (
            table_path("t"),
            {"requirements": [], "updates": [{"action": "set-properties", "updates": {"write.data.path": location}}]},
        ),
    ]
    for path, body in requests:
        answer = await wire.post(path, body)
        # What is registered is the path of a file: its spelling is checked, and the location that it holds.
        assert answer.status in ((400, 404) if path.endswith("register") else (400,)), (path, answer.body)
    tx = await begin(wire)
    assert (await tx.create("n", location=location)).status == 400


async def test_plain_locations_are_accepted(wire: Wire) -> None:
    await wire.namespace()
    for number, name in enumerate(("plain", "my table", "my%20table2", "caf\u00e9", "a=b", "_cat", "x.y", "c@log")):
        answer = await wire.create(f"t{number}", location=f"{wire.root}/{name}")
        assert answer.status == 200, (name, answer.body)


# --- overlaps ---


@pytest.mark.parametrize("first", ["inner", "outer"])
async def test_no_table_is_created_inside_or_around_another(anywhere: Wire, first: str) -> None:
    wire = anywhere
    root = wire.root
    await wire.namespace()
    locations = {"outer": f"{root}/place", "inner": f"{root}/place/deep/inner"}
    second = "outer" if first == "inner" else "inner"
    await wire.table("one", location=locations[first])
    await wire.table("other")
    moved = await wire.load("other")
    document = successor(moved, location=locations[second])
    file = f"{moved['metadata']['location']}/metadata/00009-x.metadata.json"
    await put_blob(wire, file, {**document, "table-uuid": "7c3b6a52-6c4f-4b73-9d7e-0a4f6a0f4e11"})
    move = {"requirements": [], "updates": [{"action": "set-location", "location": locations[second]}]}
    creation = {"name": "two", "schema": {"type": "struct", "fields": []}, "location": locations[second]}
    requests: list[tuple[str, Json]] = [
        ("/namespaces/db/tables", creation),
        ("/namespaces/db/tables", {**creation, "stage-create": True}),
        ("/namespaces/db/register", {"name": "two", "metadata-location": file}),
        (table_path("other"), move),
        ("/transactions/commit", {"table-changes": [change("other", move["updates"])]}),
    ]
    if wire.settings.store.startswith(("sqlite", "postgres")):
        requests.append(
            ("/namespaces/db/delta-tables", {"name": "two", "schema": DELTA_SCHEMA, "location": locations[second]})
        )
    for path, body in requests:
        answer = await wire.post(path, body)
        assert answer.status == 400, (path, answer.body)
        assert "overlaps" in answer.error["message"] and "db.one" in answer.error["message"], answer.body
    tx = await begin(wire)
    assert (await tx.create("two", location=locations[second])).status == 400
    assert (await tx.post(table_path("other"), move)).status == 400
    assert (await wire.create("sibling", location=f"{locations['outer']}-more")).status == 200


async def test_of_tables_that_contain_one_another_and_come_at_the_same_instant_one_is_created(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace()
    for number in range(4):
        root = f"{wire.root}/place{number}"
        assert (
            await wire.post("/namespaces", {"namespace": [f"n{number}"], "properties": {"location": f"{root}/deep"}})
        ).status == 200
        answers = await asyncio.gather(
            wire.create(f"outer{number}", location=root),
            wire.create(f"inner{number}", location=f"{root}/deep/inner"),
            wire.create(f"middle{number}", location=f"{root}/deep"),
            wire.create("default", f"n{number}"),
        )
        created = [answer.json()["metadata"]["location"] for answer in answers if answer.status == 200]
        assert created and {answer.status for answer in answers} <= {200, 400}, [answer.body for answer in answers]
        for outer, inner in permutations(created, 2):
            assert not inner.startswith(f"{outer}/"), (outer, inner)


async def test_note_of_a_crashed_request_neither_reserves_a_location_nor_hides_it(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace()
    assert wire.service is not None
    parts = wire.service.catalogs["main"].parts
    for location in (f"{wire.root}/place", f"{wire.root}/other"):
        key = parts.keys.location(parts.warehouse.blob_name(location))
        assert await announce(parts, (await parts.store.read([key]))[key], location) is not None
    assert (await wire.create("inner", location=f"{wire.root}/place/inner")).status == 200
    key = parts.keys.location("place")
    assert (await parts.store.read([key]))[key].value is None
    assert (await wire.create("outer", location=f"{wire.root}/place")).status == 400
    tx = await begin(wire)
    assert (await tx.create("t", location=f"{wire.root}/other")).status == 200
    assert (await tx.do("commit")).status == 200
    assert (await wire.create("u", location=f"{wire.root}/other/u")).status == 400


@pytest.mark.parametrize("second", ["inner", "outer"])
async def test_table_is_not_restored_into_an_overlap(anywhere: Wire, second: str) -> None:
    wire = anywhere
    await wire.namespace()
    locations = {"outer": f"{wire.root}/place", "inner": f"{wire.root}/place/inner"}
    first = "outer" if second == "inner" else "inner"
    id = (await wire.table("dropped", location=locations[first]))["metadata"]["table-uuid"]
    assert (await wire.delete(table_path("dropped"))).status == 204
    assert wire.service is not None
    catalog = wire.service.catalogs["main"]
    before_ms = catalog.now_ms()
    await catalog.collect_step(lambda draft: catalog.dropped.release(draft, id, before_ms))
    assert (await wire.create("t", location=locations[second])).status == 200
    refused = await wire.post("/tables/undrop", {"identifier": {"namespace": ["db"], "name": "dropped"}})
    assert refused.status == 400 and "overlaps" in refused.error["message"], refused.body
    assert (await wire.delete(table_path("t"))).status == 204
    assert (await wire.post("/tables/undrop", {"identifier": {"namespace": ["db"], "name": "dropped"}})).status == 400


async def put_blob(wire: Wire, location: str, document: Json) -> None:
    assert wire.service is not None
    catalog = wire.service.catalogs["main"]
    await catalog.parts.blobs.put(catalog.warehouse.blob_name(location), json.dumps(document).encode())


async def test_table_is_not_created_around_a_view(wire: Wire) -> None:
    await wire.namespace()
    assert (await wire.post("/namespaces/db/views", view(location=f"{wire.root}/place/v"))).status == 200
    answer = await wire.create("t", location=f"{wire.root}/place")
    assert answer.status == 400 and "view db.v" in answer.error["message"]


@pytest.mark.parametrize("first", ["inner", "outer"])
async def test_of_two_open_transactions_the_second_to_publish_is_refused(anywhere: Wire, first: str) -> None:
    wire = anywhere
    await wire.namespace()
    root = wire.root
    inner, outer = await begin(wire, isolation="snapshot"), await begin(wire, isolation="snapshot")
    assert (await outer.create("outer", location=f"{root}/place")).status == 200
    assert (await inner.create("inner", location=f"{root}/place/inner")).status == 200
    begun = [inner, outer] if first == "inner" else [outer, inner]
    assert (await begun[0].do("commit")).status == 200
    refused = await begun[1].do("commit")
    assert refused.status == 409 and "overlaps" in refused.error["message"], refused.body


@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
async def test_a_refused_location_around_others_fails_no_open_transaction(anywhere: Wire, isolation: str) -> None:
    wire = anywhere
    await wire.namespace()
    root = wire.root
    await wire.table("first", location=f"{root}/place/first")
    tx = await begin(wire, isolation=isolation)
    assert (await tx.create("second", location=f"{root}/place/second")).status == 200
    refused = await wire.create("outer", location=f"{root}/place")
    assert refused.status == 400 and "overlaps" in refused.error["message"], refused.body
    committed = await tx.do("commit")
    assert committed.status == 200, committed.body


async def test_tables_of_one_transaction_do_not_overlap_either(wire: Wire) -> None:
    await wire.namespace()
    root = wire.root
    tx = await begin(wire)
    assert (await tx.create("inner", location=f"{root}/place/inner")).status == 200
    created = await tx.create("outer", location=f"{root}/place")
    assert created.status == 400 or (await tx.do("commit")).status == 409


async def test_dropped_table_keeps_its_location_and_is_not_restored_into_another(wire: Wire) -> None:
    await wire.namespace()
    root = wire.root
    await wire.table("inner", location=f"{root}/place/inner")
    assert (await wire.delete(table_path("inner"))).status == 204
    refused = await wire.create("outer", location=f"{root}/place")
    assert refused.status == 400 and "was dropped" in refused.error["message"]


async def test_namespace_location_inside_a_table_gives_no_table(wire: Wire) -> None:
    await wire.namespace()
    location = (await wire.table("t", location=f"{wire.root}/place"))["metadata"]["location"]
    assert (
        await wire.post("/namespaces", {"namespace": ["n"], "properties": {"location": f"{location}/n"}})
    ).status in (
        200,
        400,
    )
    if (await wire.get("/namespaces/n")).status == 200:
        assert (await wire.create("x", "n")).status == 400


# --- disclosure ---


async def test_overlap_refusal_names_no_table_that_the_requester_cannot_see(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        root, ann = people.root, people.ann
        await root.namespace("db")
        await root.namespace("hidden")
        await root.grant("user:ann", "create", **on_namespace("db"))
        # The folder that the catalog would choose for tables of db.
        made = await root.table("zzsecret", "hidden", location=f"{root.root}/db")
        answer = await ann.create("t")
        assert answer.status == 400 and "overlaps" in answer.error["message"]
        assert "zzsecret" not in str(answer.body) and made["metadata"]["table-uuid"] not in str(answer.body)
        by_root = await root.create("t")
        assert by_root.status == 400 and "hidden.zzsecret" in by_root.error["message"]
        tx = (await ann.post("/transactions", {})).json()["transaction-id"]
        staged = await ann.at(f"main@{tx}").create("t")
        assert staged.status == 400 and "zzsecret" not in str(staged.body)


async def test_prepare_with_a_location_over_a_hidden_table_does_not_name_it(tmp_path: Path) -> None:
    async with _opened(tmp_path) as room:
        root = room.root
        secret = (await root.load("secret", "hidden"))["metadata"]
        await root.grant("user:eve", "write", **on_table("b"))
        own = await root.load("b")
        assert (await root.delete(table_path("secret", "hidden"))).status == 204
        for dropped in (True, False):
            if not dropped:
                await root.table("secret2", "hidden", location=f"{root.root}/chosen")
            targets = [secret["location"]] if dropped else [f"{root.root}/chosen/x", f"{root.root}/chosen"]
            for location in targets:
                document = json.dumps(successor(own, location=location)).encode()
                begun = await room.begin("eve")
                request = pb.PrepareTransactionRequest(
                    transaction_id=begun, changes=[grpc_change("b", metadata_document=document)]
                )
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await room.stub.PrepareTransaction(request, metadata=(("authorization", "eve"),))
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
                refusal = (str(refused.value.details()) + str(refused.value.trailing_metadata())).replace(location, "")
                assert "hidden" not in refusal and secret["table-uuid"] not in refusal

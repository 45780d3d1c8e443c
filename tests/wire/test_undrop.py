"""What was dropped comes back as it was, until its files are being deleted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.asgi_client import Answer
from tests.wire.test_delta import SCHEMA as DELTA_SCHEMA
from tests.wire.test_receipts import receipts
from tests.wire.world import SCHEMA, VIEW_VERSION, Wire, append, new_key

Json = dict[str, Any]


def named(name: str, namespace: str = "db") -> Json:
    return {"namespace": [namespace], "name": name}


async def undrop(wire: Wire, body: Json, **more: Any) -> Answer:
    return await wire.post("/tables/undrop", body, **more)


async def dropped(wire: Wire) -> list[Json]:
    answer = await wire.get("/dropped")
    assert answer.status == 200, answer
    return list(answer.json()["dropped"])


async def create(wire: Wire, name: str, **more: Any) -> Json:
    answer = await wire.post("/namespaces/db/tables", {"name": name, "schema": SCHEMA, **more})
    assert answer.status == 200, answer
    return dict(answer.json())


async def test_a_dropped_table_comes_back_with_its_history(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace("db")
    await create(wire, "t")
    before = (await wire.post("/namespaces/db/tables/t", {"requirements": [], "updates": append(1)})).json()
    assert (await wire.delete("/namespaces/db/tables/t?purgeRequested=true")).status == 204
    [note] = await dropped(wire)
    assert (note["identifier"], note["state"], note["purge"]) == (named("t"), "restorable", True)
    assert note["retained-until-ms"] - note["dropped-ms"] == 7 * 86_400_000
    answer = await undrop(wire, {"identifier": named("t")})
    assert answer.status == 200, answer
    assert answer.json()["metadata-location"] == before["metadata-location"]
    loaded = (await wire.get("/namespaces/db/tables/t")).json()
    assert loaded["metadata"] == before["metadata"]
    assert await dropped(wire) == []
    # It goes on from there.
    again = await wire.post("/namespaces/db/tables/t", {"requirements": [], "updates": append(2, 2, 1)})
    assert again.status == 200, again


async def test_a_taken_name_is_409_and_another_name_is_not(wire: Wire) -> None:
    await wire.namespace("db")
    first = await create(wire, "t")
    await wire.delete("/namespaces/db/tables/t")
    await create(wire, "t")
    answer = await undrop(wire, {"identifier": named("t")})
    assert (answer.status, answer.json()["error"]["type"]) == (409, "AlreadyExistsException")
    assert (await undrop(wire, {"identifier": named("t"), "destination": named("old")})).status == 200
    loaded = (await wire.get("/namespaces/db/tables/old")).json()
    assert loaded["metadata"]["table-uuid"] == first["metadata"]["table-uuid"]


async def test_of_several_with_one_name_the_last_comes_back_or_the_one_that_is_asked_for(wire: Wire) -> None:
    await wire.namespace("db")
    ids = []
    for _ in range(3):
        ids.append((await create(wire, "t"))["metadata"]["table-uuid"])
        await wire.delete("/namespaces/db/tables/t")
        await asyncio.sleep(0.002)
    assert (await undrop(wire, {"identifier": named("t"), "id": ids[0], "destination": named("first")})).status == 200
    assert (await undrop(wire, {"identifier": named("t")})).json()["id"] == ids[2]
    assert (await undrop(wire, {"id": ids[1], "destination": named("second")})).status == 200
    missing = await undrop(wire, {"identifier": named("t"), "destination": named("more")})
    assert missing.status == 404


async def test_the_location_of_a_dropped_table_stays_its_own(wire: Wire) -> None:
    await wire.namespace("db")
    location = f"{wire.settings.warehouse}/a/place"
    table = await create(wire, "t", location=location)
    await wire.delete("/namespaces/db/tables/t")
    answer = await wire.post("/namespaces/db/tables", {"name": "u", "schema": SCHEMA, "location": location})
    assert answer.status == 400
    assert "Undrop" in answer.json()["error"]["message"]
    # The very same table may be registered again: it is its own.
    body = {"name": "t", "metadata-location": table["metadata-location"]}
    assert (await wire.post("/namespaces/db/register", body)).status == 200
    assert await dropped(wire) == []


async def test_a_table_made_anew_in_the_folder_of_its_namesake_takes_it_over(wire: Wire) -> None:
    await wire.namespace("db")
    location = f"{wire.settings.warehouse}/a/place"
    await create(wire, "t", location=location)
    assert (await wire.delete("/namespaces/db/tables/t?purgeRequested=true")).status == 204
    await create(wire, "t", location=location)
    # Its folder is another's now: it can come back when that has gone, and its files are never deleted.
    [note] = await dropped(wire)
    assert (note["state"], note["purge"]) == ("released", False)
    refused = await undrop(wire, {"id": note["id"], "destination": named("old")})
    assert refused.status in (400, 409)


async def test_a_view_comes_back(wire: Wire) -> None:
    await wire.namespace("db")
    body = {"name": "v", "schema": SCHEMA, "view-version": VIEW_VERSION, "properties": {}}
    view = (await wire.post("/namespaces/db/views", body)).json()
    await wire.delete("/namespaces/db/views/v")
    assert (await undrop(wire, {"identifier": named("v")})).json()["kind"] == "view"
    assert (await wire.get("/namespaces/db/views/v")).json()["metadata"] == view["metadata"]


async def test_a_delta_table_comes_back_and_goes_on(on_sql: Wire) -> None:
    wire = on_sql
    await wire.namespace("db")
    path = "/namespaces/db/delta-tables"
    assert (await wire.post(path, {"name": "d", "schema": DELTA_SCHEMA})).status == 200
    add = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}
    assert (await wire.post(f"{path}/d", {"actions": [{"add": add}]})).status == 200
    before = (await wire.get(f"{path}/d?files=true")).json()
    assert (await wire.delete(f"{path}/d?purgeRequested=true")).status == 204
    assert (await undrop(wire, {"identifier": named("d"), "destination": named("e")})).status == 200
    after = (await wire.get(f"{path}/e?files=true")).json()
    assert {**after, "identifier": None} == {**before, "identifier": None}
    more = {**add, "path": "b.parquet"}
    assert (await wire.post(f"{path}/e", {"actions": [{"add": more}], "expected-version": 1})).status == 200


async def test_a_key_restores_once(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire, "t")
    await wire.delete("/namespaces/db/tables/t")
    key = {"Idempotency-Key": new_key()}
    first, again = [await undrop(wire, {"identifier": named("t")}, headers=key) for _ in range(2)]
    assert (first.status, first.json()) == (again.status, again.json()) == (200, first.json())
    taken = {"Idempotency-Key": new_key()}
    await wire.delete("/namespaces/db/tables/t")
    await create(wire, "t")
    answers = [await undrop(wire, {"identifier": named("t")}, headers=taken) for _ in range(2)]
    assert [one.status for one in answers] == [409, 409]


async def test_restoring_leaves_a_receipt(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path) as wire:
        await wire.namespace("db")
        await create(wire, "t")
        await wire.delete("/namespaces/db/tables/t")
        await undrop(wire, {"identifier": named("t")})
    found = [one for one in receipts(wire) if one["kind"] == "table"]
    assert sorted(one["change"] for one in found) == ["create", "drop", "undrop"]
    [back] = [one for one in found if one["change"] == "undrop"]
    assert (back["name"], back["operation"]) == ("t", "undropTable")


async def test_not_inside_a_transaction(wire: Wire) -> None:
    begun = await wire.post("/transactions", {})
    prefix = begun.json()["prefix"]
    answer = await wire.client.send("POST", f"/v1/{prefix}/tables/undrop", json={"identifier": named("t")})
    assert answer.status == 400


async def test_a_table_made_and_dropped_in_one_transaction_leaves_nothing(wire: Wire) -> None:
    await wire.namespace("db")
    location = f"{wire.settings.warehouse}/passing"
    begun = (await wire.post("/transactions", {})).json()
    base = f"/v1/{begun['prefix']}/namespaces/db/tables"
    body = {"name": "t", "schema": SCHEMA, "location": location}
    assert (await wire.client.send("POST", base, json=body)).status == 200
    assert (await wire.client.send("DELETE", f"{base}/t")).status == 204
    assert (await wire.post(f"/transactions/{begun['transaction-id']}/commit", {})).status == 200
    assert await dropped(wire) == []
    await create(wire, "u", location=location)


@pytest.mark.parametrize("body", [{}, {"identifier": {"name": "t"}}, {"id": 7}, {"identifier": None, "id": None}])
async def test_what_names_nothing_is_400(wire: Wire, body: Json) -> None:
    assert (await undrop(wire, body)).status == 400


async def test_everything_that_files_hang_on_is_reachable(anywhere: Wire) -> None:
    wire = anywhere
    await wire.namespace("db")
    live = await create(wire, "live")
    await create(wire, "gone")
    await wire.delete("/namespaces/db/tables/gone")
    begun = (await wire.post("/transactions", {})).json()
    base = f"/v1/{begun['prefix']}/namespaces/db/tables"
    staged = await wire.client.send("POST", base, json={"name": "staged", "schema": SCHEMA})
    changed = {"requirements": [], "updates": append(7)}
    inside = await wire.client.send("POST", f"{base}/live", json=changed)
    outside = await wire.post("/namespaces/db/tables/live", {"requirements": [], "updates": append(8)})
    found: list[Json] = []
    token: str | None = ""
    while token is not None:
        page = (await wire.get(f"/reachable?pageToken={token}")).json()
        found += page["reachable"]
        token = page["next-page-token"]
    places = {(one["why"], one["metadata-location"]) for one in found}
    assert ("live", outside.json()["metadata-location"]) in places
    assert ("staged", inside.json()["metadata-location"]) in places
    assert ("pinned", live["metadata-location"]) in places
    assert ("staged", staged.json()["metadata-location"]) in places
    assert [one["name"] for one in found if one["search"]] == ["db.live"]
    assert {one["name"] for one in found if one["why"] == "dropped"} == {"db.gone"}


async def test_of_several_requests_at_once_one_restores_the_table_and_the_others_are_refused(contended: Wire) -> None:
    wire = contended
    await wire.namespace("db")
    for number in range(5):
        await create(wire, f"t{number}")
        assert (await wire.delete(f"/namespaces/db/tables/t{number}")).status == 204
        answers = await asyncio.gather(
            *(undrop(wire, {"identifier": named(f"t{number}")}, key=new_key()) for _ in range(8))
        )
        statuses = sorted(answer.status for answer in answers)
        assert statuses[0] == 200 and set(statuses[1:]) <= {404, 409}, answers
        assert (await wire.get(f"/namespaces/db/tables/t{number}")).status == 200

"""A change names its warehouse or its transaction; a transaction has a base URI below which everything is inside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.asgi_client import Answer
from tests.wire.overlays import Overlaid, begin
from tests.wire.people import house, on_namespace
from tests.wire.world import SCHEMA, Json, Wire, change, creation, new_key, set_properties

TABLE = "/namespaces/db/tables/t"
UPDATE = {"requirements": [], "updates": [set_properties(inside="yes")]}


async def furnished(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()


CHANGES: list[tuple[str, str, Json | None]] = [
    ("DELETE", TABLE, None),
    ("DELETE", TABLE + "?purgeRequested=true", None),
    ("DELETE", "/namespaces/db", None),
    ("DELETE", "/namespaces/db/views/v", None),
    ("DELETE", "/namespaces/db/delta-tables/t", None),
    ("POST", "/namespaces", {"namespace": ["made"]}),
    ("POST", "/namespaces/db/properties", {"updates": {"a": "b"}}),
    ("POST", "/namespaces/db/tables", {"name": "made", "schema": SCHEMA}),
    ("POST", TABLE, UPDATE),
    ("POST", TABLE + "/unregister", {}),
    ("PUT", TABLE + "/governance", {"owner": "me"}),
    ("POST", "/namespaces/db/register", {"name": "made", "metadata-location": "file:///x"}),
    ("POST", "/tables/rename", {"source": {"namespace": ["db"], "name": "t"}}),
    ("POST", "/tables/undrop", {"identifier": {"namespace": ["db"], "name": "t"}}),
    ("POST", "/views/rename", {}),
    ("POST", "/delta-tables/rename", {}),
    ("POST", "/grants", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
async def test_a_change_without_a_prefix_is_refused_and_the_error_names_the_path(
    wire: Wire, method: str, path: str, body: Json | None
) -> None:
    await furnished(wire)
    before = (await wire.load()), (await wire.get("/namespaces/db")).json()
    answer = await wire.client.send(method, f"/v1{path}", json=body)
    assert answer.refusal == (400, "BadRequestException")
    plain = path.partition("?")[0]
    assert f"/v1/main{plain}" in answer.error["message"]
    assert f"/v1/main@<transaction>{plain}" in answer.error["message"]
    assert "/in/main@<transaction>" in answer.error["message"]
    assert before == ((await wire.load()), (await wire.get("/namespaces/db")).json())


async def test_reads_and_the_transactions_api_need_no_prefix(wire: Wire) -> None:
    await furnished(wire)
    for path in ("/v1/namespaces", f"/v1{TABLE}", "/v1/transactions"):
        assert (await wire.client.send("GET", path)).status == 200
    body = {"identifiers": [{"namespace": ["db"], "name": "t"}]}
    assert (await wire.client.send("POST", "/v1/tables/batch-load", json=body)).status == 200
    committed = {"table-changes": [change("t", [set_properties(a="b")])]}
    assert (await wire.client.send("POST", "/v1/transactions/commit", json=committed)).status == 204
    begun = await wire.client.send("POST", "/v1/transactions", json={})
    ended = await wire.client.send("POST", f"/v1/transactions/{begun.json()['transaction-id']}/commit", json={})
    assert ended.json()["state"] == "committed"


async def test_a_change_without_a_prefix_that_names_its_transaction_by_header_is_staged(wire: Wire) -> None:
    await furnished(wire)
    tx = await begin(wire)
    answer = await wire.client.send("DELETE", f"/v1{TABLE}", headers={"X-Lakepact-Transaction": tx.id})
    assert answer.status == 204
    assert (await tx.head(TABLE)).status == 404 and (await wire.head(TABLE)).status == 204


async def send(tx: Overlaid, method: str, path: str, **more: Any) -> Answer:
    return await tx.client.send(method, tx.begun["catalog-path"] + path, **more)


async def test_below_its_base_uri_every_request_is_in_the_transaction_whatever_the_prefix(anywhere: Wire) -> None:
    await furnished(anywhere)
    tx = await begin(anywhere)
    assert tx.begun["catalog-path"] == f"/in/main@{tx.id}"
    for number, prefix in enumerate(("", "/main", f"/main@{tx.id}", f"/main%40{tx.id.upper()}")):
        updates = {"requirements": [], "updates": [set_properties(**{f"n{number}": "staged"})]}
        assert (await send(tx, "POST", f"/v1{prefix}{TABLE}", json=updates)).status == 200
        loaded = (await send(tx, "GET", f"/v1{prefix}{TABLE}")).json()
        assert loaded["metadata"]["properties"][f"n{number}"] == "staged"
    assert "n0" not in (await anywhere.load())["metadata"]["properties"]
    for query in ("", "?warehouse=main", f"?warehouse=main@{tx.id}"):
        config = await send(tx, "GET", f"/v1/config{query}")
        assert config.json()["overrides"]["prefix"] == f"main@{tx.id}"
    # The id alone is of the default warehouse.
    short = await anywhere.client.send("GET", f"/in/{tx.id}/v1{TABLE}")
    assert short.json()["metadata"]["properties"]["n3"] == "staged"
    await tx.publish()
    assert (await anywhere.load())["metadata"]["properties"]["n3"] == "staged"


async def test_a_drop_without_a_prefix_below_the_base_uri_leaves_main_intact(anywhere: Wire) -> None:
    await furnished(anywhere)
    tx = await begin(anywhere)
    assert (await send(tx, "DELETE", f"/v1{TABLE}?purgeRequested=False")).status == 204
    assert (await send(tx, "HEAD", f"/v1{TABLE}")).status == 404
    assert (await anywhere.head(TABLE)).status == 204
    assert (await tx.do("abort")).status == 200
    assert (await anywhere.head(TABLE)).status == 204


async def test_a_base_uri_and_a_prefix_that_disagree_are_400(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, warehouses={"other": {"url": f"file://{tmp_path}/other"}}) as wire:
        await furnished(wire)
        one, other = await begin(wire), await begin(wire)
        for answer in (
            await send(one, "DELETE", f"/v1/main@{other.id}{TABLE}"),
            await send(one, "DELETE", f"/v1/other{TABLE}"),
            await send(one, "DELETE", f"/v1{TABLE}", headers={"X-Lakepact-Transaction": other.id}),
            await send(one, "GET", f"/v1/config?warehouse=main@{other.id}"),
            await send(one, "GET", "/v1/config?warehouse=other"),
            await send(one, "POST", f"/v1/transactions/{other.id}/commit", json={}),
        ):
            assert answer.refusal == (400, "BadRequestException"), answer.body
        assert (await one.head(TABLE)).status == (await other.head(TABLE)).status == 204


async def test_a_base_uri_names_the_warehouse_of_its_transaction(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, warehouses={"other": {"url": f"file://{tmp_path}/other"}}) as wire:
        other = Wire(wire.client, wire.settings, base="/v1/other")
        await furnished(other)
        tx = await begin(other)
        assert (await send(tx, "DELETE", f"/v1{TABLE}")).status == 204
        await tx.publish()
        assert (await other.head(TABLE)).status == 404


@pytest.mark.parametrize(
    "path", ["/in/nonsense/v1/namespaces", "/in/main@nonsense/v1/namespaces", "/in/@/v1/namespaces"]
)
async def test_what_is_no_transaction_has_no_base_uri(wire: Wire, path: str) -> None:
    assert (await wire.client.send("GET", path)).refusal == (400, "BadRequestException")


@pytest.mark.parametrize(
    "path", ["/in", "/in/", "/in//v1/namespaces", "/in/main@x", "/in/main@x/ui", "/in/main@x/livez"]
)
async def test_only_the_catalog_api_is_below_a_base_uri(wire: Wire, path: str) -> None:
    assert (await wire.client.send("GET", path)).status == 404


async def test_below_a_base_path_the_base_uri_follows_it(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, base_path="/catalog") as wire:
        under = Wire(wire.client, wire.settings, base="/catalog/v1/main")
        await furnished(under)
        tx = await begin(under)
        answer = await wire.client.send("DELETE", f"/catalog/in/main@{tx.id}/v1{TABLE}")
        assert answer.status == 204
        assert (await under.head(TABLE)).status == 204


async def test_a_key_used_by_prefix_and_by_base_uri_is_one_request(wire: Wire) -> None:
    await furnished(wire)
    tx, key = await begin(wire), new_key()
    first = await tx.post("/namespaces/db/tables/made", creation(), key)
    again = await send(tx, "POST", "/v1/namespaces/db/tables/made", json=creation(), headers={"Idempotency-Key": key})
    assert (first.status, again.status) == (200, 200)
    assert first.json() == again.json()


async def test_permissions_and_the_audit_log_are_the_same_below_a_base_uri(tmp_path: Path) -> None:
    async with house(tmp_path) as people:
        await furnished(people.root)
        await people.root.grant("user:ann", "read", **on_namespace())
        tx = (await people.ann.post("/transactions")).json()["transaction-id"]
        base = f"/in/main@{tx}/v1/main"
        for person in (people.ann, people.eve):
            refused = await replace(person, base=base).delete(TABLE)
            assert refused.refusal == (403, "ForbiddenException")
        assert (await replace(people.ann, base=base).head(TABLE)).status == 204
        assert (await replace(people.eve, base=base).head(TABLE)).status == 403
        lines = (await people.root.get("/audit?operation=dropTable")).json()["lines"]
        assert [(line["principal"], line["outcome"]) for line in lines] == [("eve", "denied"), ("ann", "denied")]


async def test_a_base_uri_asks_for_a_token_as_the_server_does(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, auth="tokens") as wire:
        for path in (f"/in/main@{new_key()}/v1/namespaces", f"/in/main@{new_key()}/v1/config"):
            assert (await wire.client.send("GET", path)).status == 401
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        body = b"grant_type=client_credentials&client_id=a&client_secret=b"
        token = await wire.client.send("POST", f"/in/main@{new_key()}/v1/oauth/tokens", body=body, headers=form)
        assert token.status == 401

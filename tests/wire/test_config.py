"""The first request of every client: what is served here, under which prefix, and for how long a key is good."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from tests.wire.overlays import begin
from tests.wire.world import Wire

WORDS = {"prefix": "main", "namespace": "db", "table": "t", "view": "v", "transaction": "x"}


async def test_it_says_what_every_client_asks_for_first(wire: Wire) -> None:
    answer = await wire.client.send("GET", "/v1/config")
    assert answer.status == 200
    config = answer.json()
    assert config["overrides"] == {"prefix": "main", "namespace-separator": "%1F"}
    assert config["defaults"] == {"lakepact.warehouse-location": wire.root}
    assert config["idempotency-key-lifetime"] == "PT1H"
    assert set(config) == {"defaults", "overrides", "endpoints", "idempotency-key-lifetime"}


async def test_the_lifetime_of_a_key_is_the_one_that_is_set(tmp_path: Path) -> None:
    for seconds, shown in ((90, "PT1M30S"), (7_200, "PT2H"), (45, "PT45S")):
        # A request may not take longer than its key lives.
        async with Wire.opened(tmp_path, idempotency_lifetime_s=seconds, request_deadline_s=45) as wire:
            assert (await wire.client.send("GET", "/v1/config")).json()["idempotency-key-lifetime"] == shown


async def test_the_endpoints_are_exactly_what_is_served(wire: Wire) -> None:
    endpoints = (await wire.client.send("GET", "/v1/config")).json()["endpoints"]
    assert len(endpoints) == len(set(endpoints))
    served = set(endpoints)
    paths = {endpoint.partition(" ")[2] for endpoint in endpoints}
    for path in paths:
        target = re.sub(r"\{([a-z-]+)\}", lambda found: WORDS.get(found[1], "x"), path)
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
            answer = await wire.client.send(method, target, json={})
            known = answer.status != 405
            assert known == (f"{method} {path}" in served), (method, path, answer.status)


async def test_what_is_not_listed_is_not_there(wire: Wire) -> None:
    endpoints = (await wire.client.send("GET", "/v1/config")).json()["endpoints"]
    assert not [one for one in endpoints if "/plan" in one or "/credentials" in one or "/functions" in one]
    for path in ("/namespaces/db/tables/t/plan", "/namespaces/db/tables/t/tasks"):
        answer = await wire.post(path, {})
        assert answer.refusal == (404, "NotFoundException")
    assert (await wire.client.send("GET", "/v2/config")).refusal == (404, "NotFoundException")


async def test_the_specifications_operations_on_namespaces_tables_and_views_are_all_served(wire: Wire) -> None:
    endpoints = (await wire.client.send("GET", "/v1/config")).json()["endpoints"]
    below = "/v1/{prefix}/namespaces/{namespace}"
    expected = {
        f"{method} {path}"
        for path, methods in {
            "/v1/config": "GET",
            "/v1/{prefix}/namespaces": "GET POST",
            below: "GET HEAD DELETE",
            f"{below}/properties": "POST",
            f"{below}/tables": "GET POST",
            f"{below}/tables/{{table}}": "GET HEAD POST DELETE",
            f"{below}/tables/{{table}}/metrics": "POST",
            f"{below}/tables/{{table}}/unregister": "POST",
            f"{below}/register": "POST",
            "/v1/{prefix}/tables/rename": "POST",
            "/v1/{prefix}/transactions/commit": "POST",
            f"{below}/views": "GET POST",
            f"{below}/views/{{view}}": "GET HEAD POST DELETE",
            f"{below}/register-view": "POST",
            "/v1/{prefix}/views/rename": "POST",
        }.items()
        for method in methods.split()
    }
    assert expected <= set(endpoints)


async def test_an_unknown_warehouse_is_404_with_its_own_type(wire: Wire) -> None:
    answer = await wire.client.send("GET", "/v1/config?warehouse=other")
    assert answer.refusal == (404, "NoSuchWarehouseException")
    assert "'other'" in answer.error["message"]
    assert (await wire.client.send("GET", "/v1/other/namespaces")).refusal == (404, "NoSuchWarehouseException")


async def test_a_warehouse_is_found_by_name_and_by_url(wire: Wire) -> None:
    for asked in ("main", wire.root, wire.root + "/", ""):
        answer = await wire.client.send("GET", f"/v1/config?warehouse={asked}")
        assert answer.json()["overrides"]["prefix"] == "main"


async def test_a_location_names_the_warehouse_that_contains_it(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, warehouses={"other": {"url": f"file://{tmp_path}/other"}}) as wire:
        for location, name in (
            (f"{wire.root}/below/it", "main"),
            (wire.root.removeprefix("file://"), "main"),
            (f"file://{tmp_path}/other", "other"),
            (f"file://{tmp_path}/other/", "other"),
        ):
            answer = await wire.client.send("GET", f"/v1/config?warehouse={quote(location, safe='')}")
            assert answer.json()["overrides"]["prefix"] == name, location
        tx = await begin(wire)
        inside = await wire.client.send("GET", f"/v1/config?warehouse={quote(f'{wire.root}@{tx.id}', safe='')}")
        assert inside.json()["overrides"]["prefix"] == f"main@{tx.id}"


async def test_a_location_of_no_warehouse_is_404_and_the_error_lists_the_warehouses(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, warehouses={"other": {"url": f"file://{tmp_path}/other"}}) as wire:
        for location in ("s3://my-bucket/warehouse", f"file://{tmp_path}/others", "https://", "a/b"):
            answer = await wire.client.send("GET", f"/v1/config?warehouse={quote(location, safe='')}")
            assert answer.refusal == (404, "NoSuchWarehouseException"), location
            assert f"main ({wire.root})" in answer.error["message"]
            assert f"other (file://{tmp_path}/other)" in answer.error["message"]


async def test_each_warehouse_has_its_own_tables(tmp_path: Path) -> None:
    other = {"url": f"file://{tmp_path}/other"}
    async with Wire.opened(tmp_path, warehouses={"other": other}) as wire:
        config = await wire.client.send("GET", "/v1/config?warehouse=other")
        assert config.json()["overrides"]["prefix"] == "other"
        await wire.namespace()
        await wire.table()
        beside = Wire(wire.client, wire.settings, base="/v1/other")
        assert (await beside.get("/namespaces")).json()["namespaces"] == []
        await beside.namespace()
        made = await beside.table()
        assert made["metadata"]["location"].startswith(other["url"])
        assert (await wire.load())["metadata"]["table-uuid"] != made["metadata"]["table-uuid"]


async def test_reads_without_a_prefix_are_of_the_default_warehouse(wire: Wire) -> None:
    await wire.namespace()
    made = await wire.table()
    bare = Wire(wire.client, wire.settings, base="/v1")
    assert await bare.load() == made
    assert (await bare.get("/namespaces")).json()["namespaces"] == [["db"]]
    assert await bare.tables() == ["t"]


async def test_the_prefix_is_decoded(wire: Wire) -> None:
    assert (await wire.client.send("GET", "/v1/%6Dain/namespaces")).status == 200


async def test_a_base_path_goes_before_everything(tmp_path: Path) -> None:
    async with Wire.opened(tmp_path, base_path="/catalog") as wire:
        assert (await wire.client.send("GET", "/catalog/v1/config")).status == 200
        assert (await wire.client.send("GET", "/v1/config")).status == 404
        mounted = Wire(wire.client, wire.settings, base="/catalog/v1/main")
        await mounted.namespace("a")
        assert (await mounted.get("/namespaces/a")).status == 200

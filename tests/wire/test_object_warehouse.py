"""The catalog on nothing but object storage: cells, metadata and receipts in buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakepact.stores.urls import azure_place
from tests.support.stores import place_for
from tests.wire.world import SCHEMA, Wire, append, change, creation, set_properties


@pytest.mark.parametrize("kind", ["s3-strict", "gcs-strict", "azurite"])
async def test_tables_live_in_a_bucket(kind: str, tmp_path: Path) -> None:
    with place_for(kind, tmp_path) as place:
        cells, lake = f"{place.url}/cells", f"{place.url}/lake"
        given = {"store": cells, "store_options": place.options}
        async with Wire.opened(tmp_path, warehouse=lake, warehouse_options=place.options, **given) as wire:
            await wire.post("/namespaces", json={"namespace": ["db"]})
            made = await wire.post("/namespaces/db/tables", json={"name": "t", "schema": SCHEMA})
            assert made.json()["metadata"]["location"].startswith(f"{lake}/db/t-")
            changes = [change("t", append(1)), {**creation(), "identifier": {"namespace": ["db"], "name": "u"}}]
            assert (await wire.post("/transactions/commit", json={"table-changes": changes})).status == 204
            refused = await wire.post(
                "/transactions/commit",
                json={"table-changes": [change("u", [set_properties(a="b")]), change("gone", [])]},
            )
            assert refused.status == 404
            begun = (await wire.post("/transactions", json={})).json()
            inside = f"/v1/{begun['prefix']}/namespaces/db/tables/t"
            staged = await wire.client.send(
                "POST", inside, json={"requirements": [], "updates": append(2, sequence=2, parent=1)}
            )
            assert staged.status == 200
            published = await wire.post(f"/transactions/{begun['transaction-id']}/commit", json={})
            assert published.status == 200, published.body
        # Another process finds everything as it was left.
        async with Wire.opened(tmp_path, warehouse=lake, warehouse_options=place.options, **given) as wire:
            loaded = await wire.get("/namespaces/db/tables/t")
            assert loaded.json()["metadata"]["current-snapshot-id"] == 2
            assert (await wire.get("/namespaces/db/tables/u")).json()["metadata"]["properties"].get("a") is None


def test_azure_warehouses_are_named_as_engines_name_them() -> None:
    place, account = azure_place("abfss://lake@company.dfs.core.windows.net/tables/main")
    assert (place.bucket, place.prefix, account) == ("lake", "tables/main", "company")

"""Delta tables and their mirrors on the web page."""

from __future__ import annotations

import json
from pathlib import Path

from lakepact.runtime import SystemClock
from tests.support.pages import Html
from tests.support.showcase import DELTA_SCHEMA
from tests.wire.uis import look
from tests.wire.world import Json, Wire


def add(number: int, size: int) -> Json:
    return {
        "add": {
            "path": f"part-{number}.parquet",
            "partitionValues": {"day": "2026-01-01"},
            "size": size,
            "modificationTime": SystemClock().now_ms(),
            "dataChange": True,
            "stats": json.dumps({"numRecords": 10}),
        }
    }


async def table(wire: Wire, versions: int) -> None:
    await wire.namespace()
    body = {"name": "d", "schema": DELTA_SCHEMA, "partition-columns": ["day"], "mirrors": ["delta_log"]}
    assert (await wire.post("/namespaces/db/delta-tables", body)).status == 200
    for number in range(versions):
        commit = {"actions": [add(number, 1_024 * (number + 1))], "operation": "WRITE"}
        answer = await wire.post("/namespaces/db/delta-tables/d", commit)
        assert answer.status == 200, answer.body


async def test_a_delta_table_shows_its_schema_its_size_and_its_versions(on_sql: Wire) -> None:
    wire = on_sql
    await table(wire, 3)
    page = await look(wire, "/ui/catalog/main/db")
    page = await look(wire, page.link("d"))
    for word in (
        "Delta table",
        "version 3",
        "label",
        "What a person said it is",
        "partition",
        "6.0 KiB",
        "30",
        "WRITE",
    ):
        assert word in page.text, word
    assert "Size over time" in page.text and "delta_log" in page.text


async def test_every_version_has_its_receipt_also_after_a_renaming(tmp_path: Path) -> None:
    def with_source(page: Html) -> int:
        return page.text.count("Delta REST API")

    async with Wire.opened(tmp_path) as wire:
        await table(wire, 3)
        source, target = ({"namespace": ["db"], "name": name} for name in ("d", "e"))
        assert (await wire.post("/delta-tables/rename", {"source": source, "destination": target})).status == 204
        commit = {"actions": [add(9, 1)], "operation": "WRITE"}
        assert (await wire.post("/namespaces/db/delta-tables/e", commit)).status == 200
    async with Wire.opened(tmp_path) as wire:
        page = await look(wire, "/ui/catalog/main/db/e/timeline")
        assert [f"v{number}" in page.text for number in range(6)] == [True] * 5 + [False]
        assert with_source(page) == 5
        assert "Unknown (external write)" in page.text


async def test_a_long_history_is_shown_in_pages(wire: Wire) -> None:
    await table(wire, 60)
    first = await look(wire, "/ui/catalog/main/db/d/timeline")
    second = await look(wire, first.link("Next page →"))
    assert "v60" in first.text and "v11" in first.text and "v10" not in first.text
    assert "v10" in second.text and "v0" in second.text
    assert not any(text == "Next page →" for _, text in second.links)


async def test_mirrors_are_shown_with_how_far_they_are_behind(on_sql: Wire) -> None:
    wire = on_sql
    await table(wire, 2)
    page = await look(wire, "/ui/mirrors/main")
    assert "db.d" in page.text and "delta_log" in page.text
    assert "in step" in page.text or "version" in page.text
    assert (await look(wire, page.link("db.d"))).title.startswith("db.d")

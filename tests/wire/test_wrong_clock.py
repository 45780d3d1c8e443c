"""A server whose clock is weeks wrong neither deletes records nor ends transactions before their time, on any store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from lakepact.runtime import SystemClock
from lakepact.server import app
from lakepact.server.app import build
from lakepact.upkeep.collection import CLASSES, Collector, CollectorSettings, Report
from tests.support.asgi_client import AsgiClient
from tests.wire.test_undrop import create, dropped
from tests.wire.world import Wire, new_key, set_properties

DAY_S = 86_400


@asynccontextmanager
async def second_server(wire: Wire, days: float, patch: pytest.MonkeyPatch) -> AsyncIterator[Wire]:
    """Another server on the same store and warehouse, whose machine's clock is wrong by this much."""

    class Wrong(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + int(days * DAY_S * 1000)

    with patch.context() as patched:
        patched.setattr(app, "SystemClock", Wrong)
        service = await build(wire.settings)
    try:
        yield replace(wire, client=AsgiClient(service.asgi), service=service)
    finally:
        await service.close()


async def maintain(wire: Wire) -> Report:
    """All that a server does by age."""
    assert wire.service is not None
    await wire.service.upkeep.turn()
    report = Report()
    for catalog in wire.service.catalogs.values():
        await Collector(catalog, CollectorSettings()).run(CLASSES, report)
        await catalog.parts.store.collect()
        await catalog.parts.store.recover()
    return report


@pytest.mark.parametrize("days", [40, -40], ids=["ahead", "behind"])
async def test_a_clock_that_is_weeks_wrong_on_one_server_harms_no_other(
    anywhere: Wire, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = anywhere
    if wire.settings.store.startswith("memory"):
        pytest.skip("two servers cannot share memory")
    await wire.namespace("db")
    location = (await create(wire, "t"))["metadata-location"]
    purged = (await create(wire, "gone"))["metadata-location"]
    key, body = new_key(), {"requirements": [], "updates": [set_properties(a="1")]}
    committed = await wire.post("/namespaces/db/tables/t", body, headers={"idempotency-key": key})
    assert committed.status == 200
    begun = (await wire.post("/transactions", {"ttl-seconds": 600})).json()["transaction-id"]
    assert (await wire.delete("/namespaces/db/tables/gone?purgeRequested=true")).status == 204
    async with second_server(wire, days, monkeypatch) as wrong:
        assert (await maintain(wrong)).counts == {}
        # It also writes; what it writes is dated by the store's time.
        late_key = new_key()
        late = await wrong.post(
            "/namespaces/db/tables/t",
            {"requirements": [], "updates": [set_properties(b="1")]},
            headers={"idempotency-key": late_key},
        )
        assert late.status == 200, late
        assert (await wrong.get(f"/transactions/{begun}")).json()["state"] == "open"
    await maintain(wire)
    for one in (key, late_key):
        assert (await wire.get(f"/transactions/{one}")).json()["state"] == "committed"
    replayed = await wire.post("/namespaces/db/tables/t", body, headers={"idempotency-key": key})
    assert replayed.json()["metadata-location"] == committed.json()["metadata-location"]
    assert (await wire.get(f"/transactions/{begun}")).json()["state"] == "open"
    [note] = await dropped(wire)
    assert note["state"] == "restorable"
    for metadata_file in (location, purged):
        assert Path(metadata_file.removeprefix("file://")).exists()


@pytest.mark.parametrize("days", [40, -40], ids=["ahead", "behind"])
async def test_a_clock_that_is_set_while_a_server_runs_changes_nothing_that_is_stored(
    anywhere: Wire, days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = anywhere
    await wire.namespace("db")
    await create(wire, "t")
    begun = (await wire.post("/transactions", {"ttl-seconds": 600})).json()["transaction-id"]
    assert (await wire.delete("/namespaces/db/tables/t?purgeRequested=true")).status == 204
    right = SystemClock.now_ms
    with monkeypatch.context() as patched:
        patched.setattr(SystemClock, "now_ms", lambda clock: right(clock) + days * DAY_S * 1000)
        assert (await maintain(wire)).counts == {}
        assert (await create(wire, "u"))["metadata"]["last-updated-ms"] < right(SystemClock()) + 60_000
    assert (await wire.get(f"/transactions/{begun}")).json()["state"] == "open"
    [note] = await dropped(wire)
    assert note["state"] == "restorable"


async def test_the_difference_of_the_clock_is_a_metric_and_a_warning(
    anywhere: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = anywhere
    if wire.settings.store.startswith("memory"):
        pytest.skip("two servers cannot share memory")

    def figures(text: str) -> dict[str, Any]:
        lines = [line.split() for line in text.splitlines() if line.startswith("lakepact_clock")]
        return {name: float(value) for name, value in lines}

    assert figures((await wire.client.send("GET", "/metrics")).body.decode())["lakepact_clock_confirmed"] == 1
    with capture_logs() as lines:
        async with second_server(wire, 40, monkeypatch) as wrong:
            metrics = figures((await wrong.client.send("GET", "/metrics")).body.decode())
    assert metrics["lakepact_clock_confirmed"] == 0
    assert metrics["lakepact_clock_difference_seconds"] == pytest.approx(40 * DAY_S, abs=60)
    [warning] = [line for line in lines if "difference_s" in line]
    assert "Nothing is deleted by age" in warning["event"]

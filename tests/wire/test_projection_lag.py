"""The lag of the projections, which the server measures from their position and the records of commits."""

from __future__ import annotations

from lakepact.upkeep.projection_lag import projection_lag_job, projection_lag_s
from tests.wire.overlays import begin
from tests.wire.world import Json, Wire, set_properties, table_path

SOURCE = {"kind": "upkeep", "job": "projections"}


async def project(wire: Wire, read_ms: int) -> None:
    """What a run of the projections leaves behind: its position and its commit."""
    tx = await begin(wire)
    position: Json = {"format": 1, "through": "2026-01-01", "read-ms": read_ms, "runs": 1, "receipts": 1}
    assert (await tx.put("lakepact.projections", position)).status == 200
    changed = {"requirements": [], "updates": [set_properties(run=str(read_ms))]}
    assert (await tx.post(table_path("commits", "lakepact"), changed)).status == 200
    assert (await tx.do("commit", {"source": SOURCE})).status == 200


async def test_lag_is_the_age_of_the_oldest_commit_that_the_projections_lack(anywhere: Wire) -> None:
    wire = anywhere
    assert wire.service is not None
    catalog = wire.service.catalogs["main"]
    now_ms = catalog.parts.clock.now_ms
    await wire.namespace()
    await wire.table()
    assert await projection_lag_s(catalog, now_ms()) == 0.0, "there are no projections"
    await wire.namespace("lakepact")
    await wire.table("commits", "lakepact")
    await project(wire, now_ms())
    assert await projection_lag_s(catalog, now_ms()) == 0.0, "their own commit does not count"
    assert (await wire.commit([set_properties(a="b")])).status == 200
    done = now_ms()
    assert 3_600.0 <= await projection_lag_s(catalog, done + 3_600_000) < 3_600.0 + 600.0
    measured: list[float] = []
    assert await projection_lag_job({"main": catalog}, catalog.parts.clock, measured.append)() is False
    assert len(measured) == 1 and measured[0] >= 0.0
    await project(wire, now_ms() + 1)
    assert await projection_lag_s(catalog, now_ms() + 60_000) == 0.0


async def test_lag_is_among_the_metrics(wire: Wire) -> None:
    assert b"lakepact_projection_lag_seconds 0.0" in (await wire.client.send("GET", "/metrics")).body

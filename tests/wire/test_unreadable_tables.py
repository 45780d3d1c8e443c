"""A table that cannot be read does not keep others from being purged, and loses nothing that it may refer to."""

from __future__ import annotations

import os
import time
from pathlib import Path

from lakepact.upkeep.collection import Class, Collector, CollectorSettings, Report
from tests.support.waiting import wait_until_async
from tests.wire.test_undrop import create
from tests.wire.world import Wire, append

HOUR_S = 3_600


def age(path: Path, hours: float) -> None:
    at_s = time.time() - hours * HOUR_S
    os.utime(path, (at_s, at_s))


async def test_only_files_that_an_unreadable_table_may_refer_to_stay(wire: Wire) -> None:
    await wire.namespace("db")
    await create(wire, "broken")
    # Its manifest list is nowhere.
    answer = await wire.post("/namespaces/db/tables/broken", {"requirements": [], "updates": append(1)})
    age(wire.path_of(answer.json()["metadata-location"]), hours=5)
    needed = wire.path_of((await create(wire, "older"))["metadata-location"])
    age(needed, hours=5)
    gone = wire.path_of((await create(wire, "younger"))["metadata-location"])
    for name in ("older", "younger"):
        assert (await wire.delete(f"/namespaces/db/tables/{name}?purgeRequested=true")).status == 204
    assert wire.service is not None
    collector = Collector(wire.service.catalogs["main"], CollectorSettings(drop_retention_s=0))
    report = Report()

    async def purged() -> bool:
        await collector.run([Class.DROPPED], report)
        return not gone.exists()

    # The confirmed time may be a little behind the time of the drop.
    await wait_until_async(purged, lambda: str(report))
    assert needed.exists()
    assert any("db.broken cannot be read" in one for one in report.left)
    assert any(one.startswith("db.older: ") for one in report.left)
    wire.damaged.add("db.broken")

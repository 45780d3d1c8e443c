"""What a server says at `debug`: what happens between a request and its answer, and what nobody asked for."""

from __future__ import annotations

import asyncio
from typing import Any

from structlog.testing import capture_logs

from tests.wire.world import Wire, append, set_properties

SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


def said(lines: list[Any], event: str) -> list[Any]:
    return [line for line in lines if line["event"] == event and line["log_level"] == "debug"]


async def test_a_conflict_is_told_with_what_was_answered(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    begun = (await wire.post("/transactions", {})).json()
    inside = f"/v1/{begun['prefix']}/namespaces/db/tables/t"
    changed = await wire.client.send("POST", inside, json={"requirements": [], "updates": append(7)})
    assert changed.status == 200, changed.body
    assert (await wire.commit(append(8))).status == 200
    with capture_logs() as lines:
        ended = await wire.post(f"/transactions/{begun['transaction-id']}/commit", {})
    assert ended.status == 409
    [line] = said(lines, "a commit was refused because something had moved")
    assert line["reason"] == ended.json()["error"]["message"]


async def test_a_plan_that_is_made_again_is_told(wire: Wire) -> None:
    await wire.namespace()
    await wire.table()
    with capture_logs() as lines:
        answers = await asyncio.gather(*(wire.commit([set_properties(**{f"p{n}": "x"})]) for n in range(8)))
    assert all(one.status == 200 for one in answers)
    told = said(lines, "a plan was out of date and is made again")
    assert told and all(line["operation"] == "updateTable" and line["transaction_id"] for line in told)


async def test_upkeep_and_mirrors_tell_of_every_step(wire: Wire) -> None:
    await wire.namespace()
    with capture_logs() as lines:
        # The log follows in the background, perhaps before the response to the creation.
        made = (await wire.post("/namespaces/db/delta-tables", {"name": "d", "schema": SCHEMA})).json()
        assert wire.service is not None
        await wire.service.upkeep.turn()
        await wire.post("/delta-tables/mirror", {"tables": [made["table-id"]]})
    assert {"recover", "collect"} <= {line["job"] for line in said(lines, "upkeep has done a pass")}
    [followed] = said(lines, "a log has followed")
    assert (followed["was"], followed["version"]) == (-1, 0)

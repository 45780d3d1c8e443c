"""The web page as the claims of this suite look at it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import urlencode

from lakepact.catalog.keys import Keys
from lakepact.catalog.pointers import Change, Kind, Pointer
from lakepact.iceberg.requests import Identifier
from lakepact.kernel.identity import uuid7
from lakepact.kernel.model import Committed, Transaction, Write
from lakepact.runtime import AsyncioTasks, SystemClock, SystemRng
from lakepact.settings import Settings
from lakepact.stores import open_store
from tests.support.asgi_client import Answer
from tests.support.pages import Html, checked
from tests.support.showcase import Json, past, receipt
from tests.wire.world import Wire

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)


async def look(wire: Wire, path: str, status: int = 200) -> Html:
    """A page, with everything checked that holds for all of them."""
    answer = await wire.client.send("GET", path)
    assert answer.status == status, (path, answer.status, answer.body[-2_000:])
    return guarded(answer)


def guarded(answer: Answer) -> Html:
    assert answer.header("content-type") == "text/html; charset=utf-8"
    assert answer.header("content-security-policy") == POLICY
    assert answer.header("x-content-type-options") == "nosniff"
    return checked(answer.body)


async def submit(wire: Wire, path: str, fields: dict[str, str], **headers: str) -> Answer:
    body = urlencode(fields).encode()
    return await wire.client.send(
        "POST", path, body=body, headers={"content-type": "application/x-www-form-urlencoded", **headers}
    )


async def table_with_a_past(
    wire: Wire, versions: int, *, receipts: Sequence[int] = (), kept: int = 0, step_ms: int = 60_000
) -> Json:
    """Register a table `db.old` with so many versions, some of which have a receipt. `kept`: the length of its log;
    then every hundredth metadata file is there too, with a log of its own."""
    uuid = "00000000-0000-4000-8000-000000000001"
    location = f"{wire.root}/old"
    until_ms = SystemClock().now_ms() - 60_000
    whole = past(location, versions, until_ms=until_ms, step_ms=step_ms, uuid=uuid)
    files = range(versions, 0, -kept) if kept else [versions]
    for number in files:
        at_ms = whole["snapshots"][number - 1]["timestamp-ms"]
        document = past(location, number, until_ms=at_ms, step_ms=step_ms, uuid=uuid, kept=kept)
        file = wire.path_of(f"{location}/metadata/{number:05}-{uuid}.metadata.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(document))
    for number in receipts:
        place, content = receipt(["db"], "old", whole, number)
        file = wire.path_of(f"{wire.root}/{place}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))
    current = f"{location}/metadata/{versions:05}-{uuid}.metadata.json"
    answer = await wire.post("/namespaces/db/register", {"name": "old", "metadata-location": current})
    assert answer.status == 200, answer.body
    return whole


async def many_tables(settings: Settings, namespace: str, count: int) -> None:
    """So many tables, straight into the store: their pointers are there, their files are not."""
    clock, rng = SystemClock(), SystemRng()
    store = await open_store(settings.store, settings.kernel(), clock=clock, rng=rng, tasks=AsyncioTasks())
    keys = Keys("main")
    value = {"namespace": [namespace], "properties": {}, "created": 1}
    try:
        writes = [Write(keys.namespace([namespace]), 0, value)]
        for number in range(count):
            uuid = f"00000000-0000-4000-9000-{number:012}"
            summary = {"uuid": uuid, "location": f"file:///nowhere/{uuid}", "last-updated-ms": 1, "refs": {}}
            pointer = Pointer(
                Kind.TABLE,
                uuid,
                Identifier((namespace,), f"t{number:05}"),
                "file:///x.json",
                None,
                Change.CREATE,
                summary,
            )
            writes.append(Write(keys.name(pointer.identifier), 0, {"kind": "table", "id": uuid}))
            writes.append(Write(keys.table(uuid), 0, pointer.to_json()))
        for first in range(0, len(writes), 900):
            some = tuple(writes[first : first + 900])
            outcome = await store.commit(Transaction(uuid7(clock.now_ms(), rng.bits(74)), "", some))
            assert isinstance(outcome, Committed)
    finally:
        await store.close()

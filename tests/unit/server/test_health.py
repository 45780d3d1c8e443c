"""Ready means that the store answers; everything else is said with its reason and without secrets."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from lakepact import __version__
from lakepact.errors import StoreUnavailable
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell
from lakepact.kernel.ports import CellStore
from lakepact.server.health import Draining, Health
from lakepact.server.http import Response
from lakepact.server.metrics import Metrics
from lakepact.stores import open_store
from tests.support.waiting import PATIENCE_S
from tests.unit.server.test_http import request


class Reads:
    """A store that does one thing with every read."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    async def read(self, keys: Iterable[Key]) -> Mapping[Key, Cell]:
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


def health(store: Any, draining: Draining | None = None, read_within_s: float = PATIENCE_S) -> Health:
    return Health(
        store,
        store_kind="memory",
        warehouses=["main", "sales"],
        metrics=Metrics(),
        draining=draining or Draining(),
        read_within_s=read_within_s,
    )


async def ask(found: Health, template: str) -> Response:
    route = next(route for route in found.routes() if route.template == template)
    return await route.handler(request(method="GET"))


async def opened() -> CellStore:
    return await open_store("memory://")


async def test_a_server_whose_store_answers_is_ready() -> None:
    found = health(await opened())
    assert (await ask(found, "/readyz")).status == 200
    assert (await ask(found, "/livez")).status == 200
    assert json.loads((await ask(found, "/health")).body) == {
        "version": __version__,
        "store": "memory",
        "warehouses": ["main", "sales"],
        "ready": True,
    }


async def test_a_server_whose_store_does_not_answer_lives_but_is_not_ready() -> None:
    for error, reason in ((None, "did not answer within 0.01 s"), (StoreUnavailable("hush"), "store-unavailable")):
        found = health(Reads(error), read_within_s=0.01 if error is None else PATIENCE_S)
        answer = await ask(found, "/readyz")
        assert answer.status == 503
        assert reason in json.loads(answer.body)["reason"]
        assert b"hush" not in answer.body
        assert (await ask(found, "/livez")).status == 200
        shown = await ask(found, "/health")
        assert (shown.status, json.loads(shown.body)["ready"]) == (200, False)


async def test_a_server_that_is_shutting_down_is_not_ready() -> None:
    draining = Draining()
    found = health(await opened(), draining)
    draining.asked = True
    assert (await ask(found, "/readyz")).status == 503


async def test_metrics_are_text_for_prometheus() -> None:
    answer = await ask(health(await opened()), "/metrics")
    assert answer.headers[0][1].startswith(b"text/plain")
    assert b"lakepact_open_requests" in answer.body


async def test_a_scrape_says_how_quickly_the_store_reads() -> None:
    def seconds(answer: Response) -> float:
        [line] = [line for line in answer.body.splitlines() if line.startswith(b"lakepact_store_read_seconds ")]
        return float(line.split()[1])

    assert 0 < seconds(await ask(health(await opened()), "/metrics")) < PATIENCE_S
    for error in (None, StoreUnavailable("hush")):
        found = health(Reads(error), read_within_s=0.01 if error is None else PATIENCE_S)
        assert seconds(await ask(found, "/metrics")) == math.inf

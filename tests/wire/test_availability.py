"""Any request occupies the event loop for a bounded time: long work runs in worker threads.

Measured is the CPU time that the thread of the event loop takes between two turns of a timer. That does not depend on
what else the machine does. tests/acceptance/test_availability.py measures a whole server from outside.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from tests.support.costly_requests import costly_requests, preparation, report_requests
from tests.wire.world import Wire

LOOP_CPU_S = 0.25
"""Five times the bound of 50 ms: machines differ, and a garbage collection may fall into it."""


@dataclass(slots=True)
class Watched:
    longest_s: float = 0.0
    """CPU time of the event loop's thread between two turns of the timer, at most."""

    all_threads_s: float = 0.0
    """The same of the whole process: a worker thread that keeps the interpreter lock keeps the event loop waiting."""

    pause_s: float = 0.0
    """The same on the clock: for people to read, as other processes count."""


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    watched_loop = Watched()

    async def turn() -> None:
        while True:
            cpu, process, clock = time.thread_time(), time.process_time(), time.monotonic()
            await asyncio.sleep(0.001)
            watched_loop.longest_s = max(watched_loop.longest_s, time.thread_time() - cpu)
            watched_loop.all_threads_s = max(watched_loop.all_threads_s, time.process_time() - process)
            watched_loop.pause_s = max(watched_loop.pause_s, time.monotonic() - clock)

    task = asyncio.create_task(turn())
    try:
        yield watched_loop
    finally:
        task.cancel()


@pytest.fixture
def own_garbage() -> Iterator[None]:
    """Keep the garbage collector from objects of earlier tests: a full collection would be measured as a request."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("own_garbage")
async def test_t_limit_4_no_request_occupies_the_event_loop(wire: Wire) -> None:
    for path, body in preparation():
        answer = await wire.client.send("POST", path, json=body)
        assert answer.status == 200, answer.body[:300]
    wrong: list[str] = []
    for request in costly_requests():
        async with watched() as loop:
            answer = await wire.client.send(request.method, request.path, body=request.body, headers=request.headers)
        figures = f"{request.name}: {answer.status}, {loop.longest_s * 1000:.0f} ms on the event loop's thread"
        print(f"{figures}, {loop.all_threads_s * 1000:.0f} ms of all threads, pause {loop.pause_s * 1000:.0f} ms")
        if answer.status not in request.right:
            wrong.append(f"{figures}: {answer.body[:300]!r}")
        elif request.limit and request.limit not in answer.error["message"]:
            wrong.append(f"{figures}: {request.limit} is not named: {answer.body[:300]!r}")
        elif loop.longest_s > LOOP_CPU_S:
            wrong.append(figures)
    assert wrong == []


@pytest.mark.usefixtures("own_garbage")
async def test_pages_of_a_run_whose_views_read_each_other_twice_take_linear_time(wire: Wire) -> None:
    await wire.client.send("POST", "/v1/main/namespaces", json={"namespace": ["db"]})
    for name in ("t", "wide"):
        assert (await wire.create(name)).status == 200
    begun = (await wire.client.send("POST", "/v1/main/transactions", json={})).json()["transaction-id"]
    commit = await wire.client.send("POST", f"/v1/main/transactions/{begun}/commit", json={})
    assert commit.status in (200, 204), commit.body
    for request in report_requests(begun):
        async with watched() as loop:
            answer = await wire.client.send(request.method, request.path, body=request.body)
        assert answer.status in request.right, (request.path, answer.status)
        assert loop.longest_s < 2.0, request.path

"""Two servers behind a load balancer are restarted one after the other, under load: clients lose no request."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.balancer import Balancer
from tests.support.server import Server, running_server

REQUESTS = 5_000
CLIENTS = 4
WITHIN_S = 120.0
LAME_DUCK_S = "8"
"""Many times as long as the balancer takes to notice, on a busy machine too."""


def start(stack: ExitStack, folder: Path, name: str, workers: int) -> Server:
    options = ["--store", f"sqlite:///{folder / 'store.db'}", "--warehouse", f"file://{folder / 'warehouse'}"]
    env = {"LAKEPACT_LAME_DUCK_S": LAME_DUCK_S, "LAKEPACT_LOG_LEVEL": "warning"}
    return stack.enter_context(running_server(folder / name, *options, "--workers", str(workers), env=env))


def wait_until_ready(balancer: Balancer, *servers: Server) -> None:
    until = time.monotonic() + WITHIN_S
    while set(balancer.ready()) != {server.url for server in servers}:
        assert time.monotonic() < until, balancer.ready()
        time.sleep(0.05)


@pytest.mark.parametrize(("keep_alive", "workers"), [(True, 1), (False, 2)])
def test_a_rolling_restart_behind_a_balancer_loses_no_request(tmp_path: Path, keep_alive: bool, workers: int) -> None:
    results: Counter[str] = Counter()
    restarted = threading.Event()

    def client() -> None:
        """Send requests until the servers are replaced, and a fair number of them in any case."""
        sent = 0
        while not restarted.is_set() or sent < REQUESTS // CLIENTS:
            try:
                results[str(balancer.request("GET", "/v1/config"))] += 1
            except (OSError, http.client.HTTPException) as error:
                results[repr(error)] += 1
            sent += 1

    with ExitStack() as stack:
        first = start(stack, tmp_path, "first", workers)
        second = start(stack, tmp_path, "second", workers)
        balancer = stack.enter_context(Balancer(keep_alive=keep_alive))
        balancer.add(first.url)
        wait_until_ready(balancer, first)
        balancer.add(second.url)
        wait_until_ready(balancer, first, second)
        clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
        for one in clients:
            one.start()
        try:
            replaced = [first, second]
            for number, old in enumerate((first, second)):
                old.process.send_signal(signal.SIGTERM)
                assert old.process.wait(WITHIN_S) == 0
                new = start(stack, tmp_path, f"new-{number}", workers)
                balancer.add(new.url)
                replaced = [*replaced[1:], new]
                wait_until_ready(balancer, *replaced)
        finally:
            restarted.set()
            for one in clients:
                one.join()
    assert set(results) == {"200"}, results
    assert results["200"] >= REQUESTS

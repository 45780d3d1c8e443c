"""Two servers behind a load balancer are restarted one after the other, under load: clients lose no request."""

from __future__ import annotations

import http.client
import signal
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.balancer import Balancer
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S, wait_until

REQUESTS = 5_000
CLIENTS = 4
LAME_DUCK_S = "300"
"""Of the servers that are replaced. Longer than the test: a second signal ends it once the balancer has noticed it."""


def start(stack: ExitStack, folder: Path, name: str, workers: int, lame_duck_s: str = "0") -> Server:
    options = ["--store", f"sqlite:///{folder / 'store.db'}", "--warehouse", f"file://{folder / 'warehouse'}"]
    env = {"LAKEPACT_LAME_DUCK_S": lame_duck_s, "LAKEPACT_LOG_LEVEL": "info"}
    return stack.enter_context(running_server(folder / name, *options, "--workers", str(workers), env=env))


def wait_until_ready(balancer: Balancer, *servers: Server) -> None:
    urls = {server.url for server in servers}
    wait_until(lambda: set(balancer.ready()) == urls, lambda: f"only these are ready: {balancer.ready()}")


def stop(balancer: Balancer, server: Server, workers: int) -> None:
    """Stop a server once the balancer has noticed that it is not ready.

    A second signal ends the lame-duck phase, which production.md sets to longer than a balancer takes to notice. How
    long that is depends on the machine. tests/acceptance/test_shutdown.py has a phase that ends by itself.
    """

    def stop_requests() -> int:
        return sum(line.get("event") == "the process is asked to stop" for line in server.lines())

    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: stop_requests() == workers, server.told)
    balancer.wait_until_left(server.url)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(PATIENCE_S) == 0
    balancer.remove(server.url)


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
        first = start(stack, tmp_path, "first", workers, LAME_DUCK_S)
        second = start(stack, tmp_path, "second", workers, LAME_DUCK_S)
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
                stop(balancer, old, workers)
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

"""A small HTTP load balancer, in front of replicas: it polls `/readyz` and forwards to those that answer.

    with Balancer(keep_alive=True) as balancer:
        balancer.add(server.url)
        balancer.request("GET", "/v1/config")

It does what production.md asks of a balancer and no more: it sends no request to a server that answered the last
health check with anything but 200, reuses a connection only if the last response did not say `Connection: close`, and
never sends a request twice. So a request that fails here is a request that a client would lose.
"""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import urlsplit

from tests.support.waiting import PATIENCE_S, wait_until

POLL_EVERY_S: Final = 0.1


@dataclass
class Backend:
    url: str
    ready: bool = False
    under_way: int = 0
    """Requests that were assigned to it and have no response yet."""

    idle: list[http.client.HTTPConnection] = field(default_factory=list)

    def connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=PATIENCE_S)

    def check(self) -> bool:
        connection = self.connect()
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


class Balancer:
    def __init__(self, *, keep_alive: bool) -> None:
        self._keep_alive = keep_alive
        self._backends: list[Backend] = []
        self._rounds = 0
        self._lock = threading.Lock()
        self._turn = itertools.count()
        self._ended = threading.Event()
        self._poller = threading.Thread(target=self._poll, daemon=True)

    def __enter__(self) -> Self:
        self._poller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._poller.join()
        for backend in self._backends:
            for connection in backend.idle:
                connection.close()

    def add(self, url: str) -> None:
        """Forward to this server once it is ready."""
        with self._lock:
            self._backends = [*self._backends, Backend(url)]

    def remove(self, url: str) -> None:
        """Forget a server that has ended."""
        with self._lock:
            self._backends = [one for one in self._backends if one.url != url]

    def wait_until_left(self, url: str) -> None:
        """Wait until the balancer has noticed that this server is leaving, and has no request under way to it.

        Every process of the server answers health checks with 503 by now.
        """
        # A check of the round that is under way may have been answered before that.
        noticed_in = self._rounds + 2
        wait_until(lambda: self._rounds >= noticed_in, "the balancer does not check its servers")
        [backend] = [one for one in self._backends if one.url == url]
        assert not backend.ready, f"{url} is leaving and says that it is ready"
        wait_until(lambda: self._is_unused(backend), f"requests to {url} are not answered")

    def _is_unused(self, backend: Backend) -> bool:
        with self._lock:
            return backend.under_way == 0

    def ready(self) -> list[str]:
        return [backend.url for backend in self._backends if backend.ready]

    def request(self, method: str, path: str) -> int:
        """Forward one request and return the status. Raises OSError or HTTPException if the connection fails."""
        backend = self._next()
        try:
            return self._forward(backend, method, path)
        finally:
            with self._lock:
                backend.under_way -= 1

    def _forward(self, backend: Backend, method: str, path: str) -> int:
        connection = self._connection(backend)
        try:
            connection.request(method, path)
            response = connection.getresponse()
            response.read()
        except BaseException:
            connection.close()
            raise
        if self._keep_alive and not response.will_close:
            with self._lock:
                backend.idle.append(connection)
        else:
            connection.close()
        return response.status

    def _next(self) -> Backend:
        until = time.monotonic() + PATIENCE_S
        while True:
            with self._lock:
                ready = [backend for backend in self._backends if backend.ready]
                if ready:
                    backend = ready[next(self._turn) % len(ready)]
                    backend.under_way += 1
                    return backend
            assert time.monotonic() < until, "no server is ready"
            time.sleep(POLL_EVERY_S)

    def _connection(self, backend: Backend) -> http.client.HTTPConnection:
        with self._lock:
            # The one that was idle for longest: a server closes connections that are not used.
            return backend.idle.pop(0) if backend.idle else backend.connect()

    def _poll(self) -> None:
        while not self._ended.wait(POLL_EVERY_S):
            for backend in self._backends:
                backend.ready = backend.check()
            self._rounds += 1

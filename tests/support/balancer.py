"""A small HTTP load balancer, as it stands in front of replicas: it polls `/readyz` and forwards to those that answer.

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

POLL_EVERY_S: Final = 0.1
_TIMEOUT_S: Final = 60.0


@dataclass
class Backend:
    url: str
    ready: bool = False
    removed: bool = False
    idle: list[http.client.HTTPConnection] = field(default_factory=list)

    def connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=_TIMEOUT_S)

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
            self._backends = [*(one for one in self._backends if one.ready), Backend(url)]

    def ready(self) -> list[str]:
        return [backend.url for backend in self._backends if backend.ready]

    def request(self, method: str, path: str) -> int:
        """Forward one request and return the status. Raises OSError or HTTPException if the connection fails."""
        backend = self._next()
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
        until = time.monotonic() + _TIMEOUT_S
        while True:
            ready = [backend for backend in self._backends if backend.ready]
            if ready:
                return ready[next(self._turn) % len(ready)]
            assert time.monotonic() < until, "no server is ready"
            time.sleep(POLL_EVERY_S)

    def _connection(self, backend: Backend) -> http.client.HTTPConnection:
        with self._lock:
            return backend.idle.pop() if backend.idle else backend.connect()

    def _poll(self) -> None:
        while not self._ended.wait(POLL_EVERY_S):
            for backend in self._backends:
                backend.ready = backend.check()

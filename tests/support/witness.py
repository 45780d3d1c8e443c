"""A witness between a client and the server: it passes every request on, and remembers what was asked and answered.

It can lose answers: the server has done its work, and the client is told a status that says nothing about it. And it
can let something happen at the worst moment: right before a request reaches the server.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from tests.support.waiting import PATIENCE_S

_OF_THE_CONNECTION: Final = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, and what the server answered, whatever the client was told."""

    method: str
    path: str
    key: str | None
    """The request's Idempotency-Key."""
    status: int
    answer: bytes
    body: bytes = b""
    """What was sent."""
    authorization: str | None = None
    """The request's Authorization header."""

    def json(self) -> Any:
        return orjson.loads(self.answer)


@dataclass(frozen=True, slots=True)
class _Plan:
    """What happens to the next POST whose path ends like this."""

    path_end: str
    before: Callable[[], object] | None = None
    told: int | None = None


@dataclass(slots=True)
class Witness:
    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    _plans: list[_Plan] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def lose_answers(self, path_end: str, *, told: int, times: int = 1) -> None:
        """The next POSTs to such a path are carried out, and the client is told this status instead of the answer."""
        self._plans += [_Plan(path_end, told=told)] * times

    def let_happen_before(self, path_end: str, action: Callable[[], object]) -> None:
        """The next POST to such a path waits until this has been done."""
        self._plans.append(_Plan(path_end, before=action))

    def posts(self, path_end: str) -> list[Exchange]:
        return [one for one in self.exchanges if one.method == "POST" and one.path.endswith(path_end)]

    def _take_plan(self, method: str, path: str) -> _Plan | None:
        with self._lock:
            for plan in self._plans:
                if method == "POST" and path.endswith(plan.path_end):
                    self._plans.remove(plan)
                    return plan
        return None


@contextmanager
def running_witness(server_url: str) -> Iterator[Witness]:
    witness = Witness()
    target = urlsplit(server_url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _pass_on(self) -> None:
            assert "Transfer-Encoding" not in self.headers, "the witness reads bodies by their length"
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            plan = witness._take_plan(self.command, self.path)
            if plan is not None and plan.before is not None:
                plan.before()
            connection = http.client.HTTPConnection(target.hostname or "", target.port, timeout=PATIENCE_S)
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_THE_CONNECTION}
            connection.request(self.command, self.path, body or None, headers)
            response = connection.getresponse()
            answer = response.read()
            connection.close()
            key, authorization = self.headers.get("Idempotency-Key"), self.headers.get("Authorization")
            witness.exchanges.append(
                Exchange(self.command, self.path, key, response.status, answer, body, authorization)
            )
            if plan is not None and plan.told is not None:
                self._tell(plan.told, [("Retry-After", "1")] if plan.told == 503 else [], b"")
            else:
                self._tell(response.status, response.getheaders(), answer)

        def _tell(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers:
                if name.lower() not in _OF_THE_CONNECTION:
                    self.send_header(name, value)
            if status not in (204, 304):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_POST = do_DELETE = _pass_on

        def log_message(self, format: str, *args: object) -> None:
            """What was asked is in `exchanges`."""

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    witness.url = f"http://127.0.0.1:{httpd.server_address[1]}"
    thread = threading.Thread(target=httpd.serve_forever, daemon=True)
    thread.start()
    try:
        yield witness
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()

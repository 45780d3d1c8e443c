"""A small HTTP server whose answers are a function, for the services of clouds that no emulator has."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from tests.support.waiting import PATIENCE_S


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    """With the query."""

    headers: Mapping[str, str]
    """Names in lower case."""

    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))


Answers: TypeAlias = Callable[[Asked], tuple[int, str]]


@dataclass(slots=True)
class Stub:
    url: str
    asked: list[Asked] = field(default_factory=list)


@contextmanager
def answering(answers: Answers, media: str | None = None) -> Iterator[Stub]:
    """A server on a free port. A question that `answers` does not know should raise: then the answer is 500.

    `media`: what it says that its answers are, if it says anything.
    """
    stub = Stub("")

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(self.command, self.path, {n.lower(): v for n, v in self.headers.items()}, body)
            stub.asked.append(asked)
            try:
                status, text = answers(asked)
            except Exception as error:
                status, text = 500, repr(error)
            data = text.encode()
            self.send_response(status)
            if media is not None:
                self.send_header("Content-Type", media)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _handle

        def log_message(self, *_: Any) -> None:
            """Tests say what they need to."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="http-stub", daemon=True)
    thread.start()
    stub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield stub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE_S)

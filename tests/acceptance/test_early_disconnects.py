"""Clients that go away in the middle of anything leave no error in the log."""

from __future__ import annotations

import socket
import struct
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.server import running_server
from tests.support.waiting import PATIENCE_S, wait_until

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))

GET = b"GET /v1/config HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /v1/namespaces HTTP/1.1\r\nhost: x\r\n"
SENT = {
    "part of a head": b"GET /v1/co",
    "a head without its body": POST + b"content-length: 2000\r\n\r\n{",
    "a chunk that is not complete": POST + b"transfer-encoding: chunked\r\n\r\n5\r\nab",
    "a body that is too large": POST + b"content-length: 99000000\r\n\r\n" + b"x" * 100_000,
    "an expectation": POST + b"expect: 100-continue\r\ncontent-length: 990\r\n\r\n",
    "a request": GET,
    "many requests at once": GET * 50,
    "many requests for pages": b"GET /docs HTTP/1.1\r\nhost: x\r\n\r\n" * 20,
    "a request and half of the next": GET + POST + b"content-length: 2000\r\n\r\n{",
}


def test_clients_that_disconnect_early_leave_no_error_in_the_log(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        parts = urlsplit(server.url)
        for data in SENT.values():
            for reset in (False, True):
                for wait_s in (0.0, 0.0005, 0.003, 0.02):
                    with socket.create_connection(
                        (parts.hostname or "", parts.port or 0), timeout=PATIENCE_S
                    ) as client:
                        client.sendall(data)
                        # Not for something to happen: to leave at different moments.
                        time.sleep(wait_s)
                        if reset:
                            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        def metrics() -> str:
            text: str = _OPENER.open(f"{server.url}/metrics", timeout=PATIENCE_S).read().decode()
            return text

        wait_until(lambda: "lakepact_open_requests 1.0" in metrics(), metrics)
    errors = [line for line in server.lines() if line.get("level") not in ("info", "warning")]
    assert not errors, errors[0]
    assert b"Traceback" not in server.log.read_bytes()

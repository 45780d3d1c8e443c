"""Many idle connections at a small limit of open files: the server serves on, and commits work."""

from __future__ import annotations

import json
import re
import resource
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.acceptance.test_availability import Meter
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S

FILES = 256
SCHEMA = {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": False}]}

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(server: Server, path: str, body: Any = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}{path}", data, {"content-type": "application/json"})
    with _OPENER.open(request, timeout=PATIENCE_S) as response:
        return str(response.read().decode())


def few_files() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES // 2, FILES))


def test_idle_connections_beyond_the_limit_of_open_files_stop_neither_requests_nor_commits(tmp_path: Path) -> None:
    with running_server(tmp_path, before=few_files) as server, ExitStack() as held:
        parts = urlsplit(server.url)
        address = parts.hostname or "", parts.port or 0
        for _ in range(2 * FILES):
            held.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
        meter = Meter(server)
        with meter.measured():
            call(server, "/v1/main/namespaces", {"namespace": ["db"]})
            for number in range(5):
                call(server, "/v1/main/namespaces/db/tables", {"name": f"t{number}", "schema": SCHEMA})
        meter.print_row(f"6 requests with {2 * FILES} idle connections", 200)
        metrics = call(server, "/metrics")
        open_now = re.search(r"^lakepact_connections (\S+)", metrics, re.MULTILINE)
        limited = re.search(r"^lakepact_connections_limited_total (\S+)", metrics, re.MULTILINE)
        assert open_now and 0 < float(open_now[1]) <= FILES // 2 + 1
        assert limited and float(limited[1]) >= FILES
        # Lines are written in the background.
        server.log_end()
        log = server.log.read_text()
        assert "there are too many connections" in log
        assert "Too many open files" not in log

"""`lakepact serve` as its operator meets it: a real process, real sockets, real signals."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lakepact.settings import Settings
from tests.support.server import lines_in, running_server
from tests.support.waiting import PATIENCE_S


@dataclass(frozen=True)
class Running:
    process: subprocess.Popen[Any]
    url: str
    log: Path

    def get(self, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port or 0, timeout=PATIENCE_S)
        try:
            connection.request(method, place.path + path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.headers.get_content_type() == "application/json":
            return answer.status, json.loads(content)
        return answer.status, content.decode()

    def connect(self) -> socket.socket:
        place = urlsplit(self.url)
        return socket.create_connection((place.hostname or "", place.port or 0), timeout=PATIENCE_S)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "lakepact", "serve", *options]


def environment() -> dict[str, str]:
    ours = {f"LAKEPACT_{name.upper()}" for name in [*Settings.model_fields, "config"]}
    return {name: value for name, value in os.environ.items() if name not in ours}


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Running]:
    with running_server(folder, *options) as server:
        yield Running(server.process, server.url, server.log)


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_with_no_options_it_serves_from_a_data_folder_and_says_how_to_try_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            command(),
            cwd=tmp_path,
            # The one thing that is given: somebody else may have the usual port.
            env={**environment(), "LAKEPACT_PORT": "0"},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            # What is printed is there at once, though nobody watches on a terminal.
            lines = [process.stdout.readline() for _ in range(7)]
            found = re.search(r"listens on (http://127\.0\.0\.1:\d+)\n", lines[0])
            assert found, lines
            server = Running(process, found[1], log)
            assert server.get("/livez") == (200, {"alive": True})
            assert server.get("/readyz") == (200, {"ready": True})
            status, health = server.get("/health")
            assert (status, health["store"], health["warehouses"], health["ready"]) == (200, "sqlite", ["main"], True)
            assert (tmp_path / "lakepact-data" / "lakepact.db").exists()
            assert lines[1] == f"The web page is at {server.url}/ui\n"
            for engine in ("Spark", "PyIceberg", "DuckDB"):
                assert any(line.startswith(f"  {engine}") and server.url in line for line in lines)
            assert server.stop() == 0
        finally:
            process.kill()
    told = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["operation"] for line in told if line["event"] == "request"] == ["livez", "readyz", "health"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_request_under_way_finish_and_nothing_new_begin(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The test holds a request open.
    monkeypatch.setenv("LAKEPACT_REQUEST_DEADLINE_S", "600")
    with serving(tmp_path) as server, server.connect() as slow, server.connect() as idle:
        idle.sendall(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n")
        seen = b""
        while not seen.endswith(b"}"):
            seen += idle.recv(65_536)
        # A request whose body is not complete yet is under way.
        slow.sendall(b"POST /v1/main/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{")
        eventually(lambda: "lakepact_open_requests 2.0" in server.get("/metrics")[1])
        server.process.send_signal(number)
        # An idle connection is closed, which tells that the server has begun to stop.
        assert idle.recv(65_536) == b""
        with pytest.raises(OSError):
            server.connect().close()
        assert server.process.poll() is None
        slow.sendall(b" " * 19)
        assert slow.recv(65_536).startswith(b"HTTP/1.1 400")
        assert server.process.wait(PATIENCE_S) == 0


def test_a_port_that_is_in_use_is_an_error_that_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = subprocess.run(
            command("--port", str(port)),
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
    assert found.returncode == 2
    assert found.stderr.startswith(f"error: invalid-setting: port {port} of 127.0.0.1 is in use")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_store_that_cannot_be_opened_ends_it_with_the_stores_error(tmp_path: Path, workers: str) -> None:
    (tmp_path / "data").write_text("a file")
    found = subprocess.run(
        command("--port", "0", "--data", "data", "--workers", workers),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert found.returncode == 2
    assert "error: invalid-setting: the folder data cannot be made" in found.stderr
    assert "Traceback" not in found.stderr
    assert found.stdout == ""


def test_workers_cannot_share_memory(tmp_path: Path) -> None:
    found = subprocess.run(
        command("--port", "0", "--store", "memory://", "--workers", "2"),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (found.returncode, "memory://" in found.stderr) == (2, True)


def test_a_base_path_is_part_of_every_path(tmp_path: Path) -> None:
    with serving(tmp_path, "--base-path", "/catalog") as server:
        assert server.url.endswith("/catalog")
        assert server.get("/livez")[0] == 200
        root = Running(server.process, server.url.removesuffix("/catalog"), server.log)
        assert root.get("/livez")[0] == 404


def workers_of(server: Running) -> list[int]:
    """The processes that have begun to serve, dead ones too."""
    return [line["pid"] for line in lines_in(server.log.read_bytes()) if line["event"] == "a worker serves"]


def raw(server: Running, line: bytes) -> bytes:
    """The whole answer as it is on the wire."""
    with server.connect() as connection:
        connection.sendall(line + b"\r\nhost: x\r\nconnection: close\r\n\r\n")
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    return answer


def answered(server: Running, count: int) -> set[str]:
    """Which processes answered this many requests: a request's id begins with its process."""
    found = set()
    for _ in range(count):
        answer = raw(server, b"GET /livez HTTP/1.1")
        id = re.search(rb"x-request-id: ([0-9a-f]+)-", answer)
        assert id, answer
        found.add(id[1].decode())
    return found


def counted(server: Running) -> float:
    text = server.get("/metrics")[1]
    found = re.search(r'lakepact_requests_total\{operation="livez",status_class="2xx"\} (\S+)', text)
    return float(found[1]) if found else 0.0


def test_several_workers_serve_and_one_scrape_sees_them_all(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        processes: set[str] = set()
        asked = 0

        def both_have_answered() -> bool:
            nonlocal asked, processes
            asked += 20
            processes |= answered(server, 20)
            return len(processes) == 2

        eventually(both_have_answered)
        # A process counts a request when it has been answered.
        eventually(lambda: counted(server) == float(asked))
        assert {counted(server) for _ in range(10)} == {float(asked)}
        assert server.stop() == 0


def test_a_worker_that_dies_is_started_again(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        # Their lines may be written after the server has answered.
        eventually(lambda: len(workers_of(server)) == 2)
        victim, other = workers_of(server)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: len(workers_of(server)) == 3)
        assert server.get("/livez")[0] == 200
        assert not alive(victim) and alive(other)
        assert server.stop() == 0
        assert "a worker died and is started again" in server.log.read_text()


def test_workers_end_when_their_supervisor_is_gone(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as server:
        eventually(lambda: len(workers_of(server)) == 2)
        workers = workers_of(server)
        server.process.kill()
        server.process.wait()
        eventually(lambda: not any(map(alive, workers)))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that nobody has waited for is a name and no more.
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_header_names_are_spelled_on_the_wire_as_clients_look_for_them(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        assert server.get("/v1/main/namespaces", "POST", {"namespace": ["a"]})[0] == 200
        schema = {"type": "struct", "fields": [{"id": 1, "name": "x", "type": "long", "required": False}]}
        assert server.get("/v1/main/namespaces/a/tables", "POST", {"name": "t", "schema": schema})[0] == 200
        answer = raw(server, b"GET /v1/main/namespaces/a/tables/t HTTP/1.1")
        assert b"\r\nETag: " in answer
        assert b"\r\nserver:" not in answer.lower()

"""A server answers every request at a bounded cost: measured from outside, by CPU time and peak memory of its process.

The table that is printed also has the longest pause: the longest time that `/livez` took on another connection. It is
for people to read; a busy machine makes it longer. tests/wire/test_availability.py measures the event loop itself.
"""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import orjson
import pytest

from lakepact.v1 import transactions_pb2 as pb
from lakepact.v1 import transactions_pb2_grpc
from tests.acceptance.test_grpc import address
from tests.support.costly_requests import costly_requests, preparation, report_requests
from tests.support.server import Server, running_server

MEMORY_BYTES = 256 << 20
"""The most that one request may take."""

PATIENCE_S = 300.0
PATIENT = {"LAKEPACT_LOG_LEVEL": "error", "LAKEPACT_REQUEST_DEADLINE_S": "300", "LAKEPACT_DEADLINE_S": "300"}
"""CPU time is bounded here, not time: seconds of it may take minutes on a busy machine."""


class Meter:
    """CPU time, peak memory and the longest pause of a server's process while it serves costly requests."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._pid = server.process.pid
        self.cpu_s = 0.0
        self.memory_bytes = 0
        self.pause_s = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        Path(f"/proc/{self._pid}/clear_refs").write_text("5")
        cpu, memory, done = self._cpu(), self._status("VmRSS"), threading.Event()
        self.pause_s = 0.0
        prober = threading.Thread(target=self._probe, args=(done,))
        prober.start()
        try:
            yield
        finally:
            done.set()
            prober.join()
            self.cpu_s = self._cpu() - cpu
            self.memory_bytes = max(0, self._status("VmHWM") - memory)

    def print_row(self, name: str, answer: object) -> None:
        figures = f"{self.cpu_s:7.2f} s {self.memory_bytes >> 20:8} MiB {self.pause_s * 1000:11.0f} ms"
        print(f"{name:50} {answer:>6} {figures}")

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self._pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))

    def _probe(self, done: threading.Event) -> None:
        connection = _connection(self._server)
        while not done.is_set():
            began = time.monotonic()
            connection.request("GET", "/livez")
            connection.getresponse().read()
            self.pause_s = max(self.pause_s, time.monotonic() - began)
            done.wait(0.005)
        connection.close()


@pytest.mark.timeout(900)
def test_t_limit_4_one_request_takes_bounded_time_and_memory(tmp_path: Path) -> None:
    with running_server(tmp_path, env=PATIENT) as server:
        for path, body in preparation():
            status, answer = _send(server, "POST", path, orjson.dumps(body))
            assert status == 200, answer[:300]
        meter, wrong = Meter(server), []
        print(f"\n{'request':50} {'answer':>6} {'CPU':>9} {'peak memory':>12} {'longest pause':>14}")
        for one in [*costly_requests(), *report_requests(_ended_transaction(server))]:
            with meter.measured():
                status, answer = _send(server, one.method, one.path, one.body, one.headers)
            meter.print_row(one.name, status)
            if status not in one.right:
                wrong.append(f"{one.name}: {status} {answer[:300]!r}")
            if meter.cpu_s > one.cpu_s:
                wrong.append(f"{one.name}: {meter.cpu_s:.1f} s of CPU time, the bound is {one.cpu_s:g} s")
            if meter.memory_bytes > MEMORY_BYTES:
                wrong.append(f"{one.name}: {meter.memory_bytes >> 20} MiB, the bound is {MEMORY_BYTES >> 20} MiB")
        assert wrong == []


def test_responses_that_are_not_read_share_their_memory(tmp_path: Path) -> None:
    with running_server(tmp_path, env=PATIENT) as server:
        for path, body in preparation():
            assert _send(server, "POST", path, orjson.dumps(body))[0] == 200
        identifiers = [{"namespace": ["db"], "name": name} for name in ("big", "bigger", "biggest")]
        batch = orjson.dumps({"identifiers": identifiers})
        # Once with a reader: the metadata is cached from then on.
        assert _send(server, "POST", "/v1/main/tables/batch-load", batch)[0] == 200
        meter, idle = Meter(server), []
        with meter.measured():
            for _ in range(20):
                idle.append(_unread(server, "/v1/main/tables/batch-load", batch))
            # The server has begun to answer each of them.
            for connection in idle:
                assert connection.recv(1) == b"H"
        meter.print_row("20 responses of 30 MB that are not read", 200)
        assert meter.memory_bytes < MEMORY_BYTES, f"{meter.memory_bytes >> 20} MiB for 20 responses of 30 MB"
        for connection in idle:
            connection.close()


def test_t_auth_13_the_message_of_a_stranger_is_not_received(tmp_path: Path) -> None:
    with running_server(tmp_path, "--grpc-port", "0", env={"LAKEPACT_AUTH": "tokens"}) as server:
        meter = Meter(server)
        change = pb.TxChange(table_id="x", metadata_document=b"x" * 14_000_000)
        request = pb.PrepareTransactionRequest(transaction_id="x", changes=[change])
        options = [("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1)]
        with meter.measured(), grpc.insecure_channel(address(server), options) as channel:
            stub: Any = transactions_pb2_grpc.TransactionsStub(channel)
            calls = [stub.PrepareTransaction.future(request, timeout=PATIENCE_S) for _ in range(20)]
            assert {call.exception().code() for call in calls} == {grpc.StatusCode.UNAUTHENTICATED}
        meter.print_row("20 gRPC calls of 14 MB without a token", "16")
        assert meter.memory_bytes < 64 << 20, f"{meter.memory_bytes >> 20} MiB for 20 calls of 14 MB"


def _ended_transaction(server: Server) -> str:
    """The id of a committed transaction, for a run report."""
    begun = orjson.loads(_send(server, "POST", "/v1/main/transactions", b"{}")[1])["transaction-id"]
    assert _send(server, "POST", f"/v1/main/transactions/{begun}/commit", b"{}")[0] in (200, 204)
    return str(begun)


def _connection(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=PATIENCE_S)


def _send(
    server: Server, method: str, path: str, body: bytes, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    connection = _connection(server)
    try:
        connection.request(method, path, body or None, {"Content-Type": "application/json", **(headers or {})})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _unread(server: Server, path: str, body: bytes) -> socket.socket:
    """A connection over which a request was sent, and whose answer waits to be read."""
    parts = urlsplit(server.url)
    connection = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PATIENCE_S)
    head = f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    return connection

"""How a server stops: lame duck, drain, close; with one process and with several, over REST and gRPC."""

from __future__ import annotations

import collections
import http.client
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lakepact.v1 import transactions_pb2 as pb
from lakepact.v1 import transactions_pb2_grpc
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S, wait_until

WITHIN_S = PATIENCE_S
LONG = {"LAKEPACT_LAME_DUCK_S": "300"}
"""Longer than any test: what ends it is a second signal."""

SLOW = {"LAKEPACT_REQUEST_DEADLINE_S": "600"}
"""For tests that hold a request open."""


def connection_to(server: Server) -> http.client.HTTPConnection:
    parts = urlsplit(server.url)
    return http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=WITHIN_S)


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def ask(server: Server, path: str) -> tuple[int, str | None]:
    connection = connection_to(server)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        response.read()
        return response.status, response.getheader("connection")
    finally:
        connection.close()


def refuses_connections(server: Server) -> bool:
    parts = urlsplit(server.url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 0), timeout=WITHIN_S).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_lame_duck_serves_everything_and_says_that_it_is_leaving(tmp_path: Path, workers: str) -> None:
    with running_server(tmp_path, "--workers", workers, env=LONG) as server:
        keep_alive = connection_to(server)
        keep_alive.request("GET", "/livez")
        first = keep_alive.getresponse()
        first.read()
        assert first.getheader("connection") is None
        server.process.send_signal(signal.SIGTERM)
        # Every process: which of them answers is not known.
        eventually(lambda: _stop_requests(server) == int(workers))
        assert ask(server, "/readyz") == (503, "close")
        # The connection from before is served once more, and told to close.
        keep_alive.request("GET", "/v1/config")
        second = keep_alive.getresponse()
        assert (second.status, second.getheader("connection")) == (200, "close")
        for _ in range(10):
            assert ask(server, "/v1/config") == (200, "close")
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(WITHIN_S) == 0


def test_a_worker_that_could_not_handle_the_first_signal_gets_the_second_one_too(tmp_path: Path) -> None:
    with running_server(tmp_path, "--workers", "2", env=LONG) as server:
        paused, _ = _both_workers(server)
        os.kill(paused, signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: _stop_requests(server) == 1)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: _stop_requests(server) == 2)
        os.kill(paused, signal.SIGCONT)
        assert server.process.wait(WITHIN_S) == 0


def test_a_further_signal_after_the_end_of_a_worker_reaches_the_others(tmp_path: Path) -> None:
    with running_server(tmp_path, "--workers", "2", env=LONG) as server:
        ended, paused = sorted(_both_workers(server))
        os.kill(paused, signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: _stop_requests(server) == 1)
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: not Path(f"/proc/{ended}").exists())
        server.process.send_signal(signal.SIGTERM)
        os.kill(paused, signal.SIGCONT)
        assert server.process.wait(WITHIN_S) == 0
        assert "the server has stopped" in server.told()


def _both_workers(server: Server) -> list[int]:
    """Return the process ids. Their lines may be written after the server has answered."""

    def serving() -> list[int]:
        return [line["pid"] for line in server.lines() if line["event"] == "a worker serves"]

    return wait_until(lambda: found if len(found := serving()) == 2 else None, server.told) or []


def _stop_requests(server: Server) -> int:
    return sum(line["event"] == "the process is asked to stop" for line in server.lines())


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_lame_duck_phase_ends_by_itself_and_not_before_its_time(tmp_path: Path, workers: str) -> None:
    with running_server(tmp_path, "--workers", workers, env={"LAKEPACT_LAME_DUCK_S": "2"}) as server:
        began_s = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(WITHIN_S) == 0
        assert time.monotonic() - began_s >= 2


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_has_no_lame_duck_phase(tmp_path: Path, workers: str) -> None:
    with running_server(tmp_path, "--workers", workers, env=LONG) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(WITHIN_S) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_while_requests_are_drained_new_connections_are_refused_and_do_not_hang(tmp_path: Path, workers: str) -> None:
    with running_server(tmp_path, "--workers", workers, env=SLOW) as server:
        parts = urlsplit(server.url)
        address = parts.hostname or "", parts.port or 0
        with socket.create_connection(address, timeout=WITHIN_S) as slow:
            slow.sendall(b"POST /v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{")
            eventually(lambda: open_requests(server) == 2)
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: refuses_connections(server))
            assert server.process.poll() is None
            slow.sendall(b" " * 19)
            answer = slow.recv(65_536)
            assert answer.startswith(b"HTTP/1.1 400") and b"connection: close" in answer
        assert server.process.wait(WITHIN_S) == 0


def open_requests(server: Server) -> float:
    connection = connection_to(server)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    return float(next(line for line in text.splitlines() if line.startswith("lakepact_open_requests ")).split()[1])


def test_a_connection_whose_request_is_on_its_way_is_served_during_a_stop(tmp_path: Path) -> None:
    with running_server(tmp_path, env=SLOW) as server:
        parts = urlsplit(server.url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=WITHIN_S) as half:
            half.sendall(b"GET /livez HTTP/1.1\r\nhost: ")
            # Answered behind it on the same loop: the head's beginning has been read.
            assert ask(server, "/livez")[0] == 200
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: refuses_connections(server))
            half.sendall(b"x\r\n\r\n")
            assert half.recv(65_536).startswith(b"HTTP/1.1 200")
        assert server.process.wait(WITHIN_S) == 0


def test_a_further_signal_does_not_wait_for_requests(tmp_path: Path) -> None:
    with running_server(tmp_path, env=SLOW) as server:
        parts = urlsplit(server.url)
        with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=WITHIN_S) as slow:
            slow.sendall(b"POST /v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{")
            eventually(lambda: open_requests(server) == 2)
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: refuses_connections(server))
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(WITHIN_S)


# --- gRPC ---


def grpc_address(server: Server) -> str:
    line = next(line for line in server.log.read_text().splitlines() if line.startswith("gRPC listens on "))
    return line.removeprefix("gRPC listens on ")


def reason(error: grpc.RpcError) -> str | None:
    """The reason of the ErrorInfo that the server sends with its own errors."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            info = error_details_pb2.ErrorInfo()
            assert status.details[0].Unpack(info)
            return str(info.reason)
    return None


@pytest.mark.parametrize("workers", ["1", "2"])
def test_grpc_calls_during_a_stop_are_answered_or_unavailable_and_never_cancelled(tmp_path: Path, workers: str) -> None:
    codes: collections.Counter[grpc.StatusCode] = collections.Counter()
    with running_server(tmp_path, "--grpc-port", "0", "--workers", workers, env=LONG) as server:
        address = grpc_address(server)
        gone = threading.Event()

        def call_until_gone() -> None:
            options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
            with grpc.insecure_channel(address, options=options) as channel:
                begin = transactions_pb2_grpc.TransactionsStub(channel).BeginTransaction
                while not gone.is_set():
                    try:
                        begin(pb.BeginTransactionRequest(), timeout=WITHIN_S)
                        codes[grpc.StatusCode.OK] += 1
                    except grpc.RpcError as error:
                        codes[error.code()] += 1

        clients = [threading.Thread(target=call_until_gone) for _ in range(10)]
        with grpc.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            for one in clients:
                one.start()
            try:
                eventually(lambda: codes[grpc.StatusCode.OK] >= 50)
                server.process.send_signal(signal.SIGTERM)
                not_serving = health_pb2.HealthCheckResponse.NOT_SERVING
                check = health_pb2.HealthCheckRequest()
                eventually(lambda: health.Check(check, timeout=WITHIN_S).status == not_serving)
                # Not serving by name only: calls are still answered.
                before = codes[grpc.StatusCode.OK]
                eventually(lambda: codes[grpc.StatusCode.OK] >= before + 50)
                assert set(codes) == {grpc.StatusCode.OK}
                server.process.send_signal(signal.SIGTERM)
                assert server.process.wait(WITHIN_S) == 0
                # A client that was just answered has yet to notice.
                eventually(lambda: codes[grpc.StatusCode.UNAVAILABLE] > 0)
            finally:
                gone.set()
                for one in clients:
                    one.join()
    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}, codes


def test_a_grpc_call_after_the_lame_duck_phase_is_refused_with_a_reason(tmp_path: Path) -> None:
    with running_server(tmp_path, "--grpc-port", "0", env=SLOW) as server:
        with grpc.insecure_channel(grpc_address(server)) as channel:
            stub = transactions_pb2_grpc.TransactionsStub(channel)
            stub.BeginTransaction(pb.BeginTransactionRequest(), timeout=WITHIN_S)
            parts = urlsplit(server.url)
            with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=WITHIN_S) as slow:
                # A REST request holds the drain open.
                slow.sendall(b"POST /v1/namespaces HTTP/1.1\r\nhost: x\r\ncontent-length: 20\r\n\r\n{")
                eventually(lambda: open_requests(server) == 2)
                server.process.send_signal(signal.SIGTERM)
                eventually(lambda: refuses_connections(server))
                with pytest.raises(grpc.RpcError) as raised:
                    while True:
                        stub.BeginTransaction(pb.BeginTransactionRequest(), timeout=WITHIN_S)
                assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
                slow.sendall(b" " * 19)
        assert server.process.wait(WITHIN_S) == 0

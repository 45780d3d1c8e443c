"""`lakepact serve --grpc-port` as its operator meets it: a real process, a stock client, real signals."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from lakepact.v1 import transactions_pb2 as pb
from lakepact.v1 import transactions_pb2_grpc
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S

SERVICE = "lakepact.v1.Transactions"


def address(server: Server) -> str:
    # The last one: a server before it may have written into the same log.
    found: list[str] = re.findall(r"^gRPC listens on (127\.0\.0\.1:\d+)$", server.log.read_text(), re.MULTILINE)
    assert found, server.told()
    return found[-1]


@contextmanager
def connected(server: Server) -> Iterator[Any]:
    with grpc.insecure_channel(address(server), [("grpc.enable_http_proxy", 0)]) as channel:
        yield channel


def test_it_says_where_it_listens_what_it_offers_and_that_it_serves(tmp_path: Path) -> None:
    with running_server(tmp_path, "--grpc-port", "0") as server, connected(server) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        answer = health.Check(health_pb2.HealthCheckRequest(service=SERVICE), timeout=PATIENCE_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = reflection_pb2.ServerReflectionRequest(list_services="")
        [listed] = list(reflection.ServerReflectionInfo(iter([asked]), timeout=PATIENCE_S))
        assert {SERVICE, "grpc.health.v1.Health"} <= {one.name for one in listed.list_services_response.service}
        asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)
        [described] = list(reflection.ServerReflectionInfo(iter([asked]), timeout=PATIENCE_S))
        assert described.file_descriptor_response.file_descriptor_proto


def test_without_the_option_there_is_no_grpc(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        assert "gRPC" not in server.log.read_text()


def test_on_sigterm_watchers_are_told_and_the_process_ends_with_0(tmp_path: Path) -> None:
    # A watcher must not hold up the end until the deadline of requests, which is beyond the patience of this test.
    env = {"LAKEPACT_REQUEST_DEADLINE_S": "600"}
    with running_server(tmp_path, "--grpc-port", "0", env=env) as server, connected(server) as channel:
        begun = transactions_pb2_grpc.TransactionsStub(channel).BeginTransaction(
            pb.BeginTransactionRequest(), timeout=PATIENCE_S
        )
        assert begun.transaction.state == pb.TS_OPEN
        watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=PATIENCE_S)
        assert next(watching).status == health_pb2.HealthCheckResponse.SERVING
        server.process.send_signal(signal.SIGTERM)
        assert next(watching).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert server.process.wait(PATIENCE_S) == 0
    # What was acknowledged is still there.
    with running_server(tmp_path, "--grpc-port", "0") as server, connected(server) as channel:
        request = pb.GetTransactionRequest(transaction_id=begun.transaction.transaction_id)
        found = transactions_pb2_grpc.TransactionsStub(channel).GetTransaction(request, timeout=PATIENCE_S)
        assert found.transaction == begun.transaction


def test_several_workers_share_the_port(tmp_path: Path) -> None:
    with running_server(tmp_path, "--grpc-port", "0", "--workers", "2") as server:
        begun = set()
        for _ in range(6):
            # A channel is one connection, and each goes to one of the workers.
            with connected(server) as channel:
                stub = transactions_pb2_grpc.TransactionsStub(channel)
                begun.add(
                    stub.BeginTransaction(pb.BeginTransactionRequest(), timeout=PATIENCE_S).transaction.transaction_id
                )
        with connected(server) as channel:
            stub = transactions_pb2_grpc.TransactionsStub(channel)
            listed = stub.ListTransactions(pb.ListTransactionsRequest(states=[pb.TS_OPEN]), timeout=PATIENCE_S)
            assert {one.transaction_id for one in listed.transactions} == begun


@pytest.mark.parametrize("shared", [False, True])
def test_a_port_that_is_taken_is_an_error_with_its_name(tmp_path: Path, shared: bool) -> None:
    with socket.socket() as taken:
        if shared:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "lakepact", "serve", "--port", "0", "--grpc-port", port]
        ended = subprocess.run([*command, "--data", str(tmp_path)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 2
    assert "--grpc-port" in ended.stderr


def test_the_example_in_the_docs_runs(root: Path, tmp_path: Path) -> None:
    example = (root / "docs" / "grpc.md").read_text().split("```python\n", 1)[1].split("```", 1)[0]
    with running_server(tmp_path / "server", "--grpc-port", "0") as server:
        example = example.replace("http://127.0.0.1:8181", server.url).replace("127.0.0.1:8182", address(server))
        (tmp_path / "example.py").write_text(example)
        result = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert result.stdout.splitlines()[-1] == "applied: daily and orders, at one instant"
        server.log_end()
        logged = [line for line in server.lines() if line.get("operation") == "grpcCommitTransaction"]
        assert [line["status"] for line in logged] == ["OK"]
        assert logged[0]["transaction_id"]


def test_the_line_of_a_refused_call_says_why_and_to_whom(tmp_path: Path) -> None:
    with running_server(tmp_path, "--grpc-port", "0") as server, connected(server) as channel:
        stub = transactions_pb2_grpc.TransactionsStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.GetTransaction(pb.GetTransactionRequest(transaction_id="nothing"), timeout=PATIENCE_S)
    [line] = [line for line in server.lines() if line.get("operation") == "grpcGetTransaction"]
    assert (line["error"], line["address"]) == (refused.value.details(), "127.0.0.1")

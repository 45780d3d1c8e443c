"""Traces as an operator has them: a real server, OpenTelemetry's variables, and somebody who collects."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

import lakepact
from lakepact.server.tracing import is_wanted
from lakepact.v1 import transactions_pb2 as pb
from lakepact.v1 import transactions_pb2_grpc
from tests.acceptance.test_grpc import connected
from tests.support.server import running_server
from tests.support.waiting import PATIENCE_S


class Collector:
    """What was sent to it: spans by name, in the order in which they ended."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.services: set[str] = set()
        self.url = ""

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {one.key: one.value.string_value for one in resource.resource.attributes}
            self.services.add(named["service.name"])
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def one(self, name: str, trace_id: int) -> Any:
        [found] = [span for span in self.spans if span.name == name and span.trace_id == trace_id.to_bytes(16, "big")]
        return found

    def below(self, span: Any) -> set[str]:
        return {one.name for one in self.spans if one.parent_span_id == span.span_id}


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Quietly."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield collector
        finally:
            server.shutdown()


def test_a_trace_goes_from_the_client_through_the_server_to_the_store(tmp_path: Path) -> None:
    ours = TracerProvider().get_tracer("test")
    with collecting() as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": "lake"}
        with running_server(tmp_path, "--grpc-port", "0", env=env) as server:
            with ours.start_as_current_span("job") as job:
                lakepact.connect(server.url).namespaces.create("sales")
            trace_id = job.get_span_context().trace_id
            with connected(server) as channel:
                stub = transactions_pb2_grpc.TransactionsStub(channel)
                parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
                stub.BeginTransaction(
                    pb.BeginTransactionRequest(), metadata=[("traceparent", parent)], timeout=PATIENCE_S
                )
        # The server has ended, and has sent what was waiting.
        assert collector.services == {"lake"}
        created = collector.one("createNamespace", trace_id)
        assert created.parent_span_id == job.get_span_context().span_id.to_bytes(8, "big")
        assert {one.key: one.value.int_value for one in created.attributes}["http.response.status_code"] == 200
        assert "store.commit" in collector.below(created)
        begun = collector.one("grpcBeginTransaction", int("ab" * 16, 16))
        assert begun.parent_span_id == bytes.fromhex("cd" * 8)
        assert "store.begin" in collector.below(begun)
        assert f"{trace_id:032x}" in server.log.read_text(), "the log leads to the trace"


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "lake"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, False),
    ],
)
def test_only_who_names_a_place_has_traces(environment: dict[str, str], wanted: bool) -> None:
    assert is_wanted(environment) is wanted

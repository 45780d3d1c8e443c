"""Traces by OpenTelemetry: a span for every request, and below it one for every call to the store or a warehouse.

OpenTelemetry's own environment variables say whether and where to (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`,
`OTEL_TRACES_SAMPLER` and so on); nothing is set up where none of them names a place. A request that brings a
`traceparent` continues its client's trace. Needs the extra `otel`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from inspect import iscoroutinefunction
from typing import Any, Final, TypeAlias, TypeVar, cast

import structlog

from lakepact.extras import how_to_install

T = TypeVar("T")
Asgi: TypeAlias = Callable[[Any, Any, Any], Awaitable[None]]
LogRequest: TypeAlias = Callable[[dict[str, Any]], None]

_SERVER_FAULT: Final = 500
_PLACES: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")

_log = structlog.get_logger(__name__)


def is_wanted(environment: Mapping[str, str]) -> bool:
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "")
    return exporter != "none" and bool(exporter or any(environment.get(place) for place in _PLACES))


def open_tracing(environment: Mapping[str, str]) -> Tracing | None:
    """As the environment says; None if it says nothing, or the libraries are missing."""
    if not is_wanted(environment):
        return None
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError:
        _log.warning(f"OTEL_… variables ask for traces, and OpenTelemetry is not installed: {how_to_install('otel')}")
        return None
    exporter = _exporter(environment)
    if exporter is None:
        return None
    provider = TracerProvider(
        resource=Resource.create({"service.name": environment.get("OTEL_SERVICE_NAME", "lakepact")})
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)


def _exporter(environment: Mapping[str, str]) -> Any:
    name = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if name != "otlp" or protocol not in (None, "", "http/protobuf"):
        _log.warning(
            "no traces: set OTEL_TRACES_EXPORTER to otlp or console, and OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf",
            exporter=name,
            protocol=protocol,
        )
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


class Tracing:
    def __init__(self, provider: Any) -> None:
        """`provider`: OpenTelemetry's, with somewhere to send spans to."""
        from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("lakepact")
        self._context_of = TraceContextTextMapPropagator().extract
        self._kind = SpanKind.SERVER
        self._failed = Status(StatusCode.ERROR)
        self._current = get_current_span

    def close(self) -> None:
        """Send what waits."""
        self._provider.shutdown()

    def request(self, headers: Mapping[str, str]) -> Any:
        """The span of a request: a context manager. `described` tells it what the request was."""
        return self._tracer.start_as_current_span("request", context=self._context_of(headers), kind=self._kind)

    def application(self, application: Asgi) -> Asgi:
        async def traced(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await application(scope, receive, send)
                return
            carried = (b"traceparent", b"tracestate")
            headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in carried}
            with self.request(headers):
                await application(scope, receive, send)

        return traced

    def described(self, log_request: LogRequest | None) -> LogRequest:
        """What the line in the log says of a request, its span says too."""

        def describe(line: dict[str, Any]) -> None:
            span = self._current()
            span.update_name(line["operation"])
            span.set_attribute("http.request.method", line["method"])
            over = "http" if isinstance(line["status"], int) else "rpc"
            span.set_attribute(f"{over}.response.status_code", line["status"])
            for name in ("request_id", "transaction_id"):
                if name in line:
                    span.set_attribute(f"lakepact.{name}", line[name])
            if isinstance(line["status"], int) and line["status"] >= _SERVER_FAULT:
                span.set_status(self._failed)
            # Not `is not None`: whether lines are wanted may change while the server runs.
            if log_request:
                log_request({**line, "trace_id": f"{span.get_span_context().trace_id:032x}"})

        return describe

    def port(self, port: T, name: str) -> T:
        """The same port, with a span `<name>.<method>` for every call that waits for something."""
        return cast(T, _TracedPort(port, name, self._tracer))


class _TracedPort:
    def __init__(self, port: object, name: str, tracer: Any) -> None:
        self._port = port
        self._name = name
        self._tracer = tracer

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if not iscoroutinefunction(method):
            return method
        tracer, span_name = self._tracer, f"{self._name}.{name}"

        async def traced(*arguments: Any, **named: Any) -> Any:
            with tracer.start_as_current_span(span_name):
                return await method(*arguments, **named)

        # The next call finds it without asking again.
        setattr(self, name, traced)
        return traced

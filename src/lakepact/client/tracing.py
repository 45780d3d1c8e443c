"""Hands the caller's trace on to the server, if the caller's program traces."""

from __future__ import annotations

import sys


def trace_headers() -> dict[str, str]:
    """`traceparent` and `tracestate` of the current span of OpenTelemetry; nothing where nobody has loaded it."""
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers

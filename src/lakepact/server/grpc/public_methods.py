"""Health and reflection: calls that need no token, so what is read of them is bounded.

gRPC receives a message as a whole, up to the size that the largest method of the server needs, before a handler sees
it. So only a few public calls are read at the same time, each within a short time. A health check that comes while
all of those are busy is answered for the server as a whole, without reading which service it asks about.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2

_PREFIXES: Final = ("/grpc.health.", "/grpc.reflection.")
_READ_AT_ONCE: Final = 8
_READ_S: Final = 2.0
_BUSY: Final = "too many public calls are being read; try again"


class PublicMethods(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    def __init__(self, at_once: int = _READ_AT_ONCE, read_s: float = _READ_S) -> None:
        self._at_once = at_once
        self._read_s = read_s
        self._reading = 0

    async def intercept_service(self, continuation: Any, details: Any) -> Any:
        handler = await continuation(details)
        if handler is None or not details.method.startswith(_PREFIXES):
            return handler
        serializers = handler.request_deserializer, handler.response_serializer
        if handler.unary_unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._check(handler.unary_unary), *serializers)
        if handler.unary_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._watch(handler.unary_stream), *serializers)
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._stream(handler.stream_stream), *serializers)
        return handler

    def _check(self, inner: Any) -> Any:
        async def call(messages: AsyncIterator[Any], context: Any) -> Any:
            if self._reading >= self._at_once:
                return await inner(health_pb2.HealthCheckRequest(), context)
            async for message in self._read(messages, context):
                return await inner(message, context)
            return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")

        return call

    def _watch(self, inner: Any) -> Any:
        async def call(messages: AsyncIterator[Any], context: Any) -> Any:
            async for message in self._read(messages, context):
                return await inner(message, context)
            return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")

        return call

    def _stream(self, inner: Any) -> Any:
        async def call(messages: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
            async for answer in inner(self._read(messages, context), context):
                yield answer

        return call

    async def _read(self, messages: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        received = aiter(messages)
        while True:
            if self._reading >= self._at_once:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _BUSY)
            self._reading += 1
            try:
                async with asyncio.timeout(self._read_s):
                    message = await anext(received)
            except StopAsyncIteration:
                return
            except TimeoutError:
                text = f"no message came within {self._read_s:g} s"
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, text)
            finally:
                self._reading -= 1
            yield message

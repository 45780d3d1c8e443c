"""The gRPC server: one port, the transactions, health and reflection; and what every call pays for.

A client that goes away, or whose deadline passes, does not cancel what it asked for: whether a commit happens must not
depend on a connection. So a call's work is a task of its own, which the server waits for before it ends. The server
knows the deadline from the beginning, and gives a call up shortly before it, unless the store has the commit by then.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeAlias, TypeVar

import grpc
import structlog
from google.protobuf import message_factory
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from lakepact.access import ANYONE, Principal
from lakepact.catalog.work import give_up_before
from lakepact.errors import InvalidRequest, InvalidSetting, LakepactError
from lakepact.iceberg.fields import JsonObject
from lakepact.server.grpc.messages import check_message
from lakepact.server.grpc.public_methods import PublicMethods
from lakepact.server.grpc.service import SERVICE, Handler, TransactionsService
from lakepact.server.grpc.status import DETAILS_KEY, ServerStopping, http_status, status_of
from lakepact.server.http import MOST_LOGGED
from lakepact.server.metrics import Metrics
from lakepact.server.tls import Certificate
from lakepact.server.tracing import Tracing
from lakepact.v1 import transactions_pb2 as pb

T = TypeVar("T")

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_OPERATION: Final = "grpc{}"
"""The operation in metrics and logs: REST has some of the same names."""

_LONGEST_S: Final = 86_400.0
_CLOSE_WITHIN_S: Final = 1.0
_LOOK_EVERY_S: Final = 0.01

Admit: TypeAlias = Callable[[list[bytes], str], Awaitable[Principal]]
"""From the call's `authorization` and its address to who it is. Raises to turn them away."""

_MOST_CALLS: Final = 100
"""At once over one connection."""

_CONCURRENT_CALLS: Final = 1_000
"""At once over all connections. More are refused by gRPC itself."""

_log = structlog.get_logger(__name__)


class GrpcServer:
    def __init__(
        self,
        service: TransactionsService,
        *,
        host: str,
        port: int,
        metrics: Metrics,
        max_message_bytes: int,
        log_request: Callable[[dict[str, Any]], None] | None = None,
        tracing: Tracing | None = None,
        admit: Admit | None = None,
        tls: Certificate | None = None,
    ) -> None:
        """Without `admit` nobody is asked for a name."""
        self._tls = tls
        self._admit = admit
        self._handlers = service.handlers()
        self._host = host
        self._port = port
        self._metrics = metrics
        self._max_message_bytes = max_message_bytes
        self._log_request = log_request
        self._tracing = tracing
        self._work: set[asyncio.Task[Any]] = set()
        self._server: Any = None
        self._health: Any = None
        self._unanswered: set[Any] = set()
        """The contexts of calls that were taken before a stop and whose response has not left the process."""

        self._stopping = False
        self._bound_port = 0
        metrics.operations_are(_OPERATION.format(name) for name in self._handlers)

    async def start(self) -> int:
        """Listen and serve. Returns the port, which may have been left to the system."""
        options = [
            ("grpc.max_receive_message_length", self._max_message_bytes),
            ("grpc.max_concurrent_streams", _MOST_CALLS),
            # Several worker processes share the port. That nobody else does was made sure of before.
            ("grpc.so_reuseport", 1),
        ]
        server = grpc.aio.server(
            options=options, interceptors=(PublicMethods(),), maximum_concurrent_rpcs=_CONCURRENT_CALLS
        )
        server.add_generic_rpc_handlers((self._generic_handler(),))
        self._health = health.aio.HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
        try:
            host = f"[{self._host}]" if ":" in self._host else self._host
            port: int = self._add_port(server, f"{host}:{self._port}")
        except RuntimeError as error:
            raise InvalidSetting(
                f"cannot listen for gRPC on {self._host} port {self._port}: {error}; correct --host or --grpc-port"
            ) from None
        await server.start()
        self._server, self._bound_port = server, port
        for name in ("", SERVICE):
            await self._health.set(name, _SERVING)
        return port

    def _add_port(self, server: Any, address: str) -> int:
        if self._tls is None:
            return int(server.add_insecure_port(address))
        return int(server.add_secure_port(address, _credentials(self._tls)))

    async def announce_stop(self) -> None:
        """Set the health of all services to NOT_SERVING. Calls are still served."""
        if self._health is not None:
            await self._health.enter_graceful_shutdown()

    async def stop(self, within_s: float = 30.0) -> None:
        """Refuse new calls with UNAVAILABLE, finish those under way for at most `within_s`, then close.

        gRPC's own graceful stop comes last, when there is nothing left to stop: it answers CANCELLED to every call that
        was on its way to the server, although nothing of it was done (docs/decisions/0030).
        """
        if self._server is None:
            return
        server, self._server = self._server, None
        until_s = time.monotonic() + within_s
        await self.announce_stop()
        self._stopping = True
        await self._finish(until_s)
        while self._unanswered and time.monotonic() < until_s:
            await asyncio.sleep(_LOOK_EVERY_S)
        _hang_up(self._bound_port)
        await server.stop(min(_CLOSE_WITHIN_S, max(0.0, until_s - time.monotonic())))
        # The clients of these calls are gone. What they asked for is finished all the same.
        await self._finish(until_s)

    async def _finish(self, until_s: float) -> None:
        while self._work and time.monotonic() < until_s:
            await asyncio.wait(set(self._work), timeout=until_s - time.monotonic())

    def _generic_handler(self) -> Any:
        methods = {
            method.name: self._method(method.name, method.input_type, method.output_type)
            for method in pb.DESCRIPTOR.services_by_name["Transactions"].methods
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def _method(self, name: str, input_type: Any, output_type: Any) -> Any:
        handler = self._handlers[name]
        parse = message_factory.GetMessageClass(input_type).FromString

        async def call(messages: AsyncIterator[bytes], context: Any) -> Any:
            if not self._stopping:
                self._unanswered.add(context)
                context.add_done_callback(self._unanswered.discard)
            # Shielded: the call may be cancelled, the work may not.
            task = asyncio.create_task(self._traced(self._answer(name, handler, parse, messages, context), context))
            self._work.add(task)
            task.add_done_callback(self._work.discard)
            answer, failure = await asyncio.shield(task)
            if failure is not None:
                code, status = failure
                await context.abort(code, status.message, ((DETAILS_KEY, status.SerializeToString()),))
            return answer

        # As a stream, which on the wire is the same: its message is received when it is asked for, and that is after
        # the caller was admitted.
        return grpc.stream_unary_rpc_method_handler(
            call,
            request_deserializer=None,
            response_serializer=message_factory.GetMessageClass(output_type).SerializeToString,
        )

    async def _traced(self, work: Coroutine[Any, Any, T], context: Any) -> T:
        if self._tracing is None:
            return await work
        with self._tracing.request(dict(context.invocation_metadata() or ())):
            return await work

    async def _answer(
        self, name: str, handler: Handler, parse: Callable[[bytes], Any], messages: AsyncIterator[bytes], context: Any
    ) -> tuple[Any, Any]:
        """The answer, or the status of a call that failed."""
        began = time.perf_counter()
        self._metrics.request_began()
        code, failure, answer, who = grpc.StatusCode.OK, None, None, ANYONE
        metadata = [(str(key), value) for key, value in context.invocation_metadata() or ()]
        try:
            if self._stopping:
                raise ServerStopping
            if self._admit is not None:
                who = await self._admit(_authorization(metadata), _address(context.peer()))
            sent = await _first(messages, name)
            try:
                check_message(sent, name)
                request = parse(sent)
            except DecodeError as error:
                raise InvalidRequest(f"the message of {name} cannot be read: {error}") from None
            answer = await handler(request, _source(metadata, who), who, _give_up_s(context))
        except Exception as error:
            if not isinstance(error, LakepactError):
                _log.error("a gRPC call failed", operation=name, exc_info=error)
            failure = status_of(error)
            code = failure[0]
        seconds = time.perf_counter() - began
        self._metrics.request_ended(_OPERATION.format(name), http_status(code), seconds)
        if self._log_request:
            line = {
                "method": "GRPC",
                "operation": _OPERATION.format(name),
                "status": code.name,
                "duration_ms": round(seconds * 1000, 2),
            }
            if who.name is not None:
                line["principal"] = who.name
            if failure is not None:
                line |= {"error": failure[1].message[:MOST_LOGGED], "address": _address(context.peer())}
            transaction = getattr(answer, "transaction", None)
            self._log_request(line if transaction is None else {**line, "transaction_id": transaction.transaction_id})
        return answer, failure


async def _first(messages: AsyncIterator[bytes], name: str) -> bytes:
    async for message in messages:
        return message
    raise InvalidRequest(f"the call of {name} has no message")


def _hang_up(port: int) -> None:
    """Stop listening on this port, which is gRPC's alone, and end the stream of every connection to it.

    Clients then see UNAVAILABLE, whatever the library would still send to them.
    """
    for listening, how in ((True, socket.SHUT_RDWR), (False, socket.SHUT_WR)):
        for entry in os.listdir("/dev/fd"):
            copy = -1
            try:
                copy = os.dup(int(entry))
                ours = socket.socket(fileno=copy)
            except OSError:
                # Not a socket, or closed meanwhile. The copy must not stay open: there is one for every file.
                if copy >= 0:
                    os.close(copy)
                continue
            with suppress(OSError), ours:
                if ours.family in (socket.AF_INET, socket.AF_INET6) and ours.getsockname()[1] == port:
                    accepts = bool(ours.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
                    if accepts is listening:
                        ours.shutdown(how)


def _credentials(certificate: Certificate) -> Any:
    """A port's share of the server's certificate: what is newest, at every handshake."""
    given = certificate.key, certificate.chain
    first = grpc.ssl_server_certificate_configuration([given])

    def newest() -> Any:
        """Asked before every handshake, from a thread of gRPC's. None: what was there is right."""
        nonlocal given
        found = certificate.key, certificate.chain
        if found == given:
            return None
        given = found
        return grpc.ssl_server_certificate_configuration([found])

    return grpc.dynamic_ssl_server_credentials(first, newest)


def _give_up_s(context: Any) -> float | None:
    """Return when to give this call up, so that its client hears so before its deadline; None without a deadline."""
    remaining_s = context.time_remaining()
    now_s = time.monotonic()
    # Without a deadline gRPC says None, or a time that never comes.
    return None if remaining_s is None or remaining_s > _LONGEST_S else give_up_before(now_s + remaining_s, now_s)


def _source(metadata: list[tuple[str, Any]], who: Principal) -> JsonObject:
    return {"kind": "grpc", "client": dict(metadata).get("user-agent"), "principal": who.name}


def _authorization(metadata: list[tuple[str, Any]]) -> list[bytes]:
    sent = [value for key, value in metadata if key == "authorization"]
    return [value if isinstance(value, bytes) else str(value).encode() for value in sent]


def _address(peer: str) -> str:
    """From `ipv4:127.0.0.1:1234`, or `ipv6:[::1]:1234` with its brackets encoded: without the port, which changes."""
    return peer.partition(":")[2].rpartition(":")[0] or peer

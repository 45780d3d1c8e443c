"""Sockets, signals and uvicorn: one process that serves, from the first connection to the last response.

A stop has three phases. Lame duck: `/readyz` answers 503, responses carry `Connection: close`, and everything is still
served, so that load balancers can move away (`lame_duck_s`). Drain: no new connections, and the requests under way are
finished. Close: background work is finished, and the process ends with 0. SIGTERM begins with the first phase, SIGINT
(Ctrl-C) with the second; each further signal begins the next one. SIGHUP and SIGUSR1 change what is logged; SIGHUP also
reloads the certificate, which is checked regularly anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import structlog
import uvicorn

from lakepact import __version__
from lakepact.errors import InvalidSetting
from lakepact.server import logs
from lakepact.server.app import Service, build
from lakepact.server.connections import Connections, backlog_within, connections_within, raise_file_limit
from lakepact.server.heads import heads_within
from lakepact.server.log_levels import LogLevels
from lakepact.server.metrics import Metrics
from lakepact.server.supervisor import Supervisor
from lakepact.server.watchdog import Watchdog
from lakepact.settings import Settings
from lakepact.stores.pools import register_threads

KEEP_ALIVE_S: Final = 75
"""Longer than clients keep an idle connection: a server that hangs up first may hang up on a request on its way."""

FIRST_REQUEST_S: Final = 20
"""How long a connection may be open without having sent anything. Browsers open some ahead of time."""

_log = structlog.get_logger(__name__)

_BACKLOG: Final = 2_048
_MORE_THAN_A_REQUEST_S: Final = 5
_LOOK_EVERY_S: Final = 0.1
_MOST_SIGNALS: Final = 64
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def bind(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """A listening socket. An address that cannot be had is an error that says so."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidSetting(f"cannot listen on {host}: {error.strerror or error}; correct --host") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(_BACKLOG)
        bound.setblocking(False)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            raise InvalidSetting(
                f"port {port} of {host} is in use. Stop whoever listens there, or choose another with {option} "
                f"(0 is any free one)"
            ) from None
        raise InvalidSetting(
            f"cannot listen on {host} port {port}: {error.strerror}; correct --host or {option}"
        ) from None
    return bound


def reserve(host: str, port: int) -> socket.socket:
    """A socket that holds a port for gRPC, which binds it once more itself, in as many processes as there are.

    It never listens: connections go to those who do.
    """
    # Alone first: to share a port with another server would be no error, and half of the calls would go there.
    alone = bind(host, port, option="--grpc-port")
    family, address = alone.family, alone.getsockname()
    alone.close()
    shared = socket.socket(family, socket.SOCK_STREAM)
    try:
        shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        shared.bind(address)
    except OSError as error:
        shared.close()
        raise InvalidSetting(f"port {address[1]} of {host} cannot be had for gRPC: {error.strerror}") from None
    return shared


def url_of(bound: socket.socket, base_path: str, *, tls: bool = False) -> str:
    """Where a client on this machine finds the server."""
    host, port = bound.getsockname()[:2]
    host = _WILDCARDS.get(host, host)
    return f"{'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}{base_path}"


def serve_all(settings: Settings, bound: socket.socket, *, ready: Callable[[], None]) -> None:
    """Serve with as many processes as the settings say. Returns once all is finished and given back."""
    host, port = bound.getsockname()[:2]
    where = {"address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}", "version": __version__}

    def serves() -> None:
        _log.info("the server serves", **where, workers=settings.workers, pid=os.getpid())
        ready()

    try:
        if settings.workers == 1:
            serve(settings, bound, ready=serves)
        else:
            Supervisor(settings, bound, serves).run()
        _log.info("the server has stopped", **where)
    finally:
        logs.flush()


def serve(
    settings: Settings,
    bound: socket.socket,
    *,
    ready: Callable[[], None],
    lifeline: int | None = None,
    heartbeat: int | None = None,
) -> None:
    """Serve on this socket until a signal says stop. `ready` is called once requests are answered.

    If `lifeline` is given, each byte of it is the number of a signal, and its end is such a signal too: the supervisor
    is gone. `heartbeat` is a pipe that
    gets a byte whenever the event loop shows that it runs.
    """
    logs.configure(settings.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, bound, ready, lifeline, heartbeat))


async def _serve(
    settings: Settings,
    bound: socket.socket,
    ready: Callable[[], None],
    lifeline: int | None,
    heartbeat: int | None,
) -> None:
    # As the default, with a name of its own under which it is measured.
    threads = ThreadPoolExecutor(min(32, (os.cpu_count() or 1) + 4), thread_name_prefix="lakepact-threads")
    register_threads("threads", threads)
    asyncio.get_running_loop().set_default_executor(threads)
    service = await build(settings)
    watchdog = Watchdog(settings.watchdog_s, on_beat=partial(_sample, service.metrics), heartbeat=heartbeat)
    watchdog.start()
    try:
        server = _Server(_config(settings, service), service, ready, lame_duck_s=settings.lame_duck_s)
        if lifeline is not None:
            server.hold_on_to(lifeline)
        await server.serve(sockets=[bound])
    finally:
        await service.close()
        watchdog.stop()


def _sample(metrics: Metrics, longest_pause_s: float) -> None:
    metrics.event_loop_paused(longest_pause_s)
    metrics.pools()


def _config(settings: Settings, service: Service) -> uvicorn.Config:
    tls = service.tls
    files = raise_file_limit()
    connections = Connections(
        connections_within(files),
        on_count=service.metrics.connections,
        on_limited=service.metrics.connection_limited,
    )
    return uvicorn.Config(
        service.asgi,
        http=heads_within(
            settings.max_head_bytes, settings.request_deadline_s, idle_s=FIRST_REQUEST_S, connections=connections
        ),
        backlog=backlog_within(files),
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_context_factory=None if tls is None else lambda config, default: tls.context,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(settings.request_deadline_s) + _MORE_THAN_A_REQUEST_S,
    )


class _Server(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, service: Service, ready: Callable[[], None], *, lame_duck_s: float
    ) -> None:
        super().__init__(config)
        self._lame_duck_s = lame_duck_s
        self._announcing: asyncio.Task[None] | None = None
        self._service = service
        self._ready = ready
        self._log_levels = LogLevels()
        self._watching: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._service.grpc is not None:
            await self._service.grpc.start()
        if self._service.tls is not None:
            self._watching = asyncio.create_task(self._service.tls.watch())
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._stop_listening(sockets or [])
        if self._service.grpc is None:
            await super().shutdown(sockets)
            return
        # Side by side: each may wait for its own clients as long as one of them alone would have.
        ending = asyncio.create_task(self._service.grpc.stop(self.config.timeout_graceful_shutdown or 0))
        await super().shutdown(sockets)
        while not ending.done() and not self.force_exit:
            await asyncio.wait([ending], timeout=_LOOK_EVERY_S)
        ending.cancel()

    async def _stop_listening(self, sockets: list[socket.socket]) -> None:
        """Close the listening sockets. Connections that the system has accepted already are served, not reset."""
        waiting = [one.dup() for one in sockets]
        for server in self.servers:
            server.close()
        for one in sockets:
            one.close()
        accepted = [connection for one in waiting for connection in _accept_all(one)]
        for one in waiting:
            one.close()
        loop = asyncio.get_running_loop()
        for connection in accepted:
            # A client that breaks off its TLS handshake is no concern of the others.
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await loop.connect_accepted_socket(self._protocol, connection, ssl=self.config.ssl)

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    def stop(self, lame_duck_s: float = 0.0) -> None:
        """Begin to stop, or go on to the next phase if that has begun already."""
        draining = self._service.draining
        if self.should_exit:
            self.force_exit = True
        elif draining.asked or lame_duck_s == 0:
            self._drain()
        else:
            asyncio.get_running_loop().call_later(lame_duck_s, self._drain)
        if not draining.asked:
            draining.asked = True
            if self._service.grpc is not None:
                self._announcing = asyncio.create_task(self._service.grpc.announce_stop())

    def _drain(self) -> None:
        self.should_exit = True

    def hold_on_to(self, lifeline: int) -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            numbers = os.read(lifeline, _MOST_SIGNALS)
            for number in numbers:
                self._asked(number)
            if not numbers:
                loop.remove_reader(lifeline)
                if not self.should_exit:
                    # A new supervisor cannot have the port before this process is gone.
                    self.stop()

        loop.add_reader(lifeline, read)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # uvicorn would raise the signal once more at the end, and the process would die of it with its work done.
        loop = asyncio.get_running_loop()
        handlers: dict[int, Callable[[], None]] = {
            signal.SIGINT: partial(self._asked, signal.SIGINT),
            signal.SIGTERM: partial(self._asked, signal.SIGTERM),
            signal.SIGHUP: self._read_again,
            signal.SIGUSR1: self._log_levels.toggle,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _read_again(self) -> None:
        self._log_levels.read_again()
        if self._service.tls is not None:
            self._service.tls.read_again()

    def _asked(self, number: int) -> None:
        _log.info("the process is asked to stop", signal=signal.Signals(number).name, pid=os.getpid())
        self.stop(self._lame_duck_s if number == signal.SIGTERM else 0.0)


def _accept_all(listening: socket.socket) -> Iterator[socket.socket]:
    listening.setblocking(False)
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        connection.setblocking(False)
        yield connection


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop

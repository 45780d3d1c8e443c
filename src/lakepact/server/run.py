"""Sockets, signals and uvicorn: one process that serves, from the first connection to the last answer.

SIGTERM and SIGINT stop it cleanly: no new connections, what is under way is finished, then what goes on in the
background, then the process ends with 0. A second SIGINT does not wait. SIGHUP and SIGUSR1 change what is logged;
SIGHUP also has the certificate read again, which happens by itself too.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import structlog
import uvicorn

from lakepact import __version__
from lakepact.errors import InvalidSetting
from lakepact.server import logs
from lakepact.server.app import Service, build
from lakepact.server.heads import heads_within
from lakepact.server.log_levels import LogLevels
from lakepact.server.supervisor import Supervisor
from lakepact.settings import Settings

KEEP_ALIVE_S: Final = 75
"""Longer than clients keep an idle connection: a server that hangs up first may hang up on a request on its way."""

_log = structlog.get_logger(__name__)

_BACKLOG: Final = 2_048
_MORE_THAN_A_REQUEST_S: Final = 5
_LOOK_EVERY_S: Final = 0.1
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


def serve(settings: Settings, bound: socket.socket, *, ready: Callable[[], None], lifeline: int | None = None) -> None:
    """Serve on this socket until a signal says stop. `ready` is called once requests are answered.

    If `lifeline` is given, its end of file is such a signal too: whoever holds the other end is gone.
    """
    logs.configure(settings.log_level)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, bound, ready, lifeline))


async def _serve(settings: Settings, bound: socket.socket, ready: Callable[[], None], lifeline: int | None) -> None:
    service = await build(settings)
    try:
        server = _Server(_config(settings, service), service, ready)
        if lifeline is not None:
            server.hold_on_to(lifeline)
        await server.serve(sockets=[bound])
    finally:
        await service.close()


def _config(settings: Settings, service: Service) -> uvicorn.Config:
    tls = service.tls
    return uvicorn.Config(
        service.asgi,
        http=heads_within(settings.max_head_bytes, settings.request_deadline_s, idle_s=KEEP_ALIVE_S),
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
    def __init__(self, config: uvicorn.Config, service: Service, ready: Callable[[], None]) -> None:
        super().__init__(config)
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
        if self._service.grpc is None:
            await super().shutdown(sockets)
            return
        # Side by side: each may wait for its own clients as long as one of them alone would have.
        ending = asyncio.create_task(self._service.grpc.stop(self.config.timeout_graceful_shutdown or 0))
        await super().shutdown(sockets)
        while not ending.done() and not self.force_exit:
            await asyncio.wait([ending], timeout=_LOOK_EVERY_S)
        ending.cancel()

    def stop(self) -> None:
        self._service.draining.asked = True
        self.should_exit = True

    def hold_on_to(self, lifeline: int) -> None:
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(lifeline)
            self.stop()

        loop.add_reader(lifeline, ended)

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
        if self.should_exit and number == signal.SIGINT:
            self.force_exit = True
        self.stop()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop

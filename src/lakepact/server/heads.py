"""The head of a request, its first line and its headers, within bounds.

uvicorn takes as much of a head as comes, for as long as it keeps coming, from anybody who can reach the port: before
there is a request there is nobody to ask who they are. Here a head has a size and a time to arrive in, and a connection
on which nothing comes is closed. What is refused is answered with 431 or 408, and the connection ends.
"""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import ClassVar, Final

import structlog

from lakepact.server.connections import Connections
from lakepact.server.http import Response, error_response
from lakepact.server.whole_answers import WholeAnswers

_FIRST_BYTE_S: Final = 1.0
"""How long a server that shuts down waits for the first request of a new connection."""

_log = structlog.get_logger(__name__)


class _TooLarge(Exception):
    """Stops the parser; uvicorn takes it for what a parser says."""


class HeadsWithinBounds(WholeAnswers):
    """For `uvicorn.Config(http=…)`; see `heads_within`."""

    max_bytes: ClassVar[int]
    within_s: ClassVar[float]
    idle_s: ClassVar[float]
    open_connections: ClassVar[Connections]

    # --- of a connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._in_head = True
        self._began_now = False
        self._bytes = 0
        self._oversized = False
        self._is_new = True
        self._timer: asyncio.TimerHandle | None = None
        super().connection_made(transport)
        if self.open_connections.opened(self):
            self._allow(self.idle_s)
        else:
            text = "this server has as many connections as it may have, and all are busy; try again"
            self._send_and_close(error_response(503, "ServiceUnavailableException", text))

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self.open_connections.closed(self)
        super().connection_lost(exc)

    def close_idle(self) -> None:
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        self._began_now = False
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            if self._began_now:
                # Where in this piece it began nobody says, so the piece does not count; the next ones do, whole.
                self._allow(self.within_s)
                return
            self._bytes += len(data)
            if self._bytes > self.max_bytes:
                self._refuse(self._too_large())
        elif self._timer is None and self.cycle.response_complete:
            # Empty lines before a head: they stop the clock for idle connections, so this one goes on.
            self._allow(self.within_s)

    def shutdown(self) -> None:
        """Close the connection, unless a request is under way or may be on its way. uvicorn calls this once.

        By now responses carry `Connection: close`, so a connection that has a request ends with its response.
        """
        in_head = self._in_head and self.headers is not None
        if self._is_new and not in_head:
            # A client that has just connected is about to send something.
            self._allow(_FIRST_BYTE_S)
        elif not in_head:
            super().shutdown()
        # Else the head is on its way, and has its own deadline.

    # --- of a request ---

    def on_message_begin(self) -> None:
        self._in_head = self._began_now = True
        self._bytes = 0
        self.open_connections.busy(self)
        super().on_message_begin()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._in_head and not self.pipeline and not self.transport.is_closing():
            self.open_connections.idle(self)

    def on_headers_complete(self) -> None:
        size = len(self.url)
        for name, value in self.headers:
            size += len(name) + len(value)
        if size > self.max_bytes:
            self._oversized = True
            raise _TooLarge
        self._in_head = self._is_new = False
        if self._timer is not None:
            self._disarm()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """What uvicorn says when the parser was stopped."""
        if self._oversized:
            self._refuse(self._too_large())
        else:
            super().send_400_response(msg)

    # --- refusing ---

    def _too_large(self) -> Response:
        text = f"the first line and the headers are larger than {self.max_bytes:,} bytes (max_head_bytes); send less"
        return error_response(431, "RequestTooLargeException", text)

    def _late(self) -> None:
        self._timer = None
        if self._in_head and self.headers is not None:
            text = f"the first line and the headers did not arrive within {self.within_s:g} s (request_deadline_s)"
            self._refuse(error_response(408, "BadRequestException", text))
        else:
            self.transport.close()

    def _refuse(self, response: Response) -> None:
        _log.warning("a head was refused", status=response.status, address=self.client[0] if self.client else None)
        self._send_and_close(response)

    def _send_and_close(self, response: Response) -> None:
        reason = HTTPStatus(response.status).phrase.encode()
        head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (response.status, reason, len(response.body)) + response.body)
        self.transport.close()

    # --- time ---

    def _allow(self, seconds: float) -> None:
        self._disarm()
        self._timer = self.loop.call_later(seconds, self._late)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def heads_within(
    max_bytes: int, seconds: float, *, idle_s: float, connections: Connections | None = None
) -> type[WholeAnswers]:
    """The protocol with these bounds: for a head from its first byte, and for a connection that has sent nothing."""

    class BoundedHeads(HeadsWithinBounds):
        pass

    BoundedHeads.max_bytes, BoundedHeads.within_s, BoundedHeads.idle_s = max_bytes, seconds, idle_s
    BoundedHeads.open_connections = connections or Connections(sys.maxsize)
    return BoundedHeads

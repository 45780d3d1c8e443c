"""The head and the body of an answer leave together.

uvicorn writes them one after the other, and each write is a call to the system that wakes the client up: the first time
for a head that it can do nothing with. Here the head waits for what follows it.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_LITTLE_BYTES: Final = 65_536
"""A body up to this is copied behind its head. What is copied of a larger one would cost more than it saves."""


class PatientTransport:
    """It keeps the head of an answer until the body, the end of the answer or that of the connection."""

    __slots__ = ("_head", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._transport.is_closing():
            # The client is gone. uvloop would raise, and uvicorn log that as a failure of the application.
            self._head = None
        elif self._head is not None:
            head, self._head = self._head, None
            if len(data) <= _LITTLE_BYTES:
                self._transport.write(head + data)
            else:
                self._transport.write(head)
                self._transport.write(data)
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 1"):
            # 100 Continue is no head of an answer: the client waits for it.
            self._head = data
        else:
            self._transport.write(data)

    def flush(self) -> None:
        head, self._head = self._head, None
        if head is not None and not self._transport.is_closing():
            self._transport.write(head)

    def close(self) -> None:
        self.flush()
        self._transport.close()


class WholeAnswers(HttpToolsProtocol):
    """For `uvicorn.Config(http=…)`."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._patient = PatientTransport(transport)
        super().connection_made(cast("asyncio.Transport", self._patient))

    def on_response_complete(self) -> None:
        # An answer to HEAD has no body.
        self._patient.flush()
        super().on_response_complete()

"""A proxy that kills its client: it counts what the client sends to its database and pulls the trigger at a number.

The message that reaches the number is forwarded first, so the database acts on it while its client is already dead.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

_CHUNK = 1 << 20


class KillingProxy:
    def __init__(self, upstream: str) -> None:
        self._upstream = urlsplit(upstream)
        self._victim: int | None = None
        self._at = 0
        self._port = 0
        self.messages = 0

    @classmethod
    @asynccontextmanager
    async def between(cls, upstream: str) -> AsyncIterator[Self]:
        """A proxy before this PostgreSQL URL, on a port of its own choice."""
        proxy = cls(upstream)
        server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
        proxy._port = server.sockets[0].getsockname()[1]
        try:
            yield proxy
        finally:
            server.close()

    @property
    def url(self) -> str:
        user, _, _ = self._upstream.netloc.rpartition("@")
        address = f"{user}@127.0.0.1:{self._port}" if user else f"127.0.0.1:{self._port}"
        return urlunsplit((self._upstream.scheme, address, self._upstream.path, "", ""))

    def arm(self, victim: int, at: int) -> None:
        self._victim, self._at, self.messages = victim, at, 0

    def disarm(self) -> None:
        self._victim = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream_reader, upstream_writer = await self._connect()
        try:
            await asyncio.gather(
                self._forward(reader, upstream_writer, counted=True),
                self._forward(upstream_reader, writer, counted=False),
            )
        finally:
            for end in (writer, upstream_writer):
                end.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = self._upstream.port or 5432
        folder = parse_qs(self._upstream.query).get("host", [""])[0]
        if folder.startswith("/"):
            return await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.{port}")
        return await asyncio.open_connection(self._upstream.hostname or "127.0.0.1", port)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, counted: bool) -> None:
        with suppress(ConnectionError):
            while data := await source.read(_CHUNK):
                sink.write(data)
                await sink.drain()
                if counted:
                    self._count()
        with suppress(ConnectionError, RuntimeError):
            sink.write_eof()

    def _count(self) -> None:
        if self._victim is None:
            return
        self.messages += 1
        if self.messages == self._at:
            with suppress(ProcessLookupError):
                os.kill(self._victim, signal.SIGKILL)

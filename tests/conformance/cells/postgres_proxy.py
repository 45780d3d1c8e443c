"""A man in the middle of a PostgreSQL connection: counts round trips, and loses requests or answers when told to.

It listens on a Unix socket of its own and understands just enough of the protocol to know where a message ends.
A client waits for an answer after Sync, Flush, Query and the end of a COPY, so these are round trips. Only Sync ends
what has an effect, or a Query that says COMMIT.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import Enum, auto
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit


class Fault(Enum):
    NONE = auto()
    LOSE_REQUEST = auto()
    """The next request does not arrive, and the connection ends."""

    LOSE_ANSWER = auto()
    """The next request arrives and is carried out; its answer does not, and the connection ends."""


_AWAITED = (b"S", b"H", b"Q", b"c")


class Proxy:
    def __init__(self, server: Path, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._fault = Fault.NONE
        self._refusing = False
        self._refuse_next = False
        self._at_commit = False
        self.round_trips = 0
        self.faults = 0

    @property
    def url(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._folder}"

    def lose(self, fault: Fault, *, and_refuse: bool = False, at_commit: bool = False) -> None:
        """Do this to the next request, or to the next COMMIT; with `and_refuse` nobody can connect afterwards."""
        self._fault = fault
        self._refuse_next = and_refuse
        self._at_commit = at_commit

    def serve_again(self) -> None:
        self._refusing = False

    @classmethod
    @asynccontextmanager
    async def before(cls, url: str) -> AsyncIterator[Self]:
        server = Path(parse_qs(urlsplit(url).query)["host"][0]) / ".s.PGSQL.5432"
        folder = Path(tempfile.mkdtemp(prefix="lp-proxy-", dir="/tmp"))
        proxy = cls(server, folder)
        listener = await asyncio.start_unix_server(proxy._connected, folder / ".s.PGSQL.5432")
        try:
            yield proxy
        finally:
            listener.close()
            shutil.rmtree(folder, ignore_errors=True)

    async def _connected(self, client: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        if self._refusing:
            answers.close()
            return
        server, requests = await asyncio.open_unix_connection(self._server)
        link = _Link(answers, requests)
        with suppress(OSError, asyncio.IncompleteReadError):
            await asyncio.gather(self._forward_requests(client, link), self._forward_answers(server, link))
        link.end()

    async def _forward_requests(self, client: asyncio.StreamReader, link: _Link) -> None:
        link.requests.write(await _startup(client))
        while True:
            kind, message = await _message(client)
            if kind in _AWAITED:
                self.round_trips += 1
            if self._fault is not Fault.NONE and _takes_effect(kind, message, self._at_commit):
                fault, self._fault = self._fault, Fault.NONE
                self.faults += 1
                self._refusing = self._refuse_next
                if fault is Fault.LOSE_REQUEST:
                    link.end()
                    return
                link.deaf = True
            link.pending.append(message)
            if kind in (*_AWAITED, b"X", b"p"):
                # A request is passed on as a whole: what it asks for has no effect before its Sync.
                for part in link.pending:
                    link.requests.write(part)
                link.pending.clear()
                await link.requests.drain()

    async def _forward_answers(self, server: asyncio.StreamReader, link: _Link) -> None:
        while True:
            kind, message = await _message(server)
            if not link.deaf:
                link.answers.write(message)
                await link.answers.drain()
            elif kind == b"Z":
                # Ready for the next query: the request has been carried out, and nobody hears of it.
                link.end()
                return


class _Link:
    """One connection through the proxy."""

    def __init__(self, answers: asyncio.StreamWriter, requests: asyncio.StreamWriter) -> None:
        self.answers = answers
        self.requests = requests
        self.pending: list[bytes] = []
        self.deaf = False

    def end(self) -> None:
        self.answers.close()
        self.requests.close()


def _takes_effect(kind: bytes, message: bytes, at_commit: bool) -> bool:
    return kind == b"Q" and message[5:11] == b"COMMIT" if at_commit else kind == b"S"


async def _startup(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length) - 4)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:]) - 4)

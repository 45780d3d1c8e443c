"""HTTP as the storm needs it: bytes as they are given, good or bad, and whatever comes back."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, NamedTuple

import orjson

ANSWER_WITHIN_S = 60.0
"""Longer than the server gives itself for a request (`request_deadline_s`): who waits for more was forgotten."""

_MOST_BYTES = 1 << 24


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    """By name, in lower case."""

    body: bytes

    def json(self) -> Any:
        return orjson.loads(self.body)


class HungUp(Exception):
    """The server closed the connection instead of answering."""


class NoAnswer(Exception):
    """The connection is open, and nothing comes."""


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A request in good form; a name's underscores are hyphens. One that is given as text of its own goes first."""
    named = {"Host": "storm", "Content-Length": str(len(body))}
    named.update({name.replace("_", "-"): value for name, value in headers.items()})
    head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


class Connection:
    """One that stays open from answer to answer, and is opened again when the server says that it will be closed."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, data: bytes, *, patience_s: float = ANSWER_WITHIN_S) -> Answer:
        """Raises `HungUp` and `NoAnswer`."""
        reader, _ = await self._sent(data)
        try:
            async with asyncio.timeout(patience_s):
                answer = await _answer(reader, data.startswith(b"HEAD "))
        except TimeoutError:
            self.close()
            raise NoAnswer from None
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            raise HungUp from None
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    async def leave(self, data: bytes) -> None:
        """Send this, and hang up."""
        await self._sent(data)
        self.close()

    async def _sent(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port, limit=_MOST_BYTES)
        self._streams[1].write(data)
        # Who does not want to hear the rest may have said why.
        with contextlib.suppress(ConnectionError):
            await self._streams[1].drain()
        return self._streams

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def _answer(reader: asyncio.StreamReader, without_body: bool) -> Answer:
    status = 100
    while status == 100:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(first.split(" ")[1])
    named = (line.partition(": ") for line in lines if line)
    headers = {name.lower(): value for name, _, value in named}
    length = 0 if without_body else int(headers.get("content-length", 0))
    return Answer(status, headers, await reader.readexactly(length) if length else b"")

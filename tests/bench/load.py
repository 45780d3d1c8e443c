"""`python -m tests.bench.load`: a load generator in a process of its own.

Standard input brings one job as JSON: {host, port, seconds, clients: [{method, path, body, headers}]}. Each client
keeps one connection and sends its request again and again; `@N@` in a body becomes the number of the request. Standard
output takes the figures: {requests, seconds, median_ms}.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Figures:
    requests: int
    seconds: float
    median_ms: float

    @property
    def per_second(self) -> float:
        return self.requests / self.seconds


def load(url: str, clients: list[dict[str, Any]], seconds: float = 2.0) -> Figures:
    """Run a job in a process of its own, and wait for it."""
    place = urlsplit(url)
    job = {"host": place.hostname, "port": place.port, "seconds": seconds, "clients": clients}
    ended = subprocess.run(
        [sys.executable, "-m", "tests.bench.load"], input=json.dumps(job), capture_output=True, text=True, cwd=ROOT
    )
    assert ended.returncode == 0, ended.stderr
    return Figures(**json.loads(ended.stdout))


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, host: str, port: int) -> Connection:
        return cls(*await asyncio.open_connection(host, port, limit=1 << 24))

    async def send(self, method: str, path: str, body: bytes, headers: str = "") -> None:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{headers}"
            f"Content-Length: {len(body)}"
        )
        self._writer.write(head.encode() + b"\r\n\r\n" + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        at = answer.lower().find(b"content-length:")
        length = int(answer[at + 15 : answer.index(b"\r\n", at)]) if at >= 0 else 0
        if length:
            text = await self._reader.readexactly(length)
        assert status < 300, (status, text[:500])


class Client:
    """Sends one request again and again over one connection."""

    def __init__(self, connection: Connection, request: dict[str, Any]) -> None:
        self._connection = connection
        self._method, self._path = request["method"], request["path"]
        self._body = request.get("body") or ""
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (request.get("headers") or {}).items())
        self._number = 0

    async def ask(self, until: float) -> list[float]:
        """How long each took, in seconds."""
        taken = []
        while (began := time.perf_counter()) < until:
            self._number += 1
            body = self._body.replace("@N@", str(self._number)).encode()
            await self._connection.send(self._method, self._path, body, self._headers)
            taken.append(time.perf_counter() - began)
        return taken


async def _asked(job: dict[str, Any], request: dict[str, Any], until: float) -> list[float]:
    return await Client(await Connection.to(job["host"], job["port"]), request).ask(until)


async def main() -> None:
    job = json.loads(sys.stdin.read())
    began = time.perf_counter()
    each = await asyncio.gather(*(_asked(job, client, began + job["seconds"]) for client in job["clients"]))
    seconds = time.perf_counter() - began
    taken = [one for some in each for one in some]
    print(json.dumps({"requests": len(taken), "seconds": seconds, "median_ms": statistics.median(taken) * 1000}))


if __name__ == "__main__":
    uvloop.run(main())

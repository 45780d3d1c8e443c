"""Soak test: sixteen clients on two servers of one store, one of which is killed or restarted all the time.

    python -m tests.bench soak --minutes 20

It runs once on SQLite and once on PostgreSQL. One server lives from the first request to the last, and its memory must
stay flat once its caches are warm. The other one is stopped every few seconds, by SIGKILL and SIGTERM in turn, and
started again. A client repeats a request that got 503 or no response at the other server, under the same idempotency
key. No other 5xx is permitted, and at the end every table must hold exactly what its client was told.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from tests.bench.report import against, say, table
from tests.bench.storm.http import Answer, Connection, HungUp, NoAnswer, request
from tests.support.postgres import running_postgres
from tests.support.server import Server, running_server
from tests.wire.world import SCHEMA, append, new_key

CLIENTS: Final = 16
TABLES: Final = ("a", "b", "c")
AIM: Final = 1.1
_VERSIONS: Final = 40
"""A table is dropped and created again after this many commits, so that its size does not decide its cost."""

_OUTAGE_S: Final = 300.0
"""A client gives up if a request has had no final response for so long."""

_RETRY_S: Final = 0.1
_SAMPLE_S: Final = 1.0
_RESTART_EVERY_S: Final = 8.0
_ENVIRONMENT: Final = {
    "LAKEPACT_LOG_LEVEL": "warning",
    # Small caches are full early: what grows after that is a leak.
    "LAKEPACT_METADATA_CACHE_BYTES": str(4 << 20),
    "LAKEPACT_CACHED_BYTES": str(4 << 20),
}


class Minutes:
    value = 5.0 if os.environ.get("LAKEPACT_LONG") else 0.5


class SoakFailure(Exception):
    """A response that a client must not get, or a table that is not what its client was told."""


@dataclass(slots=True)
class Results:
    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    restarts: Counter[str] = field(default_factory=Counter)
    resident_mib: list[float] = field(default_factory=list)

    @property
    def growth(self) -> float:
        """The memory of the last third of the run in relation to the second third."""
        third = max(1, len(self.resident_mib) // 3)
        return statistics.mean(self.resident_mib[-third:]) / statistics.mean(self.resident_mib[third : 2 * third])


@dataclass(slots=True)
class Endpoints:
    """The addresses of the servers that run now."""

    steady: tuple[str, int]
    restarted: tuple[str, int] | None = None

    def choose(self, rng: random.Random) -> tuple[str, int]:
        return rng.choice([self.steady, self.restarted]) if self.restarted else self.steady


@dataclass(slots=True)
class ExpectedTable:
    location: str
    snapshots: list[int] = field(default_factory=list)
    versions: int = 0


class SoakClient:
    """Works on three tables that no other worker uses, and knows what they must hold."""

    def __init__(self, number: int, endpoints: Endpoints, results: Results) -> None:
        self.namespace = f"c{number}"
        self.tables: dict[str, ExpectedTable] = {}
        self._path = f"/v1/main/namespaces/{self.namespace}/tables"
        self._endpoints = endpoints
        self._results = results
        self._rng = random.Random(number)
        self._connections: dict[tuple[str, int], Connection] = {}

    async def run(self, until: float) -> None:
        operations: dict[Callable[[], Awaitable[None]], int] = {
            self._load: 40,
            self._commit_one: 30,
            self._commit_many: 15,
            self._publish_transaction: 10,
            self._commit_shared: 3,
        }
        try:
            await self._send("POST", "/v1/main/namespaces", {"namespace": [self.namespace]})
            for name in TABLES:
                await self._create(name)
            while time.monotonic() < until:
                await self._rng.choices(list(operations), list(operations.values()))[0]()
                for name in TABLES:
                    if self.tables[name].versions >= _VERSIONS:
                        await self._send("DELETE", f"{self._path}/{name}")
                        await self._create(name)
            for name in TABLES:
                await self._check(name)
        except SoakFailure as failure:
            self._results.failures.append(str(failure))
        finally:
            for connection in self._connections.values():
                connection.close()

    async def _send(self, method: str, path: str, body: Any = None) -> Answer:
        """Send until there is a final response. Every attempt of a change has the same idempotency key."""
        headers = {} if method == "GET" else {"Idempotency_Key": new_key()}
        message = request(method, path, b"" if body is None else orjson.dumps(body), **headers)
        deadline = time.monotonic() + _OUTAGE_S
        while time.monotonic() < deadline:
            endpoint = self._endpoints.choose(self._rng)
            connection = self._connections.setdefault(endpoint, Connection(*endpoint))
            try:
                answer = await connection.ask(message)
            except (HungUp, NoAnswer, OSError) as error:
                connection.close()
                self._connections.pop(endpoint, None)
                self._results.statuses["no response"] += 1
                if endpoint == self._endpoints.steady:
                    raise SoakFailure(f"{method} {path}: the steady server did not respond: {error!r}") from error
            else:
                self._results.statuses[str(answer.status)] += 1
                if answer.status != 503:
                    if answer.status not in (200, 204):
                        raise SoakFailure(f"{method} {path}: {answer.status} {answer.body[:500]!r}")
                    return answer
            await asyncio.sleep(_RETRY_S)
        raise SoakFailure(f"{method} {path}: no final response in {_OUTAGE_S:.0f} s")

    async def _create(self, name: str) -> None:
        created = (await self._send("POST", self._path, {"name": name, "schema": SCHEMA})).json()
        self.tables[name] = ExpectedTable(created["metadata"]["location"])

    async def _check(self, name: str) -> None:
        metadata = (await self._send("GET", f"{self._path}/{name}")).json()["metadata"]
        expected = self.tables[name]
        snapshots = [snapshot["snapshot-id"] for snapshot in metadata.get("snapshots", ())]
        if snapshots != expected.snapshots or len(metadata["metadata-log"]) != expected.versions:
            raise SoakFailure(f"{self.namespace}.{name} has snapshots {snapshots}, expected {expected.snapshots}")

    async def _load(self) -> None:
        await self._check(self._rng.choice(TABLES))

    def _append(self, name: str) -> tuple[dict[str, Any], Callable[[], None]]:
        """Return the requirements and updates of an append, and a function that records it as committed."""
        expected, number = self.tables[name], self._rng.getrandbits(60)
        parent = expected.snapshots[-1] if expected.snapshots else None
        manifests = f"{expected.location}/metadata/snap-{number}.avro"

        def record() -> None:
            expected.snapshots.append(number)
            expected.versions += 1

        change = {
            "requirements": [{"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": parent}],
            "updates": append(number, len(expected.snapshots) + 1, parent, **{"manifest-list": manifests}),
        }
        return change, record

    async def _commit_one(self) -> None:
        name = self._rng.choice(TABLES)
        change, record = self._append(name)
        await self._send("POST", f"{self._path}/{name}", change)
        record()

    async def _commit_many(self) -> None:
        planned = {name: self._append(name) for name in self._rng.sample(TABLES, 2)}
        changes = [
            {"identifier": {"namespace": [self.namespace], "name": name}, **change}
            for name, (change, _) in planned.items()
        ]
        await self._send("POST", "/v1/main/transactions/commit", {"table-changes": changes})
        for _, record in planned.values():
            record()

    async def _publish_transaction(self) -> None:
        begun = (await self._send("POST", "/v1/main/transactions", {"ttl-seconds": 600})).json()
        inside = f"/v1/{begun['prefix']}/namespaces/{self.namespace}/tables"
        planned = {name: self._append(name) for name in self._rng.sample(TABLES, 2)}
        for name, (change, _) in planned.items():
            await self._send("GET", f"{inside}/{name}")
            await self._send("POST", f"{inside}/{name}", change)
        await self._send("POST", f"/v1/main/transactions/{begun['transaction-id']}/commit")
        for _, record in planned.values():
            record()

    async def _commit_shared(self) -> None:
        """Change a table that all clients change."""
        updates = [{"action": "set-properties", "updates": {self.namespace: str(self._rng.getrandbits(32))}}]
        await self._send("POST", "/v1/main/namespaces/shared/tables/t", {"requirements": [], "updates": updates})


def _address(server: Server) -> tuple[str, int]:
    parts = urlsplit(server.url)
    assert parts.hostname is not None and parts.port is not None
    return parts.hostname, parts.port


async def _restart(folder: Path, options: list[str], endpoints: Endpoints, results: Results, until: float) -> None:
    """Start the second server and stop it after a few seconds, again and again."""
    rng = random.Random(1)
    for number, how in enumerate(_alternating()):
        if time.monotonic() >= until:
            return
        process = running_server(folder / str(number), *options, env=_ENVIRONMENT)
        server = await asyncio.to_thread(process.__enter__)
        endpoints.restarted = _address(server)
        await asyncio.sleep(min(_RESTART_EVERY_S * rng.uniform(0.3, 1.7), max(0.0, until - time.monotonic())))
        server.process.send_signal(how)
        await asyncio.to_thread(server.process.wait)
        endpoints.restarted = None
        await asyncio.to_thread(process.__exit__, None, None, None)
        results.restarts[how.name] += 1


def _alternating() -> Iterator[signal.Signals]:
    while True:
        yield signal.SIGKILL
        yield signal.SIGTERM


@asynccontextmanager
async def _sampled_memory(process: int, samples: list[float]) -> AsyncIterator[None]:
    page_mib = os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    async def sample() -> None:
        while True:
            samples.append(int(Path(f"/proc/{process}/statm").read_text().split()[1]) * page_mib)
            await asyncio.sleep(_SAMPLE_S)

    task = asyncio.create_task(sample())
    try:
        yield
    finally:
        task.cancel()


async def soak(folder: Path, seconds: float, store: list[str]) -> Results:
    results = Results()
    options = ["--data", str(folder / "data"), *store]
    with running_server(folder / "steady", *options, env=_ENVIRONMENT) as steady:
        endpoints = Endpoints(_address(steady))
        setup = SoakClient(CLIENTS, endpoints, results)
        await setup._send("POST", "/v1/main/namespaces", {"namespace": ["shared"]})
        await setup._send("POST", "/v1/main/namespaces/shared/tables", {"name": "t", "schema": SCHEMA})
        until = time.monotonic() + seconds
        clients = [SoakClient(number, endpoints, results) for number in range(CLIENTS)]
        async with _sampled_memory(steady.process.pid, results.resident_mib):
            await asyncio.gather(
                _restart(folder / "restarted", options, endpoints, results, until),
                *(client.run(until) for client in clients),
            )
    return results


@contextmanager
def _store(kind: str) -> Iterator[list[str]]:
    """The options of `lakepact serve` for this kind of store."""
    if kind == "SQLite":
        yield []
    else:
        with running_postgres() as url:
            yield ["--store", url]


async def run() -> None:
    seconds, rows, failures = Minutes.value * 60, [], []
    for kind in ("SQLite", "PostgreSQL"):
        with tempfile.TemporaryDirectory(prefix="lakepact-soak-") as folder, _store(kind) as options:
            results = await soak(Path(folder), seconds, options)
        memory = results.resident_mib
        rows.append(
            (
                kind,
                f"{results.statuses.total():,}",
                " ".join(f"{status}:{count:,}" for status, count in sorted(results.statuses.items())),
                " ".join(f"{name}:{count}" for name, count in results.restarts.items()),
                f"{memory[0]:.0f} {memory[len(memory) // 3]:.0f} {memory[2 * len(memory) // 3]:.0f} {memory[-1]:.0f}",
                against(results.growth, f"{AIM}", met=results.growth <= AIM),
            )
        )
        failures += [f"{kind}: {failure}" for failure in results.failures]
    table(
        f"soak: {CLIENTS} clients for {seconds / 60:.1f} min, two servers, one of them killed and restarted",
        ("store", "requests", "responses", "restarts", "MiB at 0, 1/3, 2/3, 1", "last third to second"),
        rows,
    )
    for failure in failures[:20]:
        say(f"  {failure}")
    assert not failures, "the soak test found a failure"

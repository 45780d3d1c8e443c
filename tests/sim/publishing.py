"""Simulate open transactions of the catalog that read and then write, and check the isolation they asked for.

The kernel's scenarios end at cells. This one runs the production code of `lakepact.catalog` over the memory stores:
several servers with caches of their own, and clients whose every storage call may be interleaved with those of the
others, as one seed decides. There are no faults and no crashes here; the kernel's scenarios have those.

Clients do what lost updates are made of:

- increment: load a table, read the counter `n`, set it to `n + 1`, under either isolation. Every acknowledged increment
  must be in the counter (P2);
- book: load a table, and if `x + y` is below a limit raise one of the two, serializable. The sum must not go beyond the
  limit (P4): the property that is written is not the only one that was read;
- probe: look up a name that is free, create it and drop it again inside the transaction, then change a table,
  serializable. Such a commit must be refused once somebody else has created the name (P4).

Others change other properties of the same tables outside of all transactions, so that tables move for harmless reasons.

    python -m tests.sim.publishing --seeds 300
"""

from __future__ import annotations

import argparse
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from lakepact import catalog as simulated
from lakepact.catalog.catalog import Catalog
from lakepact.catalog.errors import CommitFailed, NoSuchTable, Refusal
from lakepact.catalog.operations import CatalogSettings, Operations
from lakepact.catalog.overlay import ClosedTransaction
from lakepact.catalog.pointers import Kind
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.work import Call
from lakepact.errors import Contended, SnapshotTooOld
from lakepact.iceberg.parse import parse_table_requirements, parse_table_updates
from lakepact.iceberg.requests import Commit, Identifier
from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.model import Isolation
from lakepact.kernel.ports import Document, DocumentEntry, WriteOutcome
from lakepact.stores.memory import MemoryBlobs, MemoryDocuments
from tests.sim.broken import PromiseBroken
from tests.sim.process import SimClock, SimRng
from tests.sim.scheduler import Scheduler, Task

T = TypeVar("T")

SERVERS: Final = 2
TABLES: Final = ("a", "b")
LIMIT: Final = 3
MOST_STEPS: Final = 400_000
SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}],
}
OVER: Final = (CommitFailed, SnapshotTooOld, ClosedTransaction, Contended)
"""How a transaction ends that others were too fast for. The client gives it up."""


class SharedDocuments:
    """The documents of all servers: before and after each call another task may run."""

    def __init__(self, scheduler: Scheduler, inner: MemoryDocuments) -> None:
        self._scheduler = scheduler
        self._inner = inner

    async def get(self, name: str) -> Document | None:
        return await self._call(lambda: self._inner.get(name))

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        return await self._call(lambda: self._inner.create(name, data))

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        return await self._call(lambda: self._inner.swap(name, token, data))

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        return await self._call(lambda: self._inner.list(prefix, after, limit))

    async def delete(self, name: str) -> None:
        return await self._call(lambda: self._inner.delete(name))

    async def time(self) -> None:
        """There is one clock, the scheduler's."""

    async def close(self) -> None:
        """Nothing to close."""

    async def _call(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await self._scheduler.sleep(0)
        result = await call()
        await self._scheduler.sleep(0)
        return result


class ServerTasks:
    """Child tasks of whatever is running. Background work runs at once, beside everything else."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def all(self, steps: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        return await self._world.scheduler.all(steps)

    def background(self, step: Coroutine[Any, Any, None]) -> None:
        self._world.scheduler.spawn(step, host=None, root=None, ended=self._world)

    async def drain(self) -> None:
        """Nothing waits for background work here."""


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scheduler = Scheduler(self.random, eager=self.random.choice((0.0, 0.3, 0.7)))
        self.counters: Counter[str] = Counter()
        self.failures: list[Exception] = []
        documents, blobs = SharedDocuments(self.scheduler, MemoryDocuments()), MemoryBlobs()
        self.servers = [self._server(documents, blobs) for _ in range(SERVERS)]
        self.increments = dict.fromkeys(TABLES, 0)
        """How many increments of each table's counter were acknowledged."""

        self.name_created = False
        """Whether the name that is probed for was created, and the creation acknowledged."""

    def _server(self, documents: SharedDocuments, blobs: MemoryBlobs) -> Catalog:
        clock, rng, tasks = SimClock(self.scheduler), SimRng(self.random), ServerTasks(self)
        cells = DocumentCells(documents, clock, rng, tasks)
        return Catalog(Warehouse("main", "memory://"), cells, blobs, clock, rng, tasks, CatalogSettings())

    def ended(self, task: Task) -> None:
        if task.failure is not None:
            self.failures.append(task.failure)

    def run(self) -> Counter[str]:
        self._finish(self._furnish())
        clients: list[Coroutine[Any, Any, None]] = []
        for number in range(6):
            table = self.random.choice(TABLES)
            server = self.random.choice(self.servers)
            work = self.random.choice((self._increment, self._increment, self._book, self._probe))
            clients.append(self._client(work, server, table, number))
        clients += [self._bystander(self.random.choice(self.servers), table) for table in TABLES]
        clients.append(self._creator(self.random.choice(self.servers)))
        self._finish(*clients)
        self._finish(self._check())
        return self.counters

    def _finish(self, *steps: Coroutine[Any, Any, None]) -> None:
        for step in steps:
            self.scheduler.spawn(step, host=None, root=None, ended=self)
        if not self.scheduler.run(MOST_STEPS):
            raise PromiseBroken("P6", f"not finished after {MOST_STEPS} steps")
        if self.failures:
            raise self.failures[0]

    # --- what happens ---

    async def _furnish(self) -> None:
        server = self.servers[0]
        await server.create_namespace(self._call(server, "createNamespace"), ("db",), {})
        for table in TABLES:
            await self._create(server, table, {"n": "0", "x": "0", "y": "0"})

    async def _create(self, catalog: Operations, table: str, properties: Mapping[str, str]) -> None:
        # The id comes from the seed: a run is the same every time.
        updates: list[Mapping[str, Any]] = [
            {"action": "assign-uuid", "uuid": str(uuid.UUID(int=self.random.getrandbits(128), version=4))},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-properties", "updates": dict(properties)},
        ]
        await self._commit(catalog, table, updates, [{"type": "assert-create"}])

    async def _client(
        self, work: Callable[[Catalog, str], Coroutine[Any, Any, None]], server: Catalog, table: str, number: int
    ) -> None:
        for _ in range(3):
            await self.scheduler.sleep(self.random.random() * 0.02)
            try:
                await work(server, table)
            except OVER:
                self.counters[f"{work.__name__.strip('_')} given up"] += 1

    async def _increment(self, server: Catalog, table: str) -> None:
        isolation = self.random.choice(list(Isolation))
        transaction = await self._begin(server, isolation)
        inside = server.transactions.overlay(transaction)
        n = int((await self._properties(inside, table))["n"])
        await self._set(inside, table, n=str(n + 1))
        await self._publish(server, transaction)
        self.increments[table] += 1
        self.counters[f"increment {isolation}"] += 1

    async def _book(self, server: Catalog, table: str) -> None:
        transaction = await self._begin(server, Isolation.SERIALIZABLE)
        inside = server.transactions.overlay(transaction)
        now = await self._properties(inside, table)
        if int(now["x"]) + int(now["y"]) >= LIMIT:
            return
        name = self.random.choice("xy")
        await self._set(inside, table, **{name: str(int(now[name]) + 1)})
        await self._publish(server, transaction)
        self.counters["book"] += 1

    async def _probe(self, server: Catalog, table: str) -> None:
        transaction = await self._begin(server, Isolation.SERIALIZABLE)
        inside = server.transactions.overlay(transaction)
        try:
            await inside.table(_identifier("free"))
            return
        except NoSuchTable:
            await self._create(inside, "free", {})
        await inside.drop(self._call(server, "dropTable"), _identifier("free"), Kind.TABLE)
        own = f"own-{transaction}"
        await self._create(inside, own, {})
        await self.scheduler.sleep(self.random.random())
        taken = self.name_created
        await self._publish(server, transaction)
        self.counters["probe"] += 1
        if taken:
            raise PromiseBroken(
                "P4", f"{transaction} saw that the name was free, and was committed after somebody else had created it"
            )

    async def _bystander(self, server: Catalog, table: str) -> None:
        """Moves a table without touching what the others read."""
        for number in range(3):
            await self.scheduler.sleep(self.random.random() * 0.03)
            await self._set(server, table, bystander=str(number))

    async def _creator(self, server: Catalog) -> None:
        await self.scheduler.sleep(self.random.random() * 2)
        await self._create(server, "free", {})
        self.name_created = True

    async def _check(self) -> None:
        for table in TABLES:
            found = await self._properties(self.servers[-1], table)
            if int(found["n"]) != self.increments[table]:
                acknowledged = self.increments[table]
                raise PromiseBroken("P2", f"{acknowledged} increments of {table} acknowledged, {found['n']} counted")
            if int(found["x"]) + int(found["y"]) > LIMIT:
                raise PromiseBroken("P4", f"{table}: x={found['x']}, y={found['y']}, the limit is {LIMIT}")

    # --- requests ---

    def _call(self, server: Operations, operation: str) -> Call:
        return Call(server.new_id(), operation, warehouse="main")

    async def _begin(self, server: Catalog, isolation: Isolation) -> str:
        return (await server.transactions.begin(self._call(server, "begin"), isolation=isolation)).id

    async def _publish(self, server: Catalog, transaction: str) -> None:
        call = Call(server.transactions.overlay(transaction).id, "commit", warehouse="main")
        for _ in range(50):
            try:
                await server.transactions.commit(call)
                return
            except Contended:
                await self.scheduler.sleep(0.01)
        raise PromiseBroken("P6", f"{transaction} could not be committed in 50 attempts")

    async def _properties(self, catalog: Operations, table: str) -> Mapping[str, str]:
        [file] = await catalog.tables([_identifier(table)])
        found: Mapping[str, str] = file.document["properties"]
        return found

    async def _set(self, catalog: Operations, table: str, **updates: str) -> None:
        await self._commit(catalog, table, [{"action": "set-properties", "updates": updates}])

    async def _commit(
        self,
        catalog: Operations,
        table: str,
        updates: Sequence[Mapping[str, Any]],
        requirements: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        commit = Commit(
            _identifier(table), parse_table_requirements(list(requirements)), parse_table_updates(list(updates))
        )
        await catalog.commit_table(self._call(catalog, "commitTable"), commit)


def _identifier(table: str) -> Identifier:
    return Identifier(("db",), table)


def run_seed(seed: int) -> Counter[str]:
    """Run one seed. Return how often each kind of event has happened; raise `PromiseBroken`."""
    return World(seed).run()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.publishing", description="Simulate open transactions.")
    parser.add_argument("--seeds", type=int, default=300, help="how many seeds")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    print(f"simulating {Path(simulated.__file__).parent}")
    total: Counter[str] = Counter()
    for seed in range(options.start, options.start + options.seeds):
        try:
            total += run_seed(seed)
        except (PromiseBroken, Refusal) as broken:
            promise = broken.promise if isinstance(broken, PromiseBroken) else "P9"
            print(f"{promise} is broken in seed {seed}: {broken}")
            print(f"replay it with:  python -m tests.sim.publishing --start {seed} --seeds 1")
            return 1
    print(", ".join(f"{count} {name}" for name, count in sorted(total.items())))
    print("every promise held")
    return 0


if __name__ == "__main__":
    sys.exit(main())

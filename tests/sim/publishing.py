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

import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from lakepact.catalog.catalog import Catalog
from lakepact.catalog.errors import CommitFailed, NoSuchTable
from lakepact.catalog.operations import Operations
from lakepact.catalog.overlay import ClosedTransaction
from lakepact.catalog.pointers import Kind
from lakepact.catalog.work import Call
from lakepact.errors import Contended, SnapshotTooOld
from lakepact.kernel.model import Isolation
from lakepact.stores.memory import MemoryBlobs, MemoryDocuments
from tests.sim.broken import PromiseBroken
from tests.sim.catalog_world import WAREHOUSE, CatalogWorld, identifier, simulate

SERVERS: Final = 2
TABLES: Final = ("a", "b")
LIMIT: Final = 3
OVER: Final = (CommitFailed, SnapshotTooOld, ClosedTransaction, Contended)
"""How a transaction ends that others were too fast for. The client gives it up."""


class World(CatalogWorld):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        documents, blobs = MemoryDocuments(), MemoryBlobs()
        self.servers = [self._server(documents, blobs) for _ in range(SERVERS)]
        self.increments = dict.fromkeys(TABLES, 0)
        """How many increments of each table's counter were acknowledged."""

        self.name_created = False
        """Whether the name that is probed for was created, and the creation acknowledged."""

    def run(self) -> None:
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

    # --- what happens ---

    async def _furnish(self) -> None:
        server = self.servers[0]
        await server.create_namespace(self._call(server, "createNamespace"), ("db",), {})
        for table in TABLES:
            await self._create(server, table, {"n": "0", "x": "0", "y": "0"})

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
            await inside.table(identifier("free"))
            return
        except NoSuchTable:
            await self._create(inside, "free", {})
        await inside.drop(self._call(server, "dropTable"), identifier("free"), Kind.TABLE)
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

    async def _begin(self, server: Catalog, isolation: Isolation) -> str:
        return (await server.transactions.begin(self._call(server, "begin"), isolation=isolation)).id

    async def _publish(self, server: Catalog, transaction: str) -> None:
        call = Call(server.transactions.overlay(transaction).id, "commit", warehouse=WAREHOUSE)
        for _ in range(50):
            try:
                await server.transactions.commit(call)
                return
            except Contended:
                await self.scheduler.sleep(0.01)
        raise PromiseBroken("P6", f"{transaction} could not be committed in 50 attempts")

    async def _properties(self, catalog: Operations, table: str) -> Mapping[str, str]:
        [file] = await catalog.tables([identifier(table)])
        found: Mapping[str, str] = file.document["properties"]
        return found

    async def _set(self, catalog: Operations, table: str, **updates: str) -> None:
        await self._commit(catalog, table, [{"action": "set-properties", "updates": updates}])


def run_seed(seed: int) -> World:
    """Run one seed to its end. Raise `PromiseBroken` if a promise is broken."""
    world = World(seed)
    world.run()
    return world


def main(arguments: Sequence[str] | None = None) -> int:
    return simulate("tests.sim.publishing", "open transactions", run_seed, arguments, 300)


if __name__ == "__main__":
    sys.exit(main())

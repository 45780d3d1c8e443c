"""Simulate requests that create tables and views at locations that contain one another, and check that none overlap.

Several servers create tables at chosen locations, at locations that the catalog chooses, in open transactions and by a
move, and restore dropped tables whose locations are free. Each storage call of one may come between two of another.
Whatever the order, at the end no table's location contains that of another table or of a view (P4: the requests have
one order, and in every order the later one of two that overlap is refused).

    python -m tests.sim.locations --seeds 300
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Sequence
from itertools import permutations
from typing import Any, Final, TypeAlias

from lakepact.catalog.announced import announce, owner_of
from lakepact.catalog.catalog import Catalog
from lakepact.catalog.errors import Refusal
from lakepact.catalog.overlaps import Folders
from lakepact.catalog.pointers import Kind, Pointer
from lakepact.errors import Contended, SnapshotTooOld
from lakepact.iceberg.requests import CreateView
from lakepact.kernel.model import Isolation
from lakepact.stores.memory import MemoryBlobs, MemoryDocuments
from tests.sim.broken import PromiseBroken
from tests.sim.catalog_world import ROOT, SCHEMA, CatalogWorld, identifier, simulate

Request: TypeAlias = Callable[[Catalog, str], Coroutine[Any, Any, None]]

SERVERS: Final = 2
LOCATIONS: Final = ("db", "db/a", "db/a/b", "db/c")
"""`db` contains the folders that the catalog chooses for tables of the namespace."""


class World(CatalogWorld):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        documents, blobs = MemoryDocuments(), MemoryBlobs()
        self.servers = [self._server(documents, blobs) for _ in range(SERVERS)]
        self.longest_pause_s = self.random.choice((0.005, 0.02, 0.1))

    def run(self) -> None:
        self._finish(self._furnish())
        requests = (
            self._create_chosen,
            self._create_chosen,
            self._create_default,
            self._create_in_transaction,
            self._create_view,
            self._move,
            self._undrop,
        )
        # Half of the seeds are about a creation that is published beside one that is not: their races are narrow.
        narrow = [self._create_chosen, self._create_in_transaction]
        some = narrow if self.random.random() < 0.5 else self._some_of(requests)
        clients = [
            self._client(self.random.choice(some), self.random.choice(self.servers), f"t{number}")
            for number in range(self.random.choice((2, 3, 4)))
        ]
        self._finish(*clients)
        self._finish(self._check())

    def _some_of(self, requests: Sequence[Request]) -> Sequence[Request]:
        return self.random.sample(requests, self.random.choice((1, 2, len(requests))))

    # --- requests ---

    async def _furnish(self) -> None:
        server = self.servers[0]
        await server.create_namespace(self._call(server, "createNamespace"), ("db",), {})
        # Two tables that will be moved and restored. The folder of the dropped one is free.
        await self._create(server, "moved", {}, location=f"{ROOT}/elsewhere/moved")
        await self._create(server, "dropped", {}, location=self._location())
        id = (await server.table(identifier("dropped"))).id
        await server.drop(self._call(server, "dropTable"), identifier("dropped"), Kind.TABLE)
        if self.random.random() < 0.5:
            # As a request leaves it whose server has crashed.
            location = self._location()
            key = Folders(server.parts).key(location)
            [cell] = (await server.parts.store.read([key])).values()
            if owner_of(cell.value) is None:
                await announce(server.parts, cell, location)
        now_ms = server.now_ms()
        await server.collect_step(lambda draft: server.dropped.release(draft, id, now_ms))

    async def _client(self, request: Request, server: Catalog, name: str) -> None:
        await self.scheduler.sleep(self.random.random() * self.longest_pause_s)
        kind = request.__name__.strip("_")
        try:
            await request(server, name)
            self.counters[kind] += 1
        except Refusal as refusal:
            self.counters[f"{kind} refused" + (" for an overlap" if "overlaps" in str(refusal) else "")] += 1
        except (Contended, SnapshotTooOld):
            self.counters[f"{kind} given up"] += 1

    async def _create_chosen(self, server: Catalog, name: str) -> None:
        await self._create(server, name, {}, location=self._location())

    async def _create_default(self, server: Catalog, name: str) -> None:
        await self._create(server, name, {})

    async def _create_in_transaction(self, server: Catalog, name: str) -> None:
        isolation = self.random.choice(list(Isolation))
        transaction = (await server.transactions.begin(self._call(server, "begin"), isolation=isolation)).id
        location = self._location() if self.random.random() < 0.8 else None
        await self._create(server.transactions.overlay(transaction), name, {}, location=location)
        call = self._call(server, "commit", transaction)
        if self.random.random() < 0.3:
            await server.transactions.prepare(call)
        await server.transactions.commit(call)

    async def _create_view(self, server: Catalog, name: str) -> None:
        version = {
            "version-id": 1,
            "timestamp-ms": server.now_ms(),
            "schema-id": 0,
            "summary": {},
            "default-namespace": ["db"],
            "representations": [{"type": "sql", "sql": "select 1", "dialect": "spark"}],
        }
        request = CreateView(name, self._location(), SCHEMA, version, {})
        await server.create_view(self._call(server, "createView"), ("db",), request)

    async def _move(self, server: Catalog, name: str) -> None:
        await self._commit(server, "moved", [{"action": "set-location", "location": self._location()}])

    async def _undrop(self, server: Catalog, name: str) -> None:
        await server.undrop(self._call(server, "undrop"), identifier("dropped"))

    def _location(self) -> str:
        return f"{ROOT}/{self.random.choice(LOCATIONS)}"

    # --- checks ---

    async def _check(self) -> None:
        server = self.servers[-1]
        keys, scan = server.parts.keys, server.parts.store.scan
        cells = [
            cell for family in ("tables", "views") for cell in (await scan(keys.all_pointers(family), None, 100)).cells
        ]
        pointers = [Pointer.from_json(cell.value) for cell in cells if cell.value is not None]
        for outer, inner in permutations(pointers, 2):
            if outer.kind is Kind.TABLE and f"{inner.location}/".startswith(f"{outer.location}/"):
                raise PromiseBroken(
                    "P4", f"{inner.kind} {inner.location} is inside the location of a table, {outer.location}"
                )


def run_seed(seed: int) -> World:
    """Run one seed to its end. Raise `PromiseBroken` if a promise is broken."""
    world = World(seed)
    world.run()
    return world


def main(arguments: Sequence[str] | None = None) -> int:
    return simulate("tests.sim.locations", "locations that contain one another", run_seed, arguments, 300)


if __name__ == "__main__":
    sys.exit(main())

"""Simulate catalogs that are restored from a backup while the files of the lost store stay in the warehouse.

Each seed is a chain of eras. In an era several servers commit changes, with a store of their own; a backup is taken in
the middle, and what is committed afterwards is lost: the servers stop at some step, and the backup is restored into an
empty store. The next era goes on from there, with a higher generation. Requests of the lost future are sent again with
their keys, and its tables are registered from their metadata files. Receipts are written in the background or not at
all, so that some are left to the reconciler. Backup, restore, reconciler and garbage collection are the production
code.

At the end:

- every change of the last era has its own receipt, with its generation (P5);
- no receipt tells of a change that did not happen (P9);
- receipts and metadata files of earlier eras are as they were (P5);
- of the receipts of one table, that of its last change has the highest generation and revision (P4);
- a key whose record is in the backup is a replay (P3);
- the files of every table are there and have the content that the pointer says, also after garbage collection (P8).

    python -m tests.sim.restores --seeds 100
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson
from structlog.testing import capture_logs

from lakepact.catalog.catalog import Catalog
from lakepact.catalog.errors import Refusal
from lakepact.catalog.files import digest_of
from lakepact.catalog.operations import CatalogSettings
from lakepact.catalog.pointers import Kind, Pointer
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.watch import Watch
from lakepact.errors import Contended
from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.keys import segments_of
from lakepact.kernel.model import State, Transaction, Write
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import AsyncioTasks
from lakepact.stores.memory import MemoryBlobs, MemoryDocuments
from lakepact.upkeep import restore
from lakepact.upkeep.backup import save
from lakepact.upkeep.collection import CollectorSettings
from lakepact.upkeep.collection.collector import Collector
from lakepact.upkeep.collection.removal import Class, Report
from lakepact.upkeep.receipts import Receipts
from lakepact.upkeep.reconcile import Depth, Reconciler
from tests.sim.broken import PromiseBroken
from tests.sim.catalog_world import MOST_STEPS, ROOT, WAREHOUSE, CatalogWorld, identifier, simulate
from tests.sim.process import SimClock, SimRng
from tests.sim.scheduler import Task

SERVERS: Final = 2
NAMES: Final = tuple("abcd")
KINDS: Final = ("create", "set", "set", "rename", "rename", "drop", "undrop", "namespace", "register")
EVENTS: Final = "_catalog/events/"
_WITHOUT_RECEIPTS: Final = ("markNamespace", "restore")

Request: TypeAlias = Callable[[Catalog, TransactionId], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Change:
    """A change that needs a receipt, as the simulation reads it from the record of a committed transaction."""

    transaction_id: str
    id: str
    change: str
    generation: int


@dataclass(frozen=True, slots=True)
class Era:
    """What was committed to one store, from its restore to its loss."""

    changes: frozenset[Change]
    last: Mapping[str, tuple[int, str]]
    """Of each table or namespace that was changed: the last revision, and the transaction that made it."""


class AsyncioClock(SimClock):
    """The simulated time, for code that runs on asyncio and alone: it passes while that code waits."""

    async def sleep(self, seconds: float) -> None:
        self._scheduler.now += seconds
        await asyncio.sleep(0)


class WritesReceipts(Watch):
    """Writes the receipts of a server, unless it is lucky or has crashed before."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.receipts: Receipts | None = None

    async def committed(self, transaction: Transaction) -> None:
        if self.receipts is not None and self._world.random.random() < 0.5:
            await self.receipts.write(transaction.id, transaction.writes, transaction.answer)
            self._world.counters["receipt in the background"] += 1


class World(CatalogWorld):
    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed)
        self._folder = folder
        self.blobs = MemoryBlobs()
        self.documents = MemoryDocuments()
        self.restored = restore.Restored()
        self.backups: list[tuple[Path, frozenset[str]]] = []
        """Backups, and the keys of requests whose records are in them."""

        self.eras: list[Era] = []
        self.files: dict[str, bytes] = {}
        """Receipts and metadata files of earlier eras."""

        self.sent: dict[TransactionId, Request] = {}
        """Requests that may be sent again."""

        self.answered: frozenset[str] = frozenset()
        """Keys that must be replayed: their records are in the store."""

        self.lost: list[Pointer] = []
        """Tables as they were at the end of an earlier era."""

    def run(self) -> None:
        eras = self.random.choice((2, 2, 3))
        for number in range(eras):
            self._open()
            if number == 0:
                self._finish(self._furnish(self.servers[0]))
            self._finish(*self._clients())
            if number + 1 == eras:
                break
            if self.random.random() < 0.5:
                self._alone(self._reconcile)
            self._alone(self._back_up)
            # What comes now is lost. The servers stop in the middle of it, or when it is done.
            crash = self.random.random() < 0.5
            ended = self._run(self._clients(), self.random.randrange(20, 400) if crash else MOST_STEPS)
            self.counters["crash" if not ended else "loss without a crash"] += 1
            if ended and self.random.random() < 0.7:
                self._alone(self._reconcile)
            self._alone(self._lose)
        self._alone(self._reconcile)
        self._alone(self._end_era)
        self._alone(self._check)
        self._alone(self._collect)
        self._alone(self._check_files)

    # --- an era ---

    def _open(self) -> None:
        """Start servers on the store of this era. What earlier ones had under way is gone."""
        for event in (*self.scheduler.pool, *(timer[2] for timer in self.scheduler.sleeping())):
            if isinstance(event, Task):
                event.bury()
        now = self.scheduler.now
        self.scheduler = self._new_scheduler()
        self.scheduler.now = now + 1.0
        self.servers = []
        for _ in range(SERVERS):
            watch = WritesReceipts(self)
            server = self._server(self.documents, self.blobs, self._settings(), watch)
            parts = server.parts
            watch.receipts = Receipts({WAREHOUSE: server}, parts.store, parts.clock, parts.tasks)
            self.servers.append(server)

    def _settings(self) -> CatalogSettings:
        return CatalogSettings(generation=self.restored.generation, restored_ms=self.restored.ended_ms)

    async def _furnish(self, server: Catalog) -> None:
        await server.create_namespace(self._call(server, "createNamespace"), ("db",), {})
        for name in NAMES[:2]:
            await self._create(server, name, {})

    def _clients(self) -> list[Coroutine[Any, Any, None]]:
        return [self._client(self.random.choice(self.servers)) for _ in range(2)]

    async def _client(self, server: Catalog) -> None:
        for _ in range(self.random.randrange(3, 6)):
            await self.scheduler.sleep(self.random.random() * 0.05)
            key = server.new_id()
            request = self._request(server)
            if self.sent and self.random.random() < 0.2:
                key = self.random.choice(list(self.sent))
                request = self.sent[key]
            self.sent[key] = request
            try:
                await request(server, key)
                self.counters["request"] += 1
            except (Refusal, Contended):
                self.counters["request refused"] += 1

    def _request(self, server: Catalog) -> Request:
        kind = self.random.choice(
            ("create", "set", "set", "rename", "rename", "drop", "undrop", "namespace", "register")
        )
        name, other, purge = self.random.choice(NAMES), self.random.choice(NAMES), self.random.random() < 0.5
        id, value = self._new_uuid(), str(self.random.random())
        lost = self.random.choice(self.lost) if self.lost else None

        async def request(server: Catalog, key: TransactionId) -> None:
            match kind:
                case "create":
                    await self._create(server, name, {}, id=id, key=key)
                case "set":
                    updates = [{"action": "set-properties", "updates": {"p": value}}]
                    await self._commit(server, name, updates, key=key)
                case "rename":
                    call = self._call(server, "renameTable", key)
                    await self._replayed(key, server.rename(call, identifier(name), identifier(other), Kind.TABLE))
                case "drop":
                    call = self._call(server, "dropTable", key)
                    await self._replayed(key, server.drop(call, identifier(name), Kind.TABLE, purge=purge))
                case "undrop":
                    await self._replayed(key, server.undrop(self._call(server, "undrop", key), identifier(name)))
                case "namespace":
                    levels, call = (f"n{name}",), self._call(server, "namespace", key)
                    if purge:
                        await self._replayed(key, server.drop_namespace(call, levels))
                    else:
                        await self._replayed(key, server.create_namespace(call, levels, {}))
                case "register" if lost is not None:
                    call, location = self._call(server, "registerTable", key), lost.metadata_location
                    await server.register_table(call, identifier(name), location, overwrite=False)
                    self.counters["lost table registered"] += 1

        return request

    async def _replayed(self, key: TransactionId, request: Awaitable[Any]) -> None:
        done = await request
        if key in self.answered:
            self.counters["replay of a request in the backup"] += 1
            if not done.replayed:
                raise PromiseBroken("P3", f"request {key} is in the backup, and was applied again after the restore")

    # --- alone: backup, loss, restore, maintenance ---

    def _alone(self, step: Callable[[Catalog, DocumentCells], Coroutine[Any, Any, None]]) -> None:
        """Run this on asyncio, with the store of this era to itself. It takes a second."""

        async def run() -> None:
            clock, rng, tasks = AsyncioClock(self.scheduler), SimRng(self.random), AsyncioTasks()
            cells = DocumentCells(self.documents, clock, rng, tasks)
            settings = self._settings()
            catalog = Catalog(Warehouse(WAREHOUSE, ROOT), cells, self.blobs, clock, rng, tasks, settings)
            await step(catalog, cells)

        self.scheduler.now += 1.0
        asyncio.run(run())

    async def _back_up(self, catalog: Catalog, cells: DocumentCells) -> None:
        path = self._folder / f"{len(self.backups)}.gz"
        await save(cells, path, catalog.parts.clock, catalog.parts.rng, shows_the_past=False)
        records = [one async for one in _committed(cells)]
        self.backups.append((path, frozenset(one.id for one in records) | self.answered))

    async def _lose(self, catalog: Catalog, cells: DocumentCells) -> None:
        """The store is lost, and a backup is restored into an empty one: usually the last backup."""
        await self._end_era(catalog, cells)
        async for pointer in _tables(catalog):
            self.lost.append(pointer)
        async for name, data in _listed(self.blobs, ""):
            if "/committed/" in name or name.endswith(".metadata.json"):
                self.files[name] = data
        path, self.answered = self.random.choice([*self.backups, self.backups[-1]])
        self.documents = MemoryDocuments()
        parts = catalog.parts
        empty = DocumentCells(self.documents, parts.clock, parts.rng, parts.tasks)
        await restore.load(empty, path, KernelSettings(), parts.clock, parts.rng)
        self.restored = await restore.check_complete(empty)
        self.counters["restore" if path == self.backups[-1][0] else "restore of an older backup"] += 1

    async def _end_era(self, catalog: Catalog, cells: DocumentCells) -> None:
        changes: set[Change] = set()
        last: dict[str, tuple[int, str]] = {}
        async for record in _committed(cells):
            if (record.answer or {}).get("operation") in _WITHOUT_RECEIPTS:
                continue
            for write in record.writes:
                if (found := _change_of(write)) is None:
                    continue
                id, change = found
                changes.add(Change(record.id, id, change, self.restored.generation))
                last[id] = max(last.get(id, (0, "")), (write.revision + 1, record.id))
        self.eras.append(Era(frozenset(changes), last))

    async def _reconcile(self, catalog: Catalog, cells: DocumentCells) -> None:
        depth = Depth(full=self.random.random() < 0.3)
        report = await Reconciler({WAREHOUSE: catalog}, cells, catalog.parts.clock, catalog.parts.rng, depth).run()
        self.counters["receipt by the reconciler"] += report.written
        self.counters["unchanged for the reconciler"] += report.unchanged

    async def _collect(self, catalog: Catalog, cells: DocumentCells) -> None:
        report = Report()
        await Collector(catalog, CollectorSettings(0.0, 0.0)).run((Class.DROPPED, Class.ABANDONED), report)
        self.counters["file collected"] += sum(one.what.endswith(".metadata.json") for one in report.removals)

    # --- checks ---

    async def _check(self, catalog: Catalog, cells: DocumentCells) -> None:
        for name, data in self.files.items():
            if await self.blobs.get(name) != data:
                raise PromiseBroken("P5", f"{name} is of an earlier era, and was changed or deleted")
        receipts = [orjson.loads(data) async for name, data in _listed(self.blobs, EVENTS) if "/committed/" in name]
        happened = {change for era in self.eras for change in era.changes}
        told = Counter(
            Change(str(one["transaction-id"]), one["id"], one["change"], one["generation"]) for one in receipts
        )
        # A version of a restored table whose receipt was missing gets it in the new generation.
        versions = {replace(change, generation=0) for change in happened if change.change in ("create", "commit")}
        for change in told:
            known = change in happened or replace(change, generation=0) in versions
            if not known and change.transaction_id != "None":
                raise PromiseBroken("P9", f"there is a receipt of a change that did not happen: {change}")
        for change in self.eras[-1].changes:
            if told[change] != 1:
                raise PromiseBroken("P5", f"{told[change]} receipts of {change}")
        for id, (revision, transaction_id) in self.eras[-1].last.items():
            newest = max((one for one in receipts if one["id"] == id), key=_order)
            if newest["transaction-id"] != transaction_id or newest["revision"] != revision:
                raise PromiseBroken(
                    "P4",
                    f"the last change of {id} is revision {revision} by {transaction_id}, and the newest receipt is "
                    f"revision {newest['revision']} by {newest['transaction-id']}",
                )
        await self._check_files(catalog, cells)

    async def _check_files(self, catalog: Catalog, cells: DocumentCells) -> None:
        warehouse = catalog.warehouse
        async for pointer in _tables(catalog):
            data = await self.blobs.get(warehouse.blob_name(pointer.metadata_location))
            if data is None:
                raise PromiseBroken("P8", f"{pointer.metadata_location} is gone, and its table is there")
            if digest_of(data) != pointer.digest:
                raise PromiseBroken("P5", f"{pointer.metadata_location} has other content than its table had committed")


async def _committed(cells: DocumentCells) -> Any:
    after: str | None = None
    while True:
        page = await cells.transactions([State.COMMITTED], after=after, limit=100)
        for record in page.transactions:
            yield record
        if (after := page.after) is None:
            return


async def _tables(catalog: Catalog) -> Any:
    page = await catalog.parts.store.scan(catalog.parts.keys.all_pointers("tables"), None, 1_000)
    for cell in page.cells:
        if cell.value is not None:
            yield Pointer.from_json(cell.value)


async def _listed(blobs: MemoryBlobs, prefix: str) -> Any:
    for entry in await blobs.list(prefix, None, 100_000):
        data = await blobs.get(entry.name)
        assert data is not None
        yield entry.name, data


def _change_of(write: Write) -> tuple[str, str] | None:
    """The table or namespace that a write changes, and how. Independent of `lakepact.catalog.receipts`."""
    _, family, *rest = segments_of(write.key)
    value, revision = write.value, write.revision + 1
    if family == "tables":
        return rest[-1], "drop" if value is None else str(value["change"])
    if family == "namespaces":
        id = "/".join((family, *rest))
        if value is None:
            return id, "drop"
        if value.get("created") == revision:
            return id, "create"
        if value.get("changed") == revision:
            return id, "commit"
    return None


def _order(receipt: Mapping[str, Any]) -> tuple[int, int]:
    return receipt["generation"], receipt["revision"] or 0


def run_seed(seed: int) -> World:
    """Run one seed to its end. Raise `PromiseBroken` if a promise is broken."""
    with tempfile.TemporaryDirectory() as folder, capture_logs():
        world = World(seed, Path(folder))
        world.run()
        return world


def main(arguments: Sequence[str] | None = None) -> int:
    return simulate("tests.sim.restores", "restores of a backup", run_seed, arguments, 100)


if __name__ == "__main__":
    sys.exit(main())

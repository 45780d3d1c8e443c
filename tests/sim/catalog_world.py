"""What the simulations of the catalog have in common: servers over the memory stores, requests, and a command line.

Servers run the production code of `lakepact.catalog`, with caches of their own. Every storage call of one may be
interleaved with those of the others, as one seed decides.
"""

from __future__ import annotations

import argparse
import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final, TypeVar

from lakepact import catalog as simulated
from lakepact.catalog.catalog import Catalog
from lakepact.catalog.errors import Refusal
from lakepact.catalog.operations import CatalogSettings, Operations
from lakepact.catalog.warehouse import Warehouse
from lakepact.catalog.watch import Watch
from lakepact.catalog.work import Call
from lakepact.errors import LakepactError
from lakepact.iceberg.parse import parse_table_requirements, parse_table_updates
from lakepact.iceberg.requests import Commit, Identifier
from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.identity import TransactionId
from lakepact.kernel.ports import BlobStore, Document, DocumentEntry, WriteOutcome
from lakepact.stores.memory import MemoryDocuments
from tests.sim.broken import PromiseBroken
from tests.sim.process import SimClock, SimRng
from tests.sim.scheduler import Scheduler, Task

T = TypeVar("T")

WAREHOUSE: Final = "main"
ROOT: Final = "memory://"
MOST_STEPS: Final = 400_000
SCHEMA: Final = {
    "type": "struct",
    "schema-id": 0,
    "fields": [{"id": 1, "name": "id", "required": True, "type": "long"}],
}


class SharedDocuments:
    """The documents of all servers: before and after each call another task may run."""

    def __init__(self, scheduler: Scheduler, inner: MemoryDocuments, calls: list[str]) -> None:
        """`calls` gets a line for every call, in the order in which the store sees them."""
        self._scheduler = scheduler
        self._inner = inner
        self._calls = calls

    async def get(self, name: str) -> Document | None:
        return await self._call(f"get {name}", lambda: self._inner.get(name))

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        return await self._call(f"create {name}", lambda: self._inner.create(name, data))

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        return await self._call(f"swap {name}", lambda: self._inner.swap(name, token, data))

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        return await self._call(f"list {prefix}", lambda: self._inner.list(prefix, after, limit))

    async def delete(self, name: str) -> None:
        return await self._call(f"delete {name}", lambda: self._inner.delete(name))

    async def time(self) -> None:
        """There is one clock, the scheduler's."""

    async def close(self) -> None:
        """Nothing to close."""

    async def _call(self, name: str, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        await self._scheduler.sleep(0)
        self._calls.append(name)
        result = await call()
        await self._scheduler.sleep(0)
        return result


class ServerTasks:
    """Child tasks of whatever is running. Background work runs at once, beside everything else."""

    def __init__(self, world: CatalogWorld) -> None:
        self._world = world

    async def all(self, steps: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        return await self._world.scheduler.all(steps)

    def background(self, step: Coroutine[Any, Any, None]) -> None:
        self._world.scheduler.spawn(step, host=None, root=None, ended=self._world)

    async def drain(self) -> None:
        """Nothing waits for background work here."""


class CatalogWorld:
    """One seed: a scheduler, and what the servers and clients of a simulation need."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.scheduler = self._new_scheduler()
        self.counters: Counter[str] = Counter()
        self.failures: list[Exception] = []
        self.calls: list[str] = []

    def _new_scheduler(self) -> Scheduler:
        return Scheduler(self.random, eager=self.random.choice((0.0, 0.3, 0.7)))

    def _server(
        self,
        documents: MemoryDocuments,
        blobs: BlobStore,
        settings: CatalogSettings | None = None,
        watch: Watch | None = None,
    ) -> Catalog:
        clock, rng, tasks = SimClock(self.scheduler), SimRng(self.random), ServerTasks(self)
        cells = DocumentCells(SharedDocuments(self.scheduler, documents, self.calls), clock, rng, tasks)
        settings = settings or CatalogSettings()
        return Catalog(Warehouse(WAREHOUSE, ROOT), cells, blobs, clock, rng, tasks, settings, watch=watch)

    def ended(self, task: Task) -> None:
        if task.failure is not None:
            self.failures.append(task.failure)

    def _finish(self, *steps: Coroutine[Any, Any, None]) -> None:
        if not self._run(steps, MOST_STEPS):
            raise PromiseBroken("P6", f"not finished after {MOST_STEPS} steps")

    def _run(self, steps: Sequence[Coroutine[Any, Any, None]], most_steps: int) -> bool:
        """Run these tasks side by side. Return whether all have ended."""
        for step in steps:
            self.scheduler.spawn(step, host=None, root=None, ended=self)
        ended = self.scheduler.run(most_steps)
        if self.failures:
            raise self.failures[0]
        return ended

    # --- requests ---

    def _call(self, server: Operations, operation: str, key: TransactionId | None = None) -> Call:
        """A request; with a key, one that may be sent again."""
        if key is None:
            return Call(server.new_id(), operation, warehouse=WAREHOUSE)
        return Call(key, operation, keyed=True, request_hash=f"{operation} {key}", warehouse=WAREHOUSE)

    def _new_uuid(self) -> str:
        """An id that comes from the seed: a run is the same every time."""
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    async def _create(
        self,
        catalog: Operations,
        table: str,
        properties: Mapping[str, str],
        *,
        location: str | None = None,
        id: str | None = None,
        key: TransactionId | None = None,
    ) -> None:
        updates: list[Mapping[str, Any]] = [
            {"action": "assign-uuid", "uuid": id or self._new_uuid()},
            {"action": "upgrade-format-version", "format-version": 2},
            {"action": "add-schema", "schema": SCHEMA},
            {"action": "set-current-schema", "schema-id": -1},
            {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
            {"action": "set-default-spec", "spec-id": -1},
            {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
            {"action": "set-default-sort-order", "sort-order-id": -1},
            {"action": "set-properties", "updates": dict(properties)},
        ]
        if location is not None:
            updates.append({"action": "set-location", "location": location})
        await self._commit(catalog, table, updates, [{"type": "assert-create"}], key=key)

    async def _commit(
        self,
        catalog: Operations,
        table: str,
        updates: Sequence[Mapping[str, Any]],
        requirements: Sequence[Mapping[str, Any]] = (),
        *,
        key: TransactionId | None = None,
    ) -> None:
        commit = Commit(
            identifier(table), parse_table_requirements(list(requirements)), parse_table_updates(list(updates))
        )
        await catalog.commit_table(self._call(catalog, "commitTable", key), commit)


def identifier(table: str) -> Identifier:
    return Identifier(("db",), table)


def simulate(
    module: str, what: str, run_seed: Callable[[int], CatalogWorld], arguments: Sequence[str] | None, seeds: int
) -> int:
    """The command line of a simulation: many seeds, and for a failure the command that replays it."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=f"Simulate {what}.")
    parser.add_argument("--seeds", type=int, default=seeds, help="how many seeds")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    options = parser.parse_args(arguments)
    print(f"simulating {Path(simulated.__file__).parent}")
    total: Counter[str] = Counter()
    trace = hashlib.sha256()
    for seed in range(options.start, options.start + options.seeds):
        try:
            world = run_seed(seed)
            total += world.counters
            trace.update("\n".join(world.calls).encode())
        except (PromiseBroken, Refusal, LakepactError) as broken:
            promise = broken.promise if isinstance(broken, PromiseBroken) else "P9"
            print(f"{promise} is broken in seed {seed}: {broken}")
            print(f"replay it with:  python -m {module} --start {seed} --seeds 1")
            return 1
    print(", ".join(f"{count} {name}" for name, count in sorted(total.items())))
    print(f"storage calls: {trace.hexdigest()}")
    print("every promise held")
    return 0

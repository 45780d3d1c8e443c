"""A small world for unit tests of the kernel: the shipped memory store, a clock that is set by hand, seeded chance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.identity import TransactionId, uuid7
from lakepact.kernel.ports import DocumentStore
from lakepact.kernel.settings import KernelSettings
from lakepact.runtime import AsyncioTasks
from lakepact.stores.memory import MemoryDocuments

START_MS = 1_800_000_000_000


class HandClock:
    """Time moves when a test says so, and while somebody sleeps."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> int:
        return self.at_ms

    def confirmed_ms(self) -> int:
        return self.at_ms

    def monotonic_s(self) -> float:
        return self.at_ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.at_ms += max(1, int(seconds * 1000))
        await asyncio.sleep(0)

    def pass_s(self, seconds: float) -> None:
        self.at_ms += int(seconds * 1000)


class SeededRng:
    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def uniform(self) -> float:
        return self._random.random()

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class World:
    def __init__(self, documents: DocumentStore | None = None, settings: KernelSettings | None = None) -> None:
        self.documents: Any = documents or MemoryDocuments()
        self.clock = HandClock()
        self.rng = SeededRng()
        self.tasks = AsyncioTasks()
        self.settings = settings or KernelSettings()
        self.cells = self.another_process()

    def another_process(self) -> DocumentCells:
        """The same store seen by a process that remembers nothing."""
        return DocumentCells(self.documents, self.clock, self.rng, self.tasks, self.settings)

    def fresh_id(self) -> TransactionId:
        return uuid7(self.clock.now_ms(), self.rng.bits(74))


def run(claim: Callable[[World], Awaitable[None]], world: World | None = None) -> None:
    async def main() -> None:
        there = world or World()
        await claim(there)
        await there.tasks.drain()

    asyncio.run(main())

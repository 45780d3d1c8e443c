"""Counting rounds: requests sent side by side are one round, whatever their number.

`RoundCounting` holds every request until nothing else can run, then lets all of them through together. The count is
deterministic, so a test can hold the number of rounds of a commit without timing anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from lakepact.kernel.ports import Document, DocumentEntry, DocumentStore, StoreTime, WriteOutcome

T = TypeVar("T")

_TURNS_UNTIL_IDLE = 400
"""Turns of the event loop after which every task is taken to wait for a request; no step here needs as many."""


class RoundCounting:
    """A `DocumentStore` that lets requests through round by round."""

    def __init__(self, inner: DocumentStore) -> None:
        self._inner = inner
        self._waiting: list[asyncio.Future[None]] = []
        self.rounds = 0
        self.requests = 0

    async def get(self, name: str) -> Document | None:
        await self._turn()
        return await self._inner.get(name)

    async def create(self, name: str, data: bytes) -> WriteOutcome:
        await self._turn()
        return await self._inner.create(name, data)

    async def swap(self, name: str, token: str, data: bytes) -> WriteOutcome:
        await self._turn()
        return await self._inner.swap(name, token, data)

    async def list(self, prefix: str, after: str | None, limit: int) -> Sequence[DocumentEntry]:
        await self._turn()
        return await self._inner.list(prefix, after, limit)

    async def delete(self, name: str) -> None:
        await self._turn()
        await self._inner.delete(name)

    async def time(self) -> StoreTime | None:
        return await self._inner.time()

    async def close(self) -> None:
        await self._inner.close()

    async def _turn(self) -> None:
        released = asyncio.get_running_loop().create_future()
        self._waiting.append(released)
        await released

    async def count(self, step: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """Run a step to its answer; its result and how many rounds it took."""
        before = self.rounds
        task = asyncio.ensure_future(step())
        while not task.done():
            await self._let_round_through(until=task)
        return task.result(), self.rounds - before

    async def settle(self) -> None:
        """Let everything that still runs in the background come to its end."""
        while True:
            await _idle()
            if not self._waiting:
                return
            await self._let_round_through()

    async def _let_round_through(self, until: asyncio.Future[T] | None = None) -> None:
        await _idle()
        if until is not None and until.done():
            return
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        self.rounds += 1
        self.requests += len(waiting)
        for released in waiting:
            released.set_result(None)


async def _idle() -> None:
    for _ in range(_TURNS_UNTIL_IDLE):
        await asyncio.sleep(0)

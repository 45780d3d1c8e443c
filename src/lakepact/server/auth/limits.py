"""How often: a token bucket for each caller, in this process. Bounded: of callers that are many, the oldest are let go.

Whoever is let go starts with a full bucket again; to gain by it, an attacker needs as many names as there is room for.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Final

from lakepact.kernel.ports import Clock

MOST_CALLERS: Final = 10_000


class Buckets:
    def __init__(self, per_s: float, burst: float, clock: Clock, *, most: int = MOST_CALLERS) -> None:
        self._per_s = per_s
        self._burst = max(burst, 1.0)
        self._clock = clock
        self._most = most
        self._level: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """What is left in a bucket, and when that was so."""

    def take(self, who: Hashable) -> float:
        """Take one. 0 if there was one, else for how many seconds there will be none, and nothing is taken."""
        now_s = self._clock.monotonic_s()
        left = self._left(who, now_s)
        if left < 1.0:
            return (1.0 - left) / self._per_s
        self._level[who] = (left - 1.0, now_s)
        self._level.move_to_end(who)
        if len(self._level) > self._most:
            self._level.popitem(last=False)
        return 0.0

    def empty_for_s(self, who: Hashable) -> float:
        """For how many seconds there will be none; nothing is taken."""
        left = self._left(who, self._clock.monotonic_s())
        return 0.0 if left >= 1.0 else (1.0 - left) / self._per_s

    def _left(self, who: Hashable, now_s: float) -> float:
        level, then_s = self._level.get(who, (self._burst, now_s))
        return min(self._burst, level + (now_s - then_s) * self._per_s)


class Turns:
    """Lets `at_once` tasks of each key run at a time. The others wait, in the order in which they came."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._keys: dict[Hashable, tuple[asyncio.Semaphore, list[None]]] = {}
        """The semaphore of each key that is in use, and an element for each task that runs or waits."""

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncIterator[None]:
        semaphore, users = self._keys.setdefault(key, (asyncio.Semaphore(self._at_once), []))
        users.append(None)
        try:
            async with semaphore:
                yield
        finally:
            users.pop()
            if not users:
                del self._keys[key]

"""Long work in bounded steps, as the runner wants its jobs: one step a call, and whether there is more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from lakepact.kernel.ports import Clock
from lakepact.upkeep.runner import Job


class Steps:
    """Goes through something step by step. When it has ended, or failed, the next call begins anew."""

    def __init__(self, begin: Callable[[], AsyncIterator[None]]) -> None:
        self._begin = begin
        self._current: AsyncIterator[None] | None = None

    @property
    def under_way(self) -> bool:
        return self._current is not None

    async def next(self) -> bool:
        """One more step: whether there may be more."""
        current, self._current = self._current or self._begin(), None
        try:
            await anext(current)
        except StopAsyncIteration:
            return False
        self._current = current
        return True


def paced(job: Job, clock: Clock, interval_s: float) -> Job:
    """The job, begun no more often than this by this process. What has begun goes on at once until its end."""
    due_s: float | None = None

    async def turn() -> bool:
        nonlocal due_s
        if due_s is not None and clock.monotonic_s() < due_s:
            return False
        more = await job()
        due_s = None if more else clock.monotonic_s() + interval_s
        return more

    return turn

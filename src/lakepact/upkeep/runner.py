"""Does the jobs, again and again, while it holds the lease.

A job is a pass of bounded work that anyone may do, any number of times; it says whether there is more to do. A job that
fails is logged and does not keep the others from their turn. Nothing depends on any of this for being right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from lakepact.delta.ports import DeltaRows
from lakepact.errors import LakepactError
from lakepact.kernel.model import State
from lakepact.kernel.ports import CellStore, Clock, Rng
from lakepact.runtime import BackgroundTask
from lakepact.upkeep.lease import Lease

Job: TypeAlias = Callable[[], Awaitable[bool]]
"""One bounded pass; True if there is more to do."""

MOST_PASSES: Final = 100
"""Of one job in one turn. The rest waits for the next turn, so that every job gets one."""

LEASE_INTERVALS: Final = 3.0
"""A lease lasts for this many intervals: a holder that misses one turn does not lose it."""

_FIRST_TURN_S: Final = 5.0
_RELEASE_WITHIN_S: Final = 2.0

_log = structlog.get_logger(__name__)


def store_jobs(store: CellStore, limit: int = 1_000) -> dict[str, Job]:
    """What every store wants: finish what crashed processes left, and remove what nobody needs."""

    async def recover() -> bool:
        found = await store.recover(limit)
        if found.finished or found.given_up or found.expired:
            # What others have begun, and this process has ended.
            _log.debug(
                "transactions of others were ended",
                finished=found.finished,
                given_up=found.given_up,
                expired=found.expired,
            )
        return found.more

    async def collect() -> bool:
        return (await store.collect(limit)).more

    return {"recover": recover, "collect": collect}


def row_jobs(rows: DeltaRows, limit: int = 100) -> dict[str, Job]:
    """What a store with rows wants: remove those that were written for a commit that never came."""

    async def sweep() -> bool:
        return (await rows.sweep(limit)).more

    return {"sweep": sweep}


def count_job(store: CellStore, on_counted: Callable[[Mapping[str, int]], None], limit: int = 1_000) -> Job:
    """How many transactions are under way, up to a bound. For a store that finds them without reading all others."""

    async def count() -> bool:
        states = (State.OPEN, State.PREPARED)
        on_counted({str(state): len((await store.transactions([state], limit=limit)).transactions) for state in states})
        return False

    return count


@dataclass(frozen=True, slots=True)
class JobRun:
    """One pass of a job."""

    began_ms: int
    seconds: float
    error: str | None = None
    """The type of what it failed with. The log has the rest."""

    def to_json(self) -> dict[str, object]:
        return {"began-ms": self.began_ms, "seconds": round(self.seconds, 3), "error": self.error}


class Runner:
    def __init__(
        self,
        lease: Lease,
        jobs: Mapping[str, Job],
        clock: Clock,
        rng: Rng,
        *,
        interval_s: float,
        on_turn: Callable[[bool], None] = lambda held: None,
    ) -> None:
        """`on_turn` hears of the end of every turn, and whether this process held the lease until then."""
        self._lease = lease
        self._on_turn = on_turn
        self.runs: dict[str, JobRun] = {}
        """The last pass of every job in this process. The lease tells it to the others, each time it is renewed."""

        lease.note = self._note
        self._jobs = dict(jobs)
        self._clock = clock
        self._rng = rng
        self._interval_s = interval_s
        self._task = BackgroundTask(self._run)

    async def turn(self) -> bool:
        """Do every job, if this process holds the lease: whether it does."""
        held = await self._turn()
        self._on_turn(held)
        return held

    async def _turn(self) -> bool:
        for name, job in self._jobs.items():
            for _ in range(MOST_PASSES):
                # Before every pass: a pass may have taken long, and then somebody else goes on.
                if not await self._lease.hold():
                    return False
                began_ms, began_s = self._clock.now_ms(), self._clock.monotonic_s()
                try:
                    more = await job()
                except Exception as error:
                    _log.warning("upkeep failed; the next turn tries again", job=name, error=repr(error))
                    self.runs[name] = JobRun(began_ms, self._clock.monotonic_s() - began_s, type(error).__name__)
                    break
                self.runs[name] = JobRun(began_ms, self._clock.monotonic_s() - began_s)
                _log.debug("upkeep has done a pass", job=name, seconds=round(self.runs[name].seconds, 3), more=more)
                if not more:
                    break
        return True

    def _note(self) -> Mapping[str, object]:
        return {"jobs": {name: run.to_json() for name, run in self.runs.items()}}

    def start(self) -> None:
        """Take turns in the background until `stop`."""
        self._task.start()

    async def stop(self) -> None:
        """End, in the middle of a pass if need be: recovery finishes it. Lets go of the lease."""
        if not await self._task.stop():
            return
        with suppress(LakepactError, TimeoutError):
            async with asyncio.timeout(_RELEASE_WITHIN_S):
                await self._lease.release()

    async def _run(self) -> None:
        # Servers that start together do not reach for the lease together.
        await self._clock.sleep(self._rng.uniform() * min(self._interval_s, _FIRST_TURN_S))
        while True:
            try:
                await self.turn()
            except Exception as error:
                _log.warning("upkeep could not look at its lease; the next turn tries again", error=repr(error))
            await self._clock.sleep(self._interval_s)

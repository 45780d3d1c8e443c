"""Simulated processes: the ports of one process, and what a crash, a restart, a stall and a wrong clock do to it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol, TypeVar

from lakepact.kernel.ports import CellStore, Clock
from lakepact.kernel.trusted_time import TrustedClock
from tests.sim.documents import ProcessDocuments, Request, Storage
from tests.sim.faults import Fate, Faults
from tests.sim.scheduler import Event, Scheduler, Task, suspend

T = TypeVar("T")

EPOCH_MS: Final = 1_767_225_600_000
"""Virtual time begins at the start of a day (2026-01-01), so that short runs stay within one day's partition."""


class Waiting(Protocol):
    """Somebody outside who waits for this process."""

    def crashed(self) -> None: ...


class SimClock:
    """A clock that may be wrong, run fast or slow, and be set while it runs."""

    __slots__ = ("_scheduler", "rate", "skew_s", "wrong_s")

    def __init__(self, scheduler: Scheduler, skew_s: float = 0.0, rate: float = 1.0) -> None:
        self._scheduler = scheduler
        self.skew_s = skew_s
        self.rate = rate
        self.wrong_s = 0.0
        """Far beyond what clocks are usually off: days."""

    def now_ms(self) -> int:
        return EPOCH_MS + int((self._scheduler.now + self.skew_s + self.wrong_s) * 1000)

    def confirmed_ms(self) -> int:
        return self.now_ms()

    def monotonic_s(self) -> float:
        return self._scheduler.now * self.rate

    async def sleep(self, seconds: float) -> None:
        root = self._scheduler.me().root
        if isinstance(root, Sleeper):
            root.slept += 1
        await self._scheduler.sleep(seconds / self.rate)


class Sleeper:
    """Counts how often the work for it has paused: that is how the simulator sees a reader wait."""

    __slots__ = ("slept",)

    def __init__(self) -> None:
        self.slept = 0


class SimRng:
    """Chance, from the one generator of the seed."""

    __slots__ = ("_random",)

    def __init__(self, random: Random) -> None:
        self._random = random

    def uniform(self) -> float:
        return self._random.random()

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class SteadyRng(SimRng):
    """Unique ids, but pauses that are always the same: then schedules that differ only in their order meet again."""

    __slots__ = ()

    def uniform(self) -> float:
        return 0.999


class SimTasks:
    """Child tasks of the process whose task is running."""

    __slots__ = ("_background", "_draining", "_faults", "_running", "_scheduler")

    def __init__(self, scheduler: Scheduler, faults: Faults, background: Background) -> None:
        self._scheduler = scheduler
        self._faults = faults
        self._background = background
        self._running = 0
        self._draining: list[Task] = []

    async def all(self, steps: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        return await self._scheduler.all(steps)

    def background(self, step: Coroutine[Any, Any, None]) -> None:
        scheduler, me = self._scheduler, self._scheduler.me()
        late_s = self._faults.background_late_s(scheduler.random)
        if late_s is None:
            step.close()
            return
        self._running += 1
        task = scheduler.spawn(step, host=me.host, root=me.root, ended=self)
        if late_s:
            scheduler.pool.remove(task)
            scheduler.after(late_s, task)

    async def drain(self) -> None:
        if self._running:
            self._draining.append(self._scheduler.me())
            await suspend()

    def ended(self, task: Task) -> None:
        self._running -= 1
        self._background.ended(task)
        if not self._running:
            for waiting in self._draining:
                waiting.wake()
            self._draining.clear()


class Background(Protocol):
    """Is told how background work ended: errors in it must be honest ones too."""

    def ended(self, task: Task) -> None: ...


@dataclass(frozen=True, slots=True)
class Ports:
    """What a kernel is built from."""

    documents: ProcessDocuments
    clock: Clock
    rng: SimRng
    tasks: SimTasks


BuildCells = Callable[[Ports], CellStore]


class Process:
    """One life of one server process. After a crash a new one takes its place, with cold caches."""

    __slots__ = ("alive", "cells", "clock", "name", "parked", "stalled", "tasks", "trusted", "waiting")

    def __init__(
        self,
        name: str,
        storage: Storage,
        build: BuildCells,
        background: Background,
        clock: SimClock,
        rng: SimRng,
        trusted: TrustedClock | None = None,
    ) -> None:
        self.name = name
        self.alive = True
        self.stalled = False
        self.parked: list[Event] = []
        self.tasks: dict[Task, None] = {}
        self.waiting: dict[Waiting, None] = {}
        self.clock = clock
        self.trusted = trusted
        """What the kernel gets instead of the clock, where the world has evidence of the time."""

        tasks = SimTasks(storage.scheduler, storage.faults, background)
        self.cells = build(Ports(ProcessDocuments(storage), trusted or clock, rng, tasks))

    def __str__(self) -> str:
        return self.name

    def crash(self, storage: Storage) -> list[Task]:
        """Drop everything at whatever await it is; what is in flight stays in flight. Returns the dead tasks."""
        self.alive = False
        dead = list(self.tasks)
        for task in dead:
            task.dead = True
        self.tasks.clear()
        self.parked.clear()
        self._scatter(storage)
        for waiting in list(self.waiting):
            waiting.crashed()
        self.waiting.clear()
        return dead

    def _scatter(self, storage: Storage) -> None:
        """Some of what a dead process had sent never arrives, some arrives much later."""
        scheduler, faults = storage.scheduler, storage.faults
        pool = scheduler.pool
        kept: list[Event] = []
        for event in pool:
            if isinstance(event, Request) and event.host is self:
                chance = scheduler.random.random()
                event.fate = Fate.ANSWER_LOST
                if chance < 0.2:
                    continue
                if chance < 0.5:
                    scheduler.after(faults.lateness_s(scheduler.random), event)
                    continue
            kept.append(event)
        pool[:] = kept

    def stall(self, scheduler: Scheduler, seconds: float) -> None:
        """Nothing of this process runs for a while; its requests in flight go on."""
        self.stalled = True
        scheduler.after(seconds, Resume(self, scheduler))


class Resume:
    __slots__ = ("_process", "_scheduler")

    def __init__(self, process: Process, scheduler: Scheduler) -> None:
        self._process = process
        self._scheduler = scheduler

    def fire(self) -> None:
        process = self._process
        process.stalled = False
        self._scheduler.pool.extend(process.parked)
        process.parked.clear()

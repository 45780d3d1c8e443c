"""Hand-stepped coroutines, virtual time, and one generator that decides everything.

Whatever may happen next lies in the pool: tasks that can go on, requests to be applied, answers to be delivered. A
step takes one of them, chosen by the seed, and lets it happen. Time moves by one tick a step, and jumps to the next
timer when nothing else is left. There is no asyncio, no thread and no real clock here.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Sequence
from heapq import heapify, heappop, heappush
from random import Random
from types import coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Event(Protocol):
    def fire(self) -> None:
        """Let it happen."""
        ...


class Host(Protocol):
    """Whatever tasks run in: they die with it, and do not run while it is stalled."""

    stalled: bool
    parked: list[Event]
    tasks: dict[Task, None]


class Ended(Protocol):
    def ended(self, task: Task) -> None:
        """Called once, when the task has returned or raised."""
        ...


@coroutine
def suspend() -> Generator[None, Any, Any]:
    """Give control to the scheduler; whoever wakes the task says what this returns or raises."""
    return (yield)


class Scheduler:
    __slots__ = ("_sequence", "_timers", "current", "eager", "now", "pool", "random", "steps", "stopped", "tick_s")

    def __init__(self, random: Random, *, eager: float = 0.0, tick_s: float = 0.0005) -> None:
        self.random = random
        self.eager = eager
        """How often the newest event goes first: it lets one task run ahead while the others stand still."""

        self.tick_s = tick_s
        self.now = 0.0
        self.steps = 0
        self.pool: list[Event] = []
        self.stopped = False
        self.current: Task | None = None
        self._timers: list[tuple[float, int, Event]] = []
        self._sequence = 0

    # --- what may happen ---

    def soon(self, event: Event) -> None:
        self.pool.append(event)

    def at(self, instant: float, event: Event) -> None:
        self._sequence += 1
        heappush(self._timers, (instant, self._sequence, event))

    def after(self, delay_s: float, event: Event) -> None:
        self.at(self.now + delay_s, event)

    def spawn(
        self, steps: Coroutine[Any, Any, Any], *, host: Host | None, root: object, ended: Ended | None = None
    ) -> Task:
        task = Task(self, steps, host, root, ended)
        if host is not None:
            host.tasks[task] = None
        self.pool.append(task)
        return task

    def me(self) -> Task:
        """The task that is running: ports are only ever called from one."""
        assert self.current is not None, "a port was called from outside of every task"
        return self.current

    async def sleep(self, seconds: float) -> None:
        self.at(self.now + (seconds if seconds > 0 else 0.0), self.me())
        await suspend()

    async def all(self, steps: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """Run the steps as child tasks; when every one has ended, their results, or the first error in order."""
        if len(steps) == 1:
            return [await steps[0]]
        if not steps:
            return []
        parent = self.me()
        group = Group(parent, len(steps))
        children = [self.spawn(step, host=parent.host, root=parent.root, ended=group) for step in steps]
        await suspend()
        results: list[T] = []
        for child in children:
            if child.failure is not None:
                raise child.failure
            results.append(child.result)
        return results

    # --- letting it happen ---

    def sleeping(self) -> list[tuple[float, int, Event]]:
        """What waits for its time, earliest first."""
        return sorted(self._timers, key=lambda timer: timer[:2])

    def wake_early(self, timer: tuple[float, int, Event]) -> None:
        """Let this timer fire next, whatever the others say: clocks of different processes need not agree."""
        self._timers.remove(timer)
        heapify(self._timers)
        self.now = max(self.now, timer[0])
        self.pool.append(timer[2])

    def run(self, max_steps: int) -> bool:
        """Until `stopped` is set or nothing is left to happen (True), or the steps are used up (False)."""
        pool, timers, uniform = self.pool, self._timers, self.random.random
        tick_s, eager = self.tick_s, self.eager
        spread = 1.0 / (1.0 - eager)
        self.stopped = False
        last = self.steps + max_steps
        while self.steps < last:
            if not pool:
                if not timers:
                    return True
                if timers[0][0] > self.now:
                    self.now = timers[0][0]
            else:
                self.now += tick_s
            while timers and timers[0][0] <= self.now:
                pool.append(heappop(timers)[2])
            self.steps += 1
            chance = uniform()
            if chance < eager:
                event = pool.pop()
            else:
                index = int((chance - eager) * spread * len(pool))
                event = pool[index]
                newest = pool.pop()
                if newest is not event:
                    pool[index] = newest
            event.fire()
            if self.stopped:
                return True
        return False


class Task:
    """A coroutine that is stepped by hand."""

    __slots__ = ("_ended", "_scheduler", "_steps", "dead", "error", "failure", "host", "result", "root", "value")

    def __init__(
        self,
        scheduler: Scheduler,
        steps: Coroutine[Any, Any, Any],
        host: Host | None,
        root: object,
        ended: Ended | None,
    ) -> None:
        self._scheduler = scheduler
        self._steps = steps
        self._ended = ended
        self.host = host
        self.root = root
        """What this task works for: the call it serves, or the actor it is."""

        self.value: Any = None
        self.error: BaseException | None = None
        self.result: Any = None
        self.failure: Exception | None = None
        self.dead = False

    def wake(self, value: Any = None) -> None:
        self.value = value
        self._scheduler.pool.append(self)

    def wake_with(self, error: BaseException) -> None:
        self.error = error
        self._scheduler.pool.append(self)

    def fire(self) -> None:
        if self.dead:
            return
        host = self.host
        if host is not None and host.stalled:
            host.parked.append(self)
            return
        self._scheduler.current = self
        try:
            if self.error is not None:
                error, self.error = self.error, None
                self._steps.throw(error)
            else:
                value, self.value = self.value, None
                self._steps.send(value)
            return
        except StopIteration as stop:
            self.result = stop.value
        except Exception as failure:
            self.failure = failure
        finally:
            self._scheduler.current = None
        self.dead = True
        if host is not None:
            del host.tasks[self]
        if self._ended is not None:
            self._ended.ended(self)

    def bury(self) -> None:
        """Free the coroutine of a task that died, once nobody minds what its `finally` blocks do."""
        try:
            self._steps.close()
        except RuntimeError:
            # A `finally` block awaited something. A process that was killed would not have run it either.
            return


class Group:
    """Wakes a parent when its last child has ended."""

    __slots__ = ("_left", "_parent")

    def __init__(self, parent: Task, children: int) -> None:
        self._parent = parent
        self._left = children

    def ended(self, task: Task) -> None:
        self._left -= 1
        if self._left == 0:
            self._parent.wake()

"""The kernel's ports on a real machine: the system clock, the system's randomness, asyncio."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeVar

import structlog

from lakepact.errors import OutOfMemory

T = TypeVar("T")
P = ParamSpec("P")

_PAGE_BYTES: Final = 4_096

_COMPUTE_THREADS: Final = 2
"""Computations compete for the interpreter lock. More of them at once would take more memory and no less time."""

_compute = ThreadPoolExecutor(_COMPUTE_THREADS, thread_name_prefix="lakepact-compute")

_log = structlog.get_logger(__name__)


async def off_loop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a long computation in a worker thread, so that the event loop goes on serving.

    For work whose cost grows with what a client sent. It must not touch state that the event loop changes meanwhile.
    """
    loop = asyncio.get_running_loop()
    result = await loop.run_in_executor(_compute, lambda: _computed(lambda: function(*args, **kwargs)))
    if isinstance(result, _MemoryFailure):
        raise result.kind(*result.args)
    return result


@dataclass(frozen=True, slots=True)
class _MemoryFailure:
    kind: type[Exception]
    args: tuple[object, ...]


def _computed(function: Callable[[], T]) -> T | _MemoryFailure:
    """Call the function. Return a lack of memory instead of raising it.

    The traceback of such an exception holds what was computed so far. While it is alive, there may not be enough memory
    to hand the exception to the event loop, and the caller would wait for ever.
    """
    try:
        return function()
    except (MemoryError, OutOfMemory) as error:
        failure = type(error), error.args
    return _MemoryFailure(*failure)


class BackgroundTask:
    """A coroutine that runs from `start` until `stop` or until it ends."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._run = run
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> bool:
        """Cancel it and wait for its end. False if it was not started."""
        if self._task is None:
            return False
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        self._task = None
        return True


class SystemClock:
    """This machine's clock. It confirms itself: where ages decide, a `TrustedClock` goes around it."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def confirmed_ms(self) -> int:
        return self.now_ms()

    def monotonic_s(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemRng:
    """The system's randomness, fetched by the page: every call to the system lets other threads go first."""

    def __init__(self) -> None:
        self._page = b""
        self._used = 0
        self._process = 0

    def uniform(self) -> float:
        return random.random()

    def bits(self, count: int) -> int:
        size = (count + 7) // 8
        # A forked process must not go on with its parent's page.
        if self._used + size > len(self._page) or self._process != os.getpid():
            self._page, self._used, self._process = os.urandom(max(_PAGE_BYTES, size)), 0, os.getpid()
        taken = self._page[self._used : self._used + size]
        self._used += size
        return int.from_bytes(taken) >> (size * 8 - count)


class AsyncioTasks:
    def __init__(self) -> None:
        # The event loop keeps only weak references to tasks, so background work is held here until it ends.
        self._background: set[asyncio.Task[None]] = set()

    async def all(self, steps: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        if len(steps) == 1:
            return [await steps[0]]
        results = await asyncio.gather(*steps, return_exceptions=True)
        done: list[T] = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            done.append(result)
        return done

    def background(self, step: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(step)
        self._background.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.warning("background work failed; recovery will finish it", error=repr(task.exception()))

    async def drain(self) -> None:
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)

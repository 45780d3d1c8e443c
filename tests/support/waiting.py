"""Waiting for a condition, with a limit that a busy machine does not reach.

A test never assumes how long something takes. `PATIENCE_S` is the limit for whatever takes seconds on an idle machine:
requests, starts and ends of processes, work in the background. Reaching it means that the event never comes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE_S: Final = 240.0
_POLL_S: Final = 0.05


def wait_until(condition: Callable[[], T], otherwise: str | Callable[[], str] = "the condition never held") -> T:
    """Return the first true value of `condition`. Raise `AssertionError` with `otherwise` after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, _text(otherwise)
        time.sleep(_POLL_S)
    return value


async def wait_until_async(
    condition: Callable[[], Awaitable[T]], otherwise: str | Callable[[], str] = "the condition never held"
) -> T:
    """The same for a coroutine function, on the event loop."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := await condition()):
        assert time.monotonic() < deadline, _text(otherwise)
        await asyncio.sleep(_POLL_S)
    return value


def _text(otherwise: str | Callable[[], str]) -> str:
    return otherwise if isinstance(otherwise, str) else otherwise()

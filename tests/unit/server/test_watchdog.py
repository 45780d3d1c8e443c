"""How long an event loop paused."""

from __future__ import annotations

import asyncio
import time

from lakepact.server.watchdog import LongestPause, Watchdog


def test_the_longest_pause_is_forgotten_after_two_periods() -> None:
    pauses = LongestPause(60.0)
    assert pauses.add(0.5, 1_000.0) == 0.5
    assert pauses.add(3.0, 1_030.0) == 3.0
    assert pauses.add(0.1, 1_061.0) == 3.0
    assert pauses.add(0.2, 1_100.0) == 3.0
    assert pauses.add(0.1, 1_122.0) == 0.2
    assert pauses.add(0.1, 9_000.0) == 0.1


async def test_a_pause_of_the_event_loop_is_measured() -> None:
    measured: list[float] = []
    watchdog = Watchdog(0, on_beat=measured.append)
    watchdog.start()
    began = time.monotonic()
    while time.monotonic() - began < 1.0:
        """The loop is blocked."""
    while len(measured) < 2:
        await asyncio.sleep(0.01)
    watchdog.stop()
    assert measured[-1] >= 0.3

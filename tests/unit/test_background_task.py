"""A background task runs from `start` until `stop`."""

from __future__ import annotations

import asyncio

from lakepact.runtime import BackgroundTask


async def test_a_task_is_cancelled_and_awaited_by_stop() -> None:
    events: list[str] = []
    started = asyncio.Event()

    async def run() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            events.append("ended")

    task = BackgroundTask(run)
    assert not await task.stop(), "it was not started"
    for _ in range(2):
        task.start()
        await started.wait()
        assert await task.stop()
        assert not await task.stop()
        started.clear()
    assert events == ["ended", "ended"]

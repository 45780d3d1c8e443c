"""Reads the evidence for what time it is, and keeps the watermark.

`kernel/trusted_time.py` decides. This module reads the time of the store, reads this machine's uptime, writes the
watermark that the decision wants written, and warns while this machine's clock is not confirmed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

from lakepact.errors import LakepactError
from lakepact.kernel.model import Value
from lakepact.kernel.ports import CellStore
from lakepact.kernel.trusted_time import GRACE_MS, Evidence, Judgement, TrustedClock, Uptime, Watermark, judge
from lakepact.runtime import BackgroundTask

INTERVAL_S: Final = 30.0
"""How often the evidence is read. A clock that is set in between changes nothing until then."""

_WARN_EVERY_S: Final = 600.0
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_UPTIME: Final = Path("/proc/uptime")

_log = structlog.get_logger(__name__)


def machine_uptime(monotonic_s: float, process: str) -> Uptime:
    """How long this machine has been running. Where it does not say, how long this process has."""
    try:
        # Not the monotonic clock: other processes must read the same, and it advances while a machine sleeps.
        return Uptime(_BOOT_ID.read_text().strip(), int(float(_UPTIME.read_text().split()[0]) * 1000))
    except (OSError, ValueError, IndexError):
        return Uptime(f"process {process}", int(monotonic_s * 1000))


class ClockEvidence:
    def __init__(
        self,
        clock: TrustedClock,
        store: CellStore,
        *,
        on_judgement: Callable[[Judgement], None] = lambda judgement: None,
        uptime: Callable[[], Uptime] | None = None,
    ) -> None:
        self._clock = clock
        self._store = store
        self._on_judgement = on_judgement
        self._uptime = uptime or (lambda: machine_uptime(clock.monotonic_s(), f"{os.getpid()}-{id(clock):x}"))
        self._warned_s: float | None = None
        self._task = BackgroundTask(self._run)

    async def read(self, *, writes: bool = True) -> Judgement:
        """Read the evidence and let the clock follow it. `writes`: whether to keep the watermark as well."""
        began_s = self._clock.monotonic_s()
        store_time = await self._store.time()
        independent = store_time is not None and store_time.independent
        stored = None if independent else await self._store.watermark()
        # Read together: time that passes between the two would be missing from the confirmed time.
        clock_ms, read_s = self._clock.machine_ms(), self._clock.monotonic_s()
        waited_ms = int((read_s - began_s) * 1000)
        judgement = judge(
            Evidence(
                clock_ms=clock_ms,
                uptime=self._uptime(),
                # The store read its clock at some time between request and response.
                store_ms=None if store_time is None else store_time.ms + waited_ms // 2,
                store_is_independent=independent,
                watermark=_decoded(stored),
                expected_ms=self._clock.expected_ms(),
                disputed_ms=self._clock.disputed_ms(),
            )
        )
        self._clock.follow(judgement, read_s)
        if writes and judgement.watermark is not None:
            # If another process was faster, its watermark is as good; the next reading compares.
            await self._store.put_watermark(_encoded(judgement.watermark), stored)
        self._on_judgement(judgement)
        self._warn(judgement)
        return judgement

    def start(self) -> None:
        """Read it again and again until `stop`."""
        self._task.start()

    async def stop(self) -> None:
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(INTERVAL_S)
            try:
                await self.read()
            except LakepactError as error:
                _log.warning("the time of the store could not be read; the next attempt follows", error=str(error))

    def _warn(self, judgement: Judgement) -> None:
        now_s = self._clock.monotonic_s()
        if judgement.confirmed:
            if self._warned_s is not None:
                _log.info("the clock of this server is confirmed again; deletions by age continue")
            self._warned_s = None
        elif self._warned_s is None or now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            _log.warning(explained(judgement), difference_s=judgement.difference_ms / 1000, basis=str(judgement.basis))


def explained(judgement: Judgement) -> str:
    """Say why nothing is deleted by age, and what to do."""
    if judgement.difference_ms == 0:
        return (
            f"the clock of this server went on by more than a few minutes while no server was running, and nothing "
            f"confirms it yet. Nothing is deleted by age until it has been observed for {GRACE_MS // 60_000} minutes"
        )
    direction = "ahead of" if judgement.difference_ms > 0 else "behind"
    return (
        f"the clock of this server is {abs(judgement.difference_ms) // 1000} s {direction} the {judgement.basis}. "
        f"Nothing is deleted by age meanwhile. Set the clock (NTP) of this server, or of the store"
    )


def _encoded(mark: Watermark) -> Value:
    return {
        "time-ms": mark.time_ms,
        "boot": mark.uptime.boot,
        "uptime-ms": mark.uptime.ms,
        "since-ms": mark.since_ms,
        "confirmed-ms": mark.confirmed_ms,
    }


def _decoded(value: Value | None) -> Watermark | None:
    """None if there is none, or none that can be understood."""
    if value is None:
        return None
    try:
        since_ms = value["since-ms"]
        return Watermark(
            int(value["time-ms"]),
            Uptime(str(value["boot"]), int(value["uptime-ms"])),
            None if since_ms is None else int(since_ms),
            int(value["confirmed-ms"]),
        )
    except (KeyError, TypeError, ValueError):
        return None

"""Evidence of the time in a simulated world, for processes whose clocks may be wrong by days.

Either the store has a clock of its own, or all processes run on one machine, and the store keeps a watermark. Reading
the evidence takes no time here: what a late answer does to it is a matter of milliseconds, and clocks are days off.
"""

from __future__ import annotations

from enum import StrEnum

from lakepact.kernel.trusted_time import Evidence, TrustedClock, Uptime, Watermark, judge
from tests.sim.process import EPOCH_MS, SimClock
from tests.sim.scheduler import Scheduler


class Source(StrEnum):
    STORE = "store"
    WATERMARK = "watermark"


class SimEvidence:
    """What all processes of one world can learn about the time."""

    def __init__(self, scheduler: Scheduler, source: Source) -> None:
        self._scheduler = scheduler
        self._source = source
        self._watermark: Watermark | None = None
        self._boot, self._booted_s = 0, scheduler.now

    def reboot(self) -> None:
        """The machine starts anew. Its processes are the world's business."""
        self._boot, self._booted_s = self._boot + 1, self._scheduler.now

    def read(self, clock: TrustedClock) -> None:
        uptime = Uptime(f"boot {self._boot}", int((self._scheduler.now - self._booted_s) * 1000))
        judgement = judge(
            Evidence(
                clock_ms=clock.machine_ms(),
                uptime=uptime,
                store_ms=EPOCH_MS + int(self._scheduler.now * 1000) if self._source is Source.STORE else None,
                store_is_independent=self._source is Source.STORE,
                watermark=self._watermark,
                expected_ms=clock.expected_ms(),
                disputed_ms=clock.disputed_ms(),
            )
        )
        clock.follow(judgement)
        if judgement.watermark is not None:
            self._watermark = judgement.watermark

    def clock(self, machine: SimClock) -> TrustedClock:
        """The clock of a process that starts now."""
        made = TrustedClock(machine)
        self.read(made)
        return made

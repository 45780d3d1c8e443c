"""Decide what time it is when this machine's clock may be wrong by days.

Ages decide what is deleted: records and their idempotency keys, dropped tables, abandoned files, receipts. A clock that
is days ahead would delete all of them at once. So no age is computed from this machine's clock alone. `judge` compares
it with other evidence: the clock of the store, where the store has a clock (PostgreSQL, object stores); elsewhere a
watermark that is kept in the store, together with the uptime of the machine that wrote it. Uptime does not change when
the clock is set.

`TrustedClock` is the clock that stores, catalog and maintenance get. Its `now_ms` follows the evidence when this
machine's clock disagrees with it. Its `confirmed_ms`, which is used for every deletion by age, is zero until the
clock and the evidence agree. This module does no IO: `upkeep/clock_evidence.py` reads the evidence and hands it in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from lakepact.kernel.ports import Clock

MAX_DIFFERENCE_MS: Final = 300_000
"""How far this machine's clock may be from the evidence.

Beyond it the evidence is followed, and nothing is deleted by age."""

GRACE_MS: Final = 3_600_000
"""How long a time that nothing confirms must have been observed, by uptime, before anything is deleted by it."""

REFRESH_MS: Final = 60_000
"""How old a watermark may become before it is written again. Every write leaves a record in the store."""


class Basis(StrEnum):
    """Which evidence a judgement rests on. Also the values of a metric's label and of a log field."""

    STORE = "store clock"
    UPTIME = "watermark and uptime"
    FIRST = "first use"
    RESTARTED = "clock since restart"


@dataclass(frozen=True, slots=True)
class Uptime:
    """How long the machine has been running. `boot` differs for every start of every machine."""

    boot: str
    ms: int


@dataclass(frozen=True, slots=True)
class Watermark:
    """A time that a server has observed, and the uptime of its machine at that moment."""

    time_ms: int
    uptime: Uptime
    since_ms: int | None
    """The uptime at which the observation of this time began; None once the time is confirmed."""

    confirmed_ms: int
    """The latest time that was confirmed: `time_ms`, unless the observation has not ended."""

    def now_ms(self, uptime: Uptime) -> int:
        """The time at this uptime of the same boot."""
        return self.time_ms + uptime.ms - self.uptime.ms

    def observed_ms(self, uptime: Uptime) -> int:
        return GRACE_MS if self.since_ms is None else uptime.ms - self.since_ms

    def is_fresh(self, uptime: Uptime) -> bool:
        return uptime.ms - self.uptime.ms < REFRESH_MS


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was read at one moment."""

    clock_ms: int
    """This machine's clock."""

    uptime: Uptime
    store_ms: int | None = None
    """The time that the store has said, if it says one."""

    store_is_independent: bool = False
    """Whether that is another clock than this machine's."""

    watermark: Watermark | None = None
    """Only read where the store has no independent clock."""

    expected_ms: int | None = None
    """What this process has judged before, plus the time that has passed since. None at the first judgement."""

    disputed_ms: int = 0
    """For how long this process has seen a disagreement without interruption."""


@dataclass(frozen=True, slots=True)
class Judgement:
    time_ms: int
    confirmed: bool
    """Whether records and files may be deleted by this time."""

    basis: Basis
    difference_ms: int = 0
    """How far this machine's clock is ahead of the evidence; negative if it is behind."""

    watermark: Watermark | None = None
    """What to write into the store; None: nothing."""


def judge(evidence: Evidence) -> Judgement:
    """Return the time to follow, and whether it is good enough to delete by."""
    if evidence.store_ms is not None:
        if evidence.store_is_independent:
            return _by_store(evidence, evidence.store_ms)
        if not _agree(evidence.clock_ms, evidence.store_ms):
            return _disputed(evidence, evidence.store_ms, Basis.STORE)
    mark = evidence.watermark
    if mark is None:
        # Nothing has been written by any other clock yet.
        return Judgement(evidence.clock_ms, True, Basis.FIRST, watermark=_confirmed_mark(evidence))
    if mark.uptime.boot == evidence.uptime.boot:
        return _by_uptime(evidence, mark)
    return _after_restart(evidence, mark)


def _by_store(evidence: Evidence, store_ms: int) -> Judgement:
    expected_ms, clock_ms = evidence.expected_ms, evidence.clock_ms
    if expected_ms is not None and not _agree(store_ms, expected_ms) and _agree(clock_ms, expected_ms):
        # The store's own clock was set while this process ran. Two of three clocks still agree.
        return Judgement(clock_ms, False, Basis.STORE, difference_ms=clock_ms - store_ms)
    if not _agree(clock_ms, store_ms):
        return _disputed(evidence, store_ms, Basis.STORE)
    return Judgement(clock_ms, True, Basis.STORE, difference_ms=clock_ms - store_ms)


def _by_uptime(evidence: Evidence, mark: Watermark) -> Judgement:
    """The machine has not been restarted since the watermark was written: its uptime says how much time has passed."""
    time_ms = mark.now_ms(evidence.uptime)
    if not _agree(evidence.clock_ms, time_ms):
        if mark.since_ms is not None:
            # Two times that nothing confirms: the observation begins again.
            return _after_restart(evidence, mark)
        if evidence.disputed_ms >= GRACE_MS and evidence.uptime.ms - mark.uptime.ms >= GRACE_MS:
            # The clock was set, no server has confirmed the old time since, and the new one has lasted.
            return Judgement(evidence.clock_ms, True, Basis.UPTIME, watermark=_confirmed_mark(evidence))
        return _disputed(evidence, time_ms, Basis.UPTIME)
    difference_ms = evidence.clock_ms - time_ms
    if mark.observed_ms(evidence.uptime) < GRACE_MS:
        refreshed = None if mark.is_fresh(evidence.uptime) else replace(mark, time_ms=time_ms, uptime=evidence.uptime)
        return Judgement(evidence.clock_ms, False, Basis.UPTIME, difference_ms, refreshed)
    settled = mark.since_ms is None and mark.is_fresh(evidence.uptime)
    return Judgement(
        evidence.clock_ms, True, Basis.UPTIME, difference_ms, None if settled else _confirmed_mark(evidence)
    )


def _after_restart(evidence: Evidence, mark: Watermark) -> Judgement:
    """How much time has passed since the last confirmed time is not known, only that time does not run backwards."""
    clock_ms, floor_ms = evidence.clock_ms, mark.confirmed_ms
    if _agree(clock_ms, floor_ms) or (clock_ms < floor_ms and evidence.disputed_ms >= GRACE_MS):
        return Judgement(clock_ms, True, Basis.RESTARTED, watermark=_confirmed_mark(evidence))
    if clock_ms < floor_ms:
        return _disputed(evidence, max(floor_ms, evidence.expected_ms or 0), Basis.RESTARTED)
    # Either the machine was off for that long, or its clock is ahead. Commits continue; deletions wait.
    observed = Watermark(clock_ms, evidence.uptime, since_ms=evidence.uptime.ms, confirmed_ms=floor_ms)
    return Judgement(clock_ms, False, Basis.RESTARTED, watermark=observed)


def _disputed(evidence: Evidence, time_ms: int, basis: Basis) -> Judgement:
    return Judgement(time_ms, False, basis, difference_ms=evidence.clock_ms - time_ms)


def _confirmed_mark(evidence: Evidence) -> Watermark:
    return Watermark(evidence.clock_ms, evidence.uptime, since_ms=None, confirmed_ms=evidence.clock_ms)


def _agree(one_ms: int, other_ms: int) -> bool:
    return abs(one_ms - other_ms) <= MAX_DIFFERENCE_MS


class TrustedClock:
    """The `Clock` port over a machine's clock and the last judgement of it.

    Between two judgements time advances by the monotonic clock: a clock that is set meanwhile changes nothing until the
    evidence is read again. Before the first judgement `now_ms` is the machine's clock, and nothing is confirmed.
    """

    def __init__(self, machine: Clock) -> None:
        self._machine = machine
        self._judgement: Judgement | None = None
        self._assessed_s = 0.0
        self._disputed_since_s: float | None = None

    def now_ms(self) -> int:
        clock_ms, expected_ms = self._machine.now_ms(), self.expected_ms()
        return clock_ms if expected_ms is None or _agree(clock_ms, expected_ms) else expected_ms

    def confirmed_ms(self) -> int:
        judgement, clock_ms, expected_ms = self._judgement, self._machine.now_ms(), self.expected_ms()
        if judgement is None or expected_ms is None or not judgement.confirmed or not _agree(clock_ms, expected_ms):
            return 0
        return min(clock_ms, expected_ms)

    def monotonic_s(self) -> float:
        return self._machine.monotonic_s()

    async def sleep(self, seconds: float) -> None:
        await self._machine.sleep(seconds)

    def machine_ms(self) -> int:
        """What this machine's clock says, right or wrong."""
        return self._machine.now_ms()

    @property
    def judgement(self) -> Judgement | None:
        return self._judgement

    def expected_ms(self) -> int | None:
        """The time that was judged last, plus what has passed since."""
        if self._judgement is None:
            return None
        return self._judgement.time_ms + int((self._machine.monotonic_s() - self._assessed_s) * 1000)

    def disputed_ms(self) -> int:
        if self._disputed_since_s is None:
            return 0
        return int((self._machine.monotonic_s() - self._disputed_since_s) * 1000)

    def follow(self, judgement: Judgement, read_s: float | None = None) -> None:
        """Follow this judgement. `read_s` is the monotonic time at which its evidence was read; None: now."""
        self._judgement = judgement
        self._assessed_s = self._machine.monotonic_s() if read_s is None else read_s
        if abs(judgement.difference_ms) <= MAX_DIFFERENCE_MS:
            self._disputed_since_s = None
        elif self._disputed_since_s is None:
            self._disputed_since_s = self._assessed_s

"""What goes wrong with requests, and how often. Each seed draws its own mixture: most seeds have only some faults."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from random import Random
from typing import Final


class Fate(Enum):
    """What becomes of one request to the store."""

    NORMAL = auto()
    LOST = auto()
    """Never applied; the sender waits until its timeout."""

    ANSWER_LOST = auto()
    """Applied; the sender waits until its timeout."""

    LATE = auto()
    """The sender gives up at its timeout; the request is applied later still, if its condition then holds."""

    TWICE = auto()
    """Applied, and a copy of it again at some later time."""

    SLOW = auto()
    """Applied and answered, but not soon."""

    SLOW_ANSWER = auto()
    """Applied soon; the sender learns it only much later, as if it had been asleep."""

    BUSY = auto()
    """429, 503 or 409: not applied, and the adapter cannot be sure of it."""

    ERROR = auto()
    """500: applied, and the adapter cannot be sure of it."""


BUSY_REASONS: Final = ("409 conflicting request", "429 slow down", "503 unavailable")
_RATES: Final = (0.0, 0.0, 0.0, 0.005, 0.02, 0.06)
_FAULTY: Final = tuple(fate for fate in Fate if fate is not Fate.NORMAL)


@dataclass(slots=True)
class Faults:
    """The mixture of one seed. `on` goes off for the last part of a run: then everything must come to rest."""

    rates: tuple[tuple[float, Fate], ...] = ()
    timeout_s: float = 0.1
    late_s: float = 2.0
    slow_s: float = 0.5
    slow_prefix: str = "?"
    """Documents whose names begin like this live on a slow partition."""

    answer_loss: float = 0.0
    """How often the answer of a process to its client is lost."""

    laziness: float = 0.0
    """How often work in the background begins late, or never: nothing may depend on it."""

    on: bool = True
    outage_until: float = -1.0
    total: float = 0.0

    def __post_init__(self) -> None:
        self.total = sum(rate for rate, _ in self.rates)

    def fate(self, random: Random, now: float, name: str) -> Fate:
        if not self.on:
            return Fate.NORMAL
        if name.startswith(self.slow_prefix) and random.random() < 0.6:
            return Fate.SLOW
        if now < self.outage_until:
            return Fate.BUSY if random.random() < 0.5 else Fate.LOST
        chance = random.random()
        if chance >= self.total:
            return Fate.NORMAL
        for rate, fate in self.rates:
            if chance < rate:
                return fate
            chance -= rate
        return Fate.NORMAL

    def background_late_s(self, random: Random) -> float | None:
        """How long work in the background waits for its turn; None: it never gets one."""
        if not self.on or not self.laziness or random.random() >= self.laziness:
            return 0.0
        return None if random.random() < 0.1 else self.slow_s * random.random()

    def lateness_s(self, random: Random) -> float:
        """Mostly soon after the sender gave up, sometimes very late."""
        return self.late_s * random.random() ** 4


def no_faults() -> Faults:
    return Faults(on=False)


def drawn_faults(random: Random, *, lease_s: float, late_s: float) -> Faults:
    """A mixture in which each fault is off, rare or frequent, independently of the others."""
    rates = tuple((rate, fate) for fate in _FAULTY if (rate := random.choice(_RATES)))
    return Faults(
        rates=rates,
        timeout_s=lease_s * random.choice((0.1, 0.3, 0.6)),
        late_s=late_s,
        slow_s=lease_s * random.choice((0.3, 1.0, 3.0)),
        answer_loss=random.choice((0.0, 0.0, 0.03, 0.1)),
        laziness=random.choice((0.0, 0.3, 0.9)),
    )

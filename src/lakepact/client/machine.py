"""What the client needs of the machine it runs on: time, chance, pauses, and ids made of the first two."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass
from typing import Protocol

from lakepact.kernel.identity import uuid7


class Machine(Protocol):
    def now_ms(self) -> int: ...

    def monotonic_s(self) -> float: ...

    def chance(self) -> float:
        """From 0 up to 1."""
        ...

    def bits(self, count: int) -> int: ...

    def pause(self, seconds: float) -> None: ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Until the event is set (true) or the time is over (false)."""
        ...


class ThisMachine:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def chance(self) -> float:
        return secrets.randbits(53) / (1 << 53)

    def bits(self, count: int) -> int:
        return secrets.randbits(count)

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float) -> bool:
        return event.wait(seconds)


def new_id(machine: Machine) -> str:
    """A UUIDv7: the key of a change, and the id of a transaction."""
    return uuid7(machine.now_ms(), machine.bits(74))


def new_key() -> str:
    """A fresh Idempotency-Key, for whoever speaks REST by hand."""
    return new_id(ThisMachine())


@dataclass(frozen=True, slots=True)
class Retry:
    """How long to go on with one request. Every request of this client may be repeated: it carries its own key."""

    attempts: int = 8
    deadline_s: float = 60.0
    """No new attempt begins later than this."""

    first_pause_s: float = 0.1
    longest_pause_s: float = 5.0

    def pause_s(self, attempt: int, chance: float) -> float:
        """Before the attempt after this one (counted from 1). Random from nothing to twice as long each time, so that
        clients that were refused together do not come back together."""
        return chance * min(self.longest_pause_s, self.first_pause_s * (1 << min(attempt, 30)))

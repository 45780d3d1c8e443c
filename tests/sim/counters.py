"""Rare things that must have happened somewhere in a batch: a simulator that never gets there proves nothing.

They are derived from what the store and the clients saw, never from hooks inside the kernel.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeAlias

Counters: TypeAlias = Counter[str]

CRASH_STATES: Final = ("none", "open", "preparing", "prepared", "committed", "aborted", "failed", "retryable")

SOMETIMES: Final = (
    "committed",
    "conflict",
    "conflict not settled",
    "busy",
    "replayed",
    "outcome unknown",
    "key reused",
    "help forward",
    "rolled back by another",
    "zombie landed",
    "zombie refused",
    "unknown settled as applied",
    "unknown settled as not applied",
    "take-over by the same key",
    "collision step back",
    "reader waited",
    "snapshot too old",
    "staged meanwhile",
    "prepared committed by another process",
    "expired",
    "failed on request",
    "stale lock overwritten",
    "tombstone revived",
    "trimmed",
    "record deleted",
    "id beyond the horizon refused",
    "namespace dropped",
    "namespace drop refused",
    "process stalled beyond its lease",
    "clock jumped",
    "outage",
    "clock wrong by days",
    "restarted with a wrong clock",
    *(f"crash in {state}" for state in CRASH_STATES),
)
"""Every one of these is non-zero over a batch, or the batch fails."""

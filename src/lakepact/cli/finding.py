"""A finding of `lakepact doctor`: a subject, a verdict, the detail, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_OFF_S: Final = 5.0
_FAR_OFF_S: Final = 300.0


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    subject: str
    verdict: Verdict
    detail: str
    do: str = ""
    """What to do about it."""


def good(subject: str, detail: str) -> Finding:
    return Finding(subject, Verdict.OK, detail)


def odd(subject: str, detail: str, do: str) -> Finding:
    return Finding(subject, Verdict.WARN, detail, do)


def bad(subject: str, detail: str, do: str) -> Finding:
    return Finding(subject, Verdict.FAIL, detail, do)


def compared_clock(subject: str, ahead_s: float) -> Finding:
    """A clock that is so many seconds ahead of this machine's."""
    shown = f"{abs(ahead_s):.1f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine's"
    if abs(ahead_s) > _FAR_OFF_S:
        return bad(subject, shown, "Set this machine's clock: leases and signatures go wrong with it (use NTP).")
    if abs(ahead_s) > _OFF_S:
        return odd(subject, shown, "Let both be set by NTP: leases end by the clock.")
    return good(subject, "agrees with this machine's")

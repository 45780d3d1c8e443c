"""Trying again, bounded by attempts and by the call's deadline."""

from __future__ import annotations

from lakepact.kernel.ports import Clock, Rng
from lakepact.kernel.settings import KernelSettings


class Patience:
    """The pauses of one call: doubling, jittered, and at an end."""

    def __init__(self, settings: KernelSettings, clock: Clock, rng: Rng) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._attempt = 0
        self._deadline_s = clock.monotonic_s() + settings.deadline_s

    def remaining_s(self) -> float:
        return self._deadline_s - self._clock.monotonic_s()

    async def wait(self) -> bool:
        """Pause before the next attempt. False, at once, if there should be none."""
        settings = self._settings
        self._attempt += 1
        longest_s = min(settings.max_backoff_s, settings.backoff_s * 2.0 ** min(self._attempt - 1, 16))
        if self._attempt >= settings.attempts or self.remaining_s() <= longest_s:
            return False
        await self._clock.sleep(longest_s * (0.5 + self._rng.uniform() / 2))
        return True

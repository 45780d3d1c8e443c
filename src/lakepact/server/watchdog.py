"""Detect an event loop that does not run, and end the process so that its service manager or supervisor restarts it.

The event loop beats twice a second. A thread looks once a second whether there was a beat. It counts its own looks and
not the time on a clock: if the whole process is paused (SIGSTOP, a suspended machine, a frozen container) or gets no
CPU, the thread does not look either, and nothing is held against the loop afterwards.

The thread needs Python's interpreter lock. Native code that holds it and computes, such as a regular expression with
catastrophic backtracking, stops the thread too. For that case the thread keeps pushing back a timer of the CPU time
that the process uses (ITIMER_PROF); when it fires, SIGPROF prints the stacks and ends the process. Native code that
holds the lock and waits is noticed by the supervisor alone.

The loop may be stuck while it holds a lock of the log. So the thread never logs itself: it lets another thread do it,
waits for a few seconds, and ends the process even if the line could not be written.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from lakepact.server import logs

EXIT_CODE: Final = 70
"""Of a process that ends itself because its event loop did not run. EX_SOFTWARE of sysexits.h."""

BEAT_EVERY_S: Final = 0.5
CHECK_EVERY_S: Final = 1.0
_WARN_AFTER_CHECKS: Final = 5
_CPU_FACTOR: Final = 2.0
"""The CPU timer, in multiples of the bound: several threads may compute at once."""

_PERIOD_S: Final = 60.0
_REPORT_WITHIN_S: Final = logs.FLUSH_WITHIN_S + 1.0

_log = structlog.get_logger(__name__)


class Watchdog:
    """Watches the event loop of the current thread. `bound_s` of 0 measures pauses and ends nothing."""

    def __init__(
        self,
        bound_s: float,
        *,
        on_beat: Callable[[float], None] | None = None,
        heartbeat: int | None = None,
    ) -> None:
        """`on_beat` is called at every beat with the longest recent pause; `heartbeat` is a pipe to the supervisor."""
        self._bound_s = bound_s
        self._on_beat = on_beat
        self._heartbeat = heartbeat
        self._loop_thread = threading.get_ident()
        self._beats = 0
        self._ended = threading.Event()
        self._pauses = LongestPause()
        self._expected_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Call it on the event loop, from the main thread."""
        self._expected_s = time.monotonic()
        self._beat()
        if self._bound_s > 0:
            faulthandler.register(signal.SIGPROF, file=sys.stderr.fileno(), all_threads=True, chain=True)
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop watching, before the loop ends."""
        if self._timer is not None:
            self._timer.cancel()
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            signal.setitimer(signal.ITIMER_PROF, 0)

    # --- on the loop ---

    def _beat(self) -> None:
        now_s = time.monotonic()
        self._beats += 1
        longest_s = self._pauses.add(max(0.0, now_s - self._expected_s), now_s)
        if self._on_beat is not None:
            self._on_beat(longest_s)
        if self._heartbeat is not None:
            # Full: the supervisor has not looked for long, and knows enough. Broken: the lifeline says so too.
            with suppress(OSError):
                os.write(self._heartbeat, b".")
        self._expected_s = now_s + BEAT_EVERY_S
        self._timer = asyncio.get_running_loop().call_later(BEAT_EVERY_S, self._beat)

    # --- in the thread ---

    def _watch(self) -> None:
        last_beats, missed = -1, 0
        while True:
            signal.setitimer(signal.ITIMER_PROF, self._bound_s * _CPU_FACTOR)
            if self._ended.wait(CHECK_EVERY_S):
                return
            beats = self._beats
            last_beats, missed = beats, (missed + 1 if beats == last_beats else 0)
            if missed * CHECK_EVERY_S >= self._bound_s:
                self._end(missed * CHECK_EVERY_S)
            if missed == _WARN_AFTER_CHECKS:
                self._warn(missed * CHECK_EVERY_S)

    def _warn(self, seconds: float) -> None:
        stack = self._stack()
        _within(_REPORT_WITHIN_S, lambda: _log.warning("the event loop does not run", seconds=seconds, stack=stack))

    def _end(self, seconds: float) -> None:
        event = "the event loop did not run for too long (watchdog_s); the process ends with code 70 to be restarted"
        fields = {"seconds": seconds, "bound_s": self._bound_s, "pid": os.getpid(), "stack": self._stack()}

        def report() -> None:
            _log.error(event, **fields)
            logs.flush()

        try:
            if not _within(_REPORT_WITHIN_S, report):
                # This write may block too, if nobody reads standard error.
                _within(_REPORT_WITHIN_S, lambda: logs.write_unqueued(event, "error", fields))
        finally:
            os._exit(EXIT_CODE)

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        return "" if frame is None else "".join(traceback.format_stack(frame))


def _within(seconds: float, report: Callable[[], None]) -> bool:
    """Run a report in another thread. Return whether it has ended in this time; if not, it is left behind."""
    thread = threading.Thread(target=report, name="watchdog-report", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The process has as many threads as it may have. What it should say is less important than its end.
        return False
    thread.join(seconds)
    return not thread.is_alive()


class LongestPause:
    """The longest pause of the last one to two minutes."""

    def __init__(self, period_s: float = _PERIOD_S) -> None:
        self._period_s = period_s
        self._began_s = 0.0
        self._before_s = self._current_s = 0.0

    def add(self, pause_s: float, now_s: float) -> float:
        """Take in a pause that ended at `now_s` of a monotonic clock, and return the longest one."""
        if now_s - self._began_s >= self._period_s:
            recent = now_s - self._began_s < 2 * self._period_s
            self._before_s, self._current_s, self._began_s = self._current_s if recent else 0.0, 0.0, now_s
        self._current_s = max(self._current_s, pause_s)
        return max(self._before_s, self._current_s)

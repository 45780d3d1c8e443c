"""Write log lines from a thread, so that logging neither blocks nor fails its caller.

A log call appends its line to a bounded queue and returns. One daemon thread writes the queue to standard error. If the
queue is full (the reader of a pipe has stalled) or a write fails (the disk is full, the reader is gone), lines are
dropped and counted; after the next successful write one line says how many. The server continues in all of these cases.

The descriptor stays in blocking mode: it is shared with other processes, and with the terminal of the user's shell.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import orjson

MAX_QUEUED_LINES: Final = 10_000
MAX_QUEUED_BYTES: Final = 8 * 1024 * 1024

_ATOMIC_BYTES: Final = 4_096
"""A write of at most this size to a pipe (PIPE_BUF) is not mixed with those of other processes."""


class LogWriter:
    """Queues lines and writes them to `descriptor` in the order in which they were queued."""

    def __init__(
        self,
        descriptor: int,
        *,
        max_lines: int = MAX_QUEUED_LINES,
        max_bytes: int = MAX_QUEUED_BYTES,
    ) -> None:
        self._descriptor = descriptor
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._lines: deque[bytes] = deque()
        self._bytes = 0
        self._dropped = 0
        self._reported = 0
        self._writing = False
        self._on_dropped: Callable[[int], None] | None = None
        # Held for a few instructions only, never during a write. Signal handlers must not log.
        self._lock = threading.Lock()
        self._queued = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        threading.Thread(target=self._run, name="log-writer", daemon=True).start()

    @property
    def dropped(self) -> int:
        """The number of lines that were dropped since the process started."""
        return self._dropped

    def on_dropped(self, count: Callable[[int], None]) -> None:
        """Call `count` with the number of lines of every drop, and now with those dropped so far."""
        with self._lock:
            self._on_dropped = count
            before = self._dropped
        if before:
            count(before)

    def write(self, line: bytes) -> None:
        """Queue one line, which ends with a line feed. Never blocks and never raises; a full queue drops the line."""
        with self._lock:
            if len(self._lines) < self._max_lines and self._bytes + len(line) <= self._max_bytes:
                self._lines.append(line)
                self._bytes += len(line)
                if not self._writing:
                    self._queued.notify()
                return
        self._drop(1)

    def flush(self, within_s: float) -> bool:
        """Wait until everything queued is written or dropped, at most `within_s`. Return whether it is."""
        until_s = time.monotonic() + within_s
        with self._lock:
            while self._lines or self._writing:
                left_s = until_s - time.monotonic()
                if left_s <= 0:
                    return False
                self._idle.wait(left_s)
        return True

    # --- in the thread ---

    def _run(self) -> None:
        torn = False
        while True:
            lines = self._next_batch()
            unreported = self._dropped - self._reported
            # A line that was cut off must not swallow the next one.
            prefix = (b"\n" if torn else b"") + (_drop_report(unreported) if unreported else b"")
            data = prefix + b"".join(lines)
            written = self._write_all(data)
            if written == len(data):
                self._reported += unreported
                torn = False
            else:
                torn = data[written - 1 : written] != b"\n" if written else torn
                self._drop(_lines_beyond(lines, written - len(prefix)))

    def _next_batch(self) -> list[bytes]:
        """Wait for lines and take as many as one write should have."""
        with self._lock:
            self._writing = False
            while not self._lines:
                self._idle.notify_all()
                self._queued.wait()
            self._writing = True
            batch = [self._lines.popleft()]
            size = len(batch[0])
            while self._lines and size + len(self._lines[0]) <= _ATOMIC_BYTES:
                batch.append(self._lines.popleft())
                size += len(batch[-1])
            self._bytes -= size
        return batch

    def _write_all(self, data: bytes) -> int:
        """Write to the descriptor, waiting if necessary. Return the number of bytes that it took before an error."""
        written = 0
        while written < len(data):
            try:
                written += os.write(self._descriptor, data[written:])
            except BlockingIOError:
                # Another process has made the shared descriptor non-blocking.
                select.select([], [self._descriptor], [])
            except (OSError, ValueError):
                break
        return written

    def _drop(self, lines: int) -> None:
        with self._lock:
            self._dropped += lines
            count = self._on_dropped
        if count is not None:
            count(lines)


def _lines_beyond(lines: list[bytes], written: int) -> int:
    """Count the lines that do not end within the first `written` bytes."""
    end = whole = 0
    for line in lines:
        end += len(line)
        whole += end <= written
    return len(lines) - whole


def _drop_report(dropped: int) -> bytes:
    line = {
        "event": "log lines were dropped because standard error could not be written",
        "lines": dropped,
        "level": "warning",
        "timestamp": timestamp(time.time()),
    }
    return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)


def timestamp(seconds: float) -> str:
    """ISO 8601 in UTC with microseconds, as in all log lines."""
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{int(seconds * 1e6) % 1_000_000:06}Z"

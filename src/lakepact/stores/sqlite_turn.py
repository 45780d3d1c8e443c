"""Takes turns at writing to one SQLite file among several processes.

SQLite lets a process that waits for the file look again after pauses of up to 100 ms. A process with much to write
frees the file for microseconds only, so another one may wait long while the first keeps writing. Two file locks make
it fair: a writer holds the gate until it has the pen, and a writer that has just written must pass the gate again. So a
process that waits at the gate is overtaken by none that has written since.

The locks are advisory and belong to the open file: the system frees them when a process dies. SQLite's own lock still
protects the file; without these two only the order would differ.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_SHORTEST_PAUSE_S: Final = 0.0002
_LONGEST_PAUSE_S: Final = 0.002


class Turns:
    """One writer's place in the queue. Not for two threads at once."""

    def __init__(self, path: Path) -> None:
        """`path`: of the database. The locks are in two empty files next to it."""
        # As SQLite does with its own files: a user who may open the database may open these.
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
        self._gate, self._pen = (_opened(path.with_name(f"{path.name}-{name}"), mode) for name in ("gate", "pen"))

    @contextmanager
    def taken(self, within_s: float) -> Iterator[bool]:
        """Wait for this writer's turn. False if it did not come in time: then SQLite decides who is next."""
        deadline_s = time.monotonic() + within_s
        held = _lock(self._gate, deadline_s)
        try:
            held = held and _lock(self._pen, deadline_s)
        finally:
            _unlock(self._gate)
        try:
            yield held
        finally:
            _unlock(self._pen)

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._pen)


def _opened(path: Path, mode: int) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    if os.fstat(descriptor).st_mode & 0o777 != mode:
        # Made under another umask, or for a database whose mode has changed. Another user's file stays as it is.
        with suppress(PermissionError):
            os.fchmod(descriptor, mode)
    return descriptor


def _lock(descriptor: int, deadline_s: float) -> bool:
    pause_s = _SHORTEST_PAUSE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                return False
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


def _unlock(descriptor: int) -> None:
    fcntl.flock(descriptor, fcntl.LOCK_UN)

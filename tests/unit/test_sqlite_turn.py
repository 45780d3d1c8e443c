"""Several processes take turns at writing to one SQLite file."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lakepact.stores.sqlite_turn import Turns

_LONG_S = 60.0


def is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def wait_until_locked(path: Path) -> None:
    deadline_s = time.monotonic() + _LONG_S
    while not is_locked(path):
        assert time.monotonic() < deadline_s
        os.sched_yield()


def in_thread(step: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    return thread


def test_a_writer_that_waits_is_not_overtaken_by_one_that_has_just_written(tmp_path: Path) -> None:
    path = tmp_path / "cells.db"
    busy, waiting = Turns(path), Turns(path)
    order: list[str] = []

    def wait() -> None:
        with waiting.taken(_LONG_S) as held:
            assert held
            order.append("waiting")

    for _ in range(20):
        with busy.taken(_LONG_S):
            thread = in_thread(wait)
            # It stands at the gate, and only the pen is missing.
            wait_until_locked(tmp_path / "cells.db-gate")
        with busy.taken(_LONG_S):
            order.append("busy")
        thread.join(_LONG_S)
    assert order == ["waiting", "busy"] * 20
    busy.close()
    waiting.close()


def test_a_turn_that_does_not_come_is_given_up_in_time_and_does_not_block_others(tmp_path: Path) -> None:
    path = tmp_path / "cells.db"
    busy, other = Turns(path), Turns(path)
    with busy.taken(_LONG_S):
        with other.taken(0.01) as held:
            assert not held
        assert not is_locked(tmp_path / "cells.db-gate")
    with other.taken(_LONG_S) as held:
        assert held
    busy.close()
    other.close()

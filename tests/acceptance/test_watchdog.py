"""A process whose event loop is stuck is ended, and replaced where there is a supervisor."""

from __future__ import annotations

import os
import signal
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from lakepact.server.watchdog import EXIT_CODE
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S

WITHIN_S = PATIENCE_S
BOUND_S = "5"

WAITING = "import time; time.sleep(3600)"
COMPUTING = "import re; re.match('(a*)*b', 'a' * 64)"
"""It holds the interpreter lock: no other thread of Python runs."""

HOLDING_THE_LOG = "from lakepact.server import logs; logs._writer._lock.acquire(); import time; time.sleep(3600)"

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def with_freeze(folder: Path, statement: str) -> dict[str, str]:
    """An environment in which SIGUSR2 makes the main thread of a server do this."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        f"import signal\n\ndef freeze(*_):\n    {statement}\n\nsignal.signal(signal.SIGUSR2, freeze)\n"
    )
    return {"PYTHONPATH": str(site), "LAKEPACT_WATCHDOG_S": BOUND_S}


def eventually(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.1)


def workers_of(server: Server) -> list[int]:
    return [line["pid"] for line in server.lines() if line["event"] == "a worker serves"]


def answers(server: Server) -> bool:
    with _OPENER.open(f"{server.url}/livez", timeout=WITHIN_S) as response:
        return bool(response.status == 200)


def test_a_single_process_that_hangs_ends_itself_and_logs_where(tmp_path: Path) -> None:
    with running_server(tmp_path, env=with_freeze(tmp_path, WAITING)) as server:
        server.process.send_signal(signal.SIGUSR2)
        assert server.process.wait(WITHIN_S) == EXIT_CODE
        [line] = [line for line in server.lines() if "the event loop did not run for too long" in line["event"]]
    assert "in freeze" in line["stack"]


def test_a_process_that_hangs_with_a_lock_of_the_log_ends_itself_too(tmp_path: Path) -> None:
    with running_server(tmp_path, env=with_freeze(tmp_path, HOLDING_THE_LOG)) as server:
        server.process.send_signal(signal.SIGUSR2)
        assert server.process.wait(WITHIN_S) == EXIT_CODE
        [line] = [line for line in server.lines() if "the event loop did not run for too long" in line["event"]]
    assert "in freeze" in line["stack"]


def test_native_code_that_holds_the_interpreter_is_ended_too(tmp_path: Path) -> None:
    with running_server(tmp_path, env=with_freeze(tmp_path, COMPUTING)) as server:
        server.process.send_signal(signal.SIGUSR2)
        assert server.process.wait(WITHIN_S) == -signal.SIGPROF
        assert "in freeze" in server.told()


@pytest.mark.parametrize("freeze", [signal.SIGSTOP, signal.SIGUSR2])
def test_a_worker_that_hangs_is_replaced(tmp_path: Path, freeze: int) -> None:
    with running_server(tmp_path, "--workers", "2", env=with_freeze(tmp_path, WAITING)) as server:
        # Their lines may be written after the server has answered.
        eventually(lambda: len(workers_of(server)) == 2)
        victim, other = workers_of(server)
        os.kill(victim, freeze)
        eventually(lambda: len(workers_of(server)) == 3)
        assert answers(server)
        assert other in workers_of(server)
        dead = [line["pid"] for line in server.lines() if line["event"] == "a worker died and is started again"]
        assert dead == [victim]


def test_a_process_that_was_paused_as_a_whole_goes_on(tmp_path: Path) -> None:
    with running_server(tmp_path, env={"LAKEPACT_WATCHDOG_S": BOUND_S}) as server:
        os.kill(server.process.pid, signal.SIGSTOP)
        # Longer than the bound: time passes here, and none for the process.
        deadline = time.monotonic() + 2 * float(BOUND_S)
        while time.monotonic() < deadline:
            time.sleep(0.1)
        os.kill(server.process.pid, signal.SIGCONT)
        assert answers(server)
        assert not [line for line in server.lines() if "event loop" in line["event"]]

"""Several processes behind one socket. The socket is bound once, here, and every worker accepts from it.

A worker that dies is started again, after a pause that grows while workers die young; a worker that cannot even start,
while none has ever served, ends it all with its own error. SIGTERM and SIGINT are passed on, each as often as it comes,
and the workers are waited for: each goes through the phases of a stop (`run.py`). They are passed on through the
worker's standard input: two signals of one number become one if the worker is too busy to handle the first. The
supervisor closes its copy of the socket at once, so that the socket is closed when the last worker has stopped
accepting. If the supervisor is killed, the workers see the end of their standard input and stop by themselves.

A worker whose event loop does not run ends itself (`watchdog.py`). One that cannot even do that, because it is stopped
(SIGSTOP) or stuck in native code, is noticed here: every worker sends a byte twice a second, and one that sent none for
`watchdog_s` and a few seconds is killed and replaced. The supervisor counts its own looks and not the time on a clock,
so that a machine that was suspended, or is merely busy, costs no worker.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import orjson
import structlog
from prometheus_client.multiprocess import mark_process_dead

from lakepact.errors import FormatTooNew, InvalidSetting, LakepactError, StoreUnavailable, StoreUnsuitable, Unreadable
from lakepact.server import logs
from lakepact.server.metrics import FOLDER_VARIABLE
from lakepact.server.watchdog import CHECK_EVERY_S
from lakepact.settings import Settings

_LOOK_EVERY_S: Final = 0.2
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 10.0
_OLD_AGE_S: Final = 30.0
"""A worker that lived this long did not die young."""

_SILENCE_MARGIN_S: Final = 10.0
"""Beyond `watchdog_s`: a worker that can end itself does it first, and says where it was stuck."""

_STOP_WITHIN_S: Final = 60.0
"""Beyond a request's deadline: what the workers' background work may take before they are killed."""

_KINDS: Final[dict[str, type[LakepactError]]] = {
    kind.type: kind for kind in (FormatTooNew, InvalidSetting, StoreUnavailable, StoreUnsuitable, Unreadable)
}
"""What can go wrong when a worker starts. The supervisor ends with the same error, and so with the same exit code."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    born_s: float
    heartbeat: int
    """The end of a pipe from which its heartbeats are read."""

    said: bytes = b""
    ready: bool = False
    silent_looks: int = 0
    """How often in a row the supervisor has looked and there was no heartbeat."""

    def look(self) -> None:
        """Take in the heartbeats since the last look."""
        try:
            beats = os.read(self.heartbeat, 65_536)
        except BlockingIOError:
            beats = b""
        self.silent_looks = 0 if beats or not self.ready else self.silent_looks + 1

    def request_stop(self, number: int) -> None:
        """Pass on a signal. Called by signal handlers too, so it takes no lock."""
        if not self.ready:
            # It does not read its standard input yet, and has no handlers: SIGINT would leave a traceback.
            self.process.send_signal(signal.SIGTERM)
            return
        assert self.process.stdin is not None
        if self.process.stdin.closed:
            # It has ended, and the supervisor waits for the others.
            return
        with suppress(BrokenPipeError):
            os.write(self.process.stdin.fileno(), bytes([number]))

    def listen(self) -> dict[str, Any] | None:
        """What the worker has said, once it is a whole line."""
        assert self.process.stdout is not None
        part = os.read(self.process.stdout.fileno(), 65_536)
        self.said += part
        if self.said.endswith(b"\n"):
            return dict(orjson.loads(self.said))
        return {} if not part else None


@dataclass(slots=True)
class Supervisor:
    settings: Settings
    bound: socket.socket
    ready: Callable[[], None]
    _workers: list[_Worker] = field(default_factory=list)
    _stopping: bool = False
    _signal: int = signal.SIGINT
    """The signal that began the stop. An error of the supervisor itself stops without a lame-duck phase."""

    _announced: bool = False
    _young_deaths: int = 0
    _start_at_s: float = 0.0
    _next_look_s: float = 0.0
    _folder: str = ""
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def run(self) -> None:
        """Serve until a signal says stop. Raises what a worker said if none could start."""
        logs.configure(self.settings.log_level)
        self._folder = tempfile.mkdtemp(prefix="lakepact-metrics-")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._asked)
        for number in (signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._passed_on)
        try:
            while not self._stopping:
                self._fill()
                self._look()
        finally:
            self._stop()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _asked(self, number: int, _: object) -> None:
        # No logging here: the handler may have interrupted a log call.
        if self._stopping:
            self._signal_workers(number)
        else:
            self._stopping, self._signal = True, number

    def _signal_workers(self, number: int) -> None:
        for worker in self._workers:
            worker.request_stop(number)

    def _passed_on(self, number: int, _: object) -> None:
        """What is logged is every worker's own matter. One that is not ready yet would die of it."""
        for worker in self._workers:
            if worker.ready:
                worker.process.send_signal(number)

    def _fill(self) -> None:
        if time.monotonic() < self._start_at_s:
            return
        while len(self._workers) < self.settings.workers:
            self._workers.append(self._start())

    def _start(self) -> _Worker:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        process = subprocess.Popen(
            [sys.executable, "-m", "lakepact.server.worker", str(self.bound.fileno()), str(writer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self.bound.fileno(), writer),
            env={**os.environ, FOLDER_VARIABLE: self._folder},
            # A session of its own: an interrupt from the keyboard is for the supervisor, who passes it on once.
            start_new_session=True,
        )
        os.close(writer)
        worker = _Worker(process, time.monotonic(), reader)
        assert process.stdin is not None and process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)
        # If the pipe is broken the worker is dead already, and will be found so.
        with suppress(BrokenPipeError):
            process.stdin.write(self.settings.model_dump_json().encode() + b"\n")
            process.stdin.flush()
        return worker

    def _look(self) -> None:
        for key, _ in self._selector.select(_LOOK_EVERY_S):
            worker: _Worker = key.data
            said = worker.listen()
            if said is None:
                continue
            self._selector.unregister(key.fileobj)
            if "error" in said:
                self._failed(said["error"])
            elif "ready" in said:
                worker.ready = True
                _log.info("a worker serves", pid=worker.process.pid)
        self._kill_silent()
        for worker in [worker for worker in self._workers if worker.process.poll() is not None]:
            self._bury(worker)
        if not self._announced and len(self._workers) == self.settings.workers and all(w.ready for w in self._workers):
            self._announced = True
            self.ready()

    def _kill_silent(self) -> None:
        """Kill the workers that have sent no heartbeat for too long. They are replaced as if they had died."""
        bound_s = self.settings.watchdog_s
        if bound_s == 0 or time.monotonic() < self._next_look_s:
            return
        self._next_look_s = time.monotonic() + CHECK_EVERY_S
        for worker in self._workers:
            worker.look()
            if worker.silent_looks * CHECK_EVERY_S >= bound_s + _SILENCE_MARGIN_S:
                _log.error(
                    "a worker does not respond (watchdog_s) and is killed",
                    pid=worker.process.pid,
                    seconds=worker.silent_looks * CHECK_EVERY_S,
                )
                worker.process.kill()
                worker.process.wait()

    def _failed(self, error: dict[str, str]) -> None:
        if not self._announced:
            raise _KINDS.get(error["type"], LakepactError)(error["message"])
        _log.error("a worker could not start", type=error["type"], error=error["message"])

    def _bury(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        self._close(worker)
        mark_process_dead(worker.process.pid, self._folder)  # type: ignore[no-untyped-call]
        if not self._announced and not worker.ready:
            raise InvalidSetting(
                f"a worker ended with {worker.process.returncode} before it could serve; the lines above say why"
            )
        self._young_deaths = 0 if time.monotonic() - worker.born_s > _OLD_AGE_S else self._young_deaths + 1
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(self._young_deaths, 10), _LONGEST_PAUSE_S)
        self._start_at_s = time.monotonic() + pause_s
        _log.error("a worker died and is started again", code=worker.process.returncode, pid=worker.process.pid)

    def _stop(self) -> None:
        self._stopping = True
        _log.info("the workers are asked to stop", workers=len(self._workers))
        self._signal_workers(self._signal)
        self.bound.close()
        until_s = time.monotonic() + self.settings.lame_duck_s + self.settings.request_deadline_s + _STOP_WITHIN_S
        for worker in self._workers:
            try:
                worker.process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                _log.error("a worker did not end in time and is killed", pid=worker.process.pid)
                worker.process.kill()
                worker.process.wait()
            self._close(worker)
        self._workers.clear()

    def _close(self, worker: _Worker) -> None:
        assert worker.process.stdin is not None and worker.process.stdout is not None
        if worker.process.stdout in self._selector.get_map():
            self._selector.unregister(worker.process.stdout)
        worker.process.stdout.close()
        os.close(worker.heartbeat)
        with suppress(BrokenPipeError):
            worker.process.stdin.close()

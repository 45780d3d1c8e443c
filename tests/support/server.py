"""The catalog server as a process beside the tests, started as a user would start it.

    with running_server(folder, "--store", url) as server:
        ...  # server.url

It listens on a port of its own and is ready when it is yielded. Its output is in a file in `folder`, and in the error
if it does not become ready or does not end as it should. It cannot outlive the tests, even if they are killed.
"""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.waiting import PATIENCE_S

_POLL_S: Final = 0.05
_TOLD_CHARACTERS: Final = 8_000

# Ends the server when its own input ends, which is when the tests are gone.
_GUARD: Final = 'cat > /dev/null; kill -TERM "$1" 2> /dev/null'


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    process: subprocess.Popen[bytes]
    log: Path
    folder: Path

    def told(self) -> str:
        """The end of what it printed."""
        return _end_of(self.log)

    def lines(self, since: int = 0) -> list[dict[str, Any]]:
        """What it has logged from this position of its log on."""
        return lines_in(self.log.read_bytes()[since:])

    def log_end(self) -> int:
        """Return a position of the log. Every request that was answered until now is before it.

        Lines are queued after the response is sent, in order, and written by a thread. So this sends a request with
        an id and waits for its line.
        """
        id = f"log-end-{uuid.uuid4()}"
        request = urllib.request.Request(f"{self.url}/livez", headers={"X-Request-Id": id})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=PATIENCE_S) as response:
            response.read()
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            before, _, rest = self.log.read_bytes().partition(id.encode())
            line, newline, _ = rest.partition(b"\n")
            if newline:
                return len(before) + len(id) + len(line) + 1
            time.sleep(_POLL_S)
        raise TimeoutError(f"the line of a request was not written to {self.log} in {PATIENCE_S:.0f} s")


def lines_in(log: bytes) -> list[dict[str, Any]]:
    """The lines of a log that are JSON. The last one may still be on its way: without its end it does not count."""
    whole = log.rpartition(b"\n")[0]
    return [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]


@contextmanager
def running_server(
    folder: Path,
    *options: str,
    env: Mapping[str, str] | None = None,
    ca_bundle: Path | None = None,
    before: Callable[[], None] | None = None,
) -> Iterator[Server]:
    """A server whose data is in `folder`, with more `options` of `lakepact serve` and more environment.

    `ca_bundle` is who vouches for it, if it speaks TLS. `before` is called in the process before it becomes the server,
    and may lower its limits.

    A test may end the process itself; otherwise it is asked to end, and must do so cleanly.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "server.log"
    command = [sys.executable, "-m", "lakepact", "serve", "--port", "0", "--data", str(folder / "data"), *options]
    with log.open("ab") as output:
        start = output.tell()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=before,
            # No lame-duck phase: no test waits for a load balancer unless it says so.
            env={**os.environ, "PYTHONUNBUFFERED": "1", "LAKEPACT_LAME_DUCK_S": "0", **(env or {})},
        )
    guard = subprocess.Popen(["sh", "-c", _GUARD, "guard", str(process.pid)], stdin=subprocess.PIPE)
    try:
        yield Server(_ready_url(process, log, start, _opener(ca_bundle)), process, log, folder)
        ended_by_test = process.poll() is not None
    except BaseException as error:
        error.add_note(f"the server's log:\n{_end_of(log)}")
        raise
    finally:
        # The guard first: once the server is gone, its number may be somebody else's.
        guard.kill()
        guard.communicate()
        code = _stop(process)
    if not ended_by_test and code != 0:
        raise RuntimeError(f"the server did not end cleanly but with {code}:\n{_end_of(log)}")


def _stop(process: subprocess.Popen[bytes]) -> int:
    process.terminate()
    try:
        return process.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _opener(ca_bundle: Path | None) -> urllib.request.OpenerDirector:
    # No proxy between a test and its own machine, whatever the environment says.
    direct = urllib.request.ProxyHandler({})
    if ca_bundle is None:
        return urllib.request.build_opener(direct)
    return urllib.request.build_opener(
        direct, urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(ca_bundle)))
    )


def _ready_url(process: subprocess.Popen[bytes], log: Path, start: int, opener: urllib.request.OpenerDirector) -> str:
    """Where it listens, once it says that it is ready to serve."""
    deadline = time.monotonic() + PATIENCE_S
    answer = "it has not said where it listens"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} while starting")
        found = re.search(rb"https?://[\w.\-\[\]:]+:\d+[^\s\"']*(?=\s)", log.read_bytes()[start:])
        if found:
            url = found[0].decode().rstrip("/")
            answer = _readiness(url, opener)
            if not answer:
                return url
        time.sleep(_POLL_S)
    raise RuntimeError(f"the server was not ready after {PATIENCE_S:.0f} s: {answer}")


def _readiness(url: str, opener: urllib.request.OpenerDirector) -> str:
    """Why it is not ready; empty if it is."""
    try:
        opener.open(f"{url}/readyz", timeout=PATIENCE_S).close()
    except urllib.error.HTTPError as error:
        return f"/readyz says {error.code}: {error.read()[:500].decode(errors='replace')}"
    except OSError as error:
        return f"/readyz does not answer: {error}"
    return ""


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-_TOLD_CHARACTERS:] or "(it printed nothing)"

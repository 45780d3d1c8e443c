"""A server whose log cannot be written, or whose log reader stalls, keeps serving and stops on request."""

from __future__ import annotations

import http.client
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.support.ports import reserved_port
from tests.support.waiting import PATIENCE_S, wait_until

WITHIN_S = PATIENCE_S
LONG_PATH = "/" + "x" * 250


class Served:
    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def dropped(self) -> float:
        dropped = re.search(r"^lakepact_log_lines_dropped_total (\S+)", self.get("/metrics")[1], re.MULTILINE)
        assert dropped
        return float(dropped[1])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(WITHIN_S)


@contextmanager
def served(
    folder: Path,
    stderr: int | IO[bytes],
    workers: int = 1,
    before: Callable[[], None] | None = None,
    shell: str = "",
) -> Iterator[Served]:
    # The banner goes nowhere, so the port is chosen here.
    port = reserved_port()
    options = ["--port", str(port), "--data", str(folder / "data"), "--workers", str(workers)]
    command = [sys.executable, "-m", "lakepact", "serve", *options]
    process = subprocess.Popen(
        ["sh", "-c", f'exec "$@" {shell}', "sh", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=stderr,
        preexec_fn=before,
        env={**os.environ, "LAKEPACT_LAME_DUCK_S": "0"},
    )
    try:
        server = Served(process, port)
        until = time.monotonic() + WITHIN_S
        while True:
            try:
                if server.get("/readyz")[0] == 200:
                    break
            except OSError:
                pass
            assert process.poll() is None, f"it ended with {process.returncode}"
            assert time.monotonic() < until
            time.sleep(0.05)
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("shell", ["2>/dev/full", "2>&-"])
def test_a_log_that_cannot_be_written_does_not_end_the_server(tmp_path: Path, workers: int, shell: str) -> None:
    with served(tmp_path, subprocess.DEVNULL, workers, shell=shell) as server:
        assert [server.get("/livez")[0] for _ in range(20)] == [200] * 20
        if shell == "2>/dev/full":
            # Each worker counts its own lines, and which of them answers is not known.
            wait_until(lambda: server.dropped() >= 1, "no dropped line is counted")
        assert server.stop() == 0


def test_a_full_disk_under_the_log_does_not_end_the_server_and_lines_come_back_with_space(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def file_size_limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024 * 1024, resource.RLIM_INFINITY))

    with log.open("ab") as output, served(tmp_path, output, before=file_size_limit) as server:
        # Files may grow to 64 MiB, and the log is as large already.
        os.truncate(log, 64 * 1024 * 1024)
        for _ in range(20):
            assert server.get("/livez")[0] == 200
        wait_until(lambda: server.dropped() >= 20, "the dropped lines are not counted")
        os.truncate(log, 0)
        server.get("/livez")

        def is_reported() -> bool:
            server.get("/livez")
            return b"log lines were dropped" in log.read_bytes()

        wait_until(is_reported, "the dropped lines are not reported")
        assert server.stop() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_log_reader_that_stalls_stops_neither_requests_nor_sigterm(tmp_path: Path, workers: int) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as stderr, served(tmp_path, stderr, workers) as server:
        # The pipe is not read. Each request leaves a line of about 600 bytes, and the pipe holds 64 KiB.
        for _ in range(400):
            assert server.get(LONG_PATH)[0] == 404
        assert server.get("/livez")[0] == 200
        assert server.stop() == 0
    os.close(reader)


def test_a_log_reader_that_goes_away_does_not_end_the_server(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as stderr, served(tmp_path, stderr) as server:
        os.close(reader)
        for _ in range(5):
            assert server.get("/livez")[0] == 200
        wait_until(lambda: server.dropped() >= 5, "the dropped lines are not counted")
        assert server.stop() == 0


def test_a_banner_that_cannot_be_printed_does_not_end_the_server(tmp_path: Path) -> None:
    with served(tmp_path, subprocess.DEVNULL, shell=">/dev/full 2>&1") as server:
        assert server.get("/livez")[0] == 200
        assert server.stop() == 0

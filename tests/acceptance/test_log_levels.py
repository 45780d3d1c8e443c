"""The log level of a running server changes by a signal, alone and with workers."""

from __future__ import annotations

import signal
import time
import urllib.request
from pathlib import Path

import pytest

import lakepact
from tests.support.server import Server, running_server

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_PATIENCE_S = 20.0


def wait_for_changes(server: Server, level: str, count: int) -> None:
    """Until so many processes have said that they log at this level now."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        if len([line for line in server.lines() if line.get("now") == level]) >= count:
            return
        time.sleep(0.05)
    raise AssertionError(f"{count} processes should log at {level} by now:\n{server.told()}")


def requests_logged(server: Server) -> bool:
    """Whether requests leave lines. The line of the last one may come after its answer."""
    before = len([line for line in server.lines() if line.get("event") == "request"])
    for _ in range(5):
        _OPENER.open(f"{server.url}/livez", timeout=10).close()
    return len([line for line in server.lines() if line.get("event") == "request"]) > before


@pytest.mark.parametrize("workers", [1, 2])
def test_signals_change_what_is_logged(workers: int, tmp_path: Path) -> None:
    settings = tmp_path / "lakepact.toml"
    settings.write_text('log_level = "warning"\n')
    options = ("--workers", str(workers))
    with running_server(tmp_path / "server", *options, env={"LAKEPACT_CONFIG": str(settings)}) as server:
        assert not requests_logged(server)
        settings.write_text('log_level = "info"\n')
        server.process.send_signal(signal.SIGHUP)
        wait_for_changes(server, "info", workers)
        assert requests_logged(server)
        server.process.send_signal(signal.SIGUSR1)
        wait_for_changes(server, "debug", workers)
        server.process.send_signal(signal.SIGUSR1)
        wait_for_changes(server, "info", 2 * workers)
        settings.write_text("log_level = 'loud'\n")
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + _PATIENCE_S
        while not any("cannot be read again" in str(line.get("event")) for line in server.lines()):
            assert time.monotonic() < deadline, server.told()
            time.sleep(0.05)
        assert requests_logged(server)
        settings.write_text('log_level = "error"\n')
        server.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + _PATIENCE_S
        # It says nothing any more, so this is seen by what it does not say.
        while requests_logged(server) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not requests_logged(server)


@pytest.mark.parametrize("workers", [1, 2])
def test_start_and_stop_leave_a_line_with_address_and_version(workers: int, tmp_path: Path) -> None:
    with running_server(tmp_path, "--workers", str(workers)) as server:
        address = server.url.removeprefix("http://")
    told = {line["event"]: line for line in server.lines() if "version" in line}
    assert list(told) == ["the server serves", "the server has stopped"]
    for line in told.values():
        assert (line["address"], line["version"]) == (address, lakepact.__version__)

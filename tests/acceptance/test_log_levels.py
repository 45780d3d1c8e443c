"""The log level of a running server changes by a signal, alone and with workers."""

from __future__ import annotations

import signal
import urllib.request
from pathlib import Path

import pytest

import lakepact
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S, wait_until

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def wait_for_changes(server: Server, level: str, count: int) -> None:
    """Until so many processes have said that they log at this level now."""
    wait_until(
        lambda: len([line for line in server.lines() if line.get("now") == level]) >= count,
        lambda: f"{count} processes should log at {level} by now:\n{server.told()}",
    )


def requests_logged(server: Server) -> bool:
    """Whether requests leave lines. The line of the last one may come after its answer."""
    before = len([line for line in server.lines() if line.get("event") == "request"])
    for _ in range(5):
        _OPENER.open(f"{server.url}/livez", timeout=PATIENCE_S).close()
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
        wait_until(lambda: requests_logged(server), server.told)
        server.process.send_signal(signal.SIGUSR1)
        wait_for_changes(server, "debug", workers)
        server.process.send_signal(signal.SIGUSR1)
        wait_for_changes(server, "info", 2 * workers)
        settings.write_text("log_level = 'loud'\n")
        server.process.send_signal(signal.SIGHUP)
        wait_until(
            lambda: any("cannot be read again" in str(line.get("event")) for line in server.lines()), server.told
        )
        wait_until(lambda: requests_logged(server), server.told)
        settings.write_text('log_level = "error"\n')
        server.process.send_signal(signal.SIGHUP)
        # It says nothing any more, so this is seen by what it does not say.
        wait_until(lambda: not requests_logged(server), server.told)


@pytest.mark.parametrize("workers", [1, 2])
def test_start_and_stop_leave_a_line_with_address_and_version(workers: int, tmp_path: Path) -> None:
    with running_server(tmp_path, "--workers", str(workers)) as server:
        address = server.url.removeprefix("http://")
    told = {line["event"]: line for line in server.lines() if "version" in line}
    assert list(told) == ["the server serves", "the server has stopped"]
    for line in told.values():
        assert (line["address"], line["version"]) == (address, lakepact.__version__)

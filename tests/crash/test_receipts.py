"""A server killed between a commit and its receipt has told somebody that it happened: the receipt comes, on any
store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.server_chaos import ask
from tests.crash.server_tables import NAMESPACE, adding, commit_key, creation, named, receipts_in, snapshot_id
from tests.crash.test_server import STORES
from tests.support.server import Server, running_server
from tests.support.waiting import PATIENCE_S

OFTEN = {"LAKEPACT_UPKEEP_INTERVAL_S": "0.2"}
"""The lease of the one that is killed ends soon, too."""

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(server: Server, path: str, body: dict[str, Any]) -> Any:
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{server.url}/v1/main{path}", json.dumps(body).encode(), headers, method="POST")
    with _OPENER.open(asked, timeout=PATIENCE_S) as answer:
        return json.loads(answer.read() or b"null")


@pytest.mark.parametrize("store", list(STORES))
def test_killed_right_after_a_commit_no_receipt_is_missing_once_a_server_runs_again(store: str, tmp_path: Path) -> None:
    """The folder of the receipts is barred, so that the kill cannot come too late."""
    warehouse = tmp_path / "data" / "warehouse"
    with STORES[store](tmp_path) as url:
        options = () if url is None else ("--store", url)
        # Before the server begins: its upkeep would make the folder.
        warehouse.mkdir(parents=True)
        (warehouse / "_catalog").write_bytes(b"in the way")
        with running_server(tmp_path, *options, env=OFTEN) as server:
            expected = _commit(server)
            server.process.send_signal(signal.SIGKILL)
            server.process.wait()
        (warehouse / "_catalog").unlink()
        with running_server(tmp_path, *options, env=OFTEN):
            _wait_for(lambda: expected <= receipts_in(warehouse).keys())
        there = receipts_in(warehouse)
        # All of them lost, and the server with them: by hand it is the same.
        for key in there:
            [path] = warehouse.glob(f"_catalog/events/*/iceberg/committed/{key}.json")
            path.unlink()
        done = reconcile(tmp_path, *options)
        assert (done["written"], done["unreadable"], done["damaged"], done["failed"]) == (len(there), 0, 0, 0), done
        assert receipts_in(warehouse) == there
        assert reconcile(tmp_path, *options)["written"] == 0


def _commit(server: Server) -> set[str]:
    """Commits of every kind; the commit keys of those whose files tell them."""
    tables = f"/namespaces/{NAMESPACE}/tables"
    post(server, "/namespaces", {"namespace": [NAMESPACE]})
    locations = [post(server, tables, creation(name))["metadata-location"] for name in ("a", "b")]
    locations.append(post(server, f"{tables}/a", adding(snapshot_id(1, [0]), head=True))["metadata-location"])
    both = [named(name, adding(snapshot_id(2, [0, 1]))) for name in ("a", "b")]
    post(server, "/transactions/commit", {"table-changes": both})
    for name in ("a", "b"):
        status, loaded = ask(server.url, f"/v1/main{tables}/{name}")
        assert status == 200
        locations.append(loaded["metadata-location"])
    assert len(set(locations)) == 5
    return set(map(commit_key, locations))


def reconcile(folder: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "lakepact", "reconcile", "--json", *options]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "LAKEPACT_DATA": str(folder / "data")},
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _wait_for(done: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < until, "the receipts do not come"
        time.sleep(0.1)

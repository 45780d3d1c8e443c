"""Prometheus' own `promtool` finds nothing to correct in the metrics of a server and in the alert rules."""

from __future__ import annotations

import subprocess
import urllib.request
from pathlib import Path

import pytest

import lakepact
from lakepact.client import NotFound
from tests.support.debian import unpacked_program
from tests.support.server import running_server
from tests.support.waiting import PATIENCE_S


@pytest.fixture(scope="module")
def promtool() -> str:
    return unpacked_program("promtool", "prometheus")


def check(promtool: str, *arguments: str, sent: bytes = b"") -> tuple[int, str]:
    ended = subprocess.run(
        [promtool, "check", *arguments],
        input=sent,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE_S,
    )
    return ended.returncode, ended.stdout.decode()


@pytest.mark.parametrize("workers", [1, 2])
def test_promtool_has_no_remark_on_the_metrics_of_a_server(promtool: str, tmp_path: Path, workers: int) -> None:
    """With several workers their figures are added up into one page."""
    with running_server(tmp_path, "--workers", str(workers)) as server:
        with lakepact.connect(server.url) as lake:
            with lake.transaction() as tx:
                tx.namespaces.create("sales")
            with pytest.raises(NotFound):
                lake.tables.load("sales.orders")
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=PATIENCE_S) as answer:
            metrics: bytes = answer.read()
    assert b"lakepact_commits_total" in metrics
    assert check(promtool, "metrics", sent=metrics) == (0, "")
    # It is the tool that judges: a metric with a unit that is not a base unit is reported.
    code, remarks = check(promtool, "metrics", sent=metrics + b"# TYPE lakepact_wait_ms gauge\nlakepact_wait_ms 1\n")
    assert code != 0 and "lakepact_wait_ms" in remarks


def test_promtool_accepts_the_alert_rules(promtool: str, root: Path) -> None:
    code, report = check(promtool, "rules", str(root / "ops" / "alerts.yml"))
    assert code == 0, report

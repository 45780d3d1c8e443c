"""What the demo shows is true: the shop on Spark, and the bank, which is the kernel alone, on two kinds of store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import wait_until


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lakepact", "demo", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=1_000)


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_processes_are_killed_and_nothing_is_lost(kind: str, tmp_path: Path) -> None:
    options = [] if kind == "sqlite" else ["--store", f"file://{tmp_path}/store"]

    def played() -> dict[str, Any] | None:
        """Return what came of it. None: the demo stood still for all of its seconds, and killed nobody."""
        result = demo("bank", "--seconds", "6", "--movers", "3", "--json", *options)
        assert result.returncode == 0, result.stdout + result.stderr
        summary: dict[str, Any] = json.loads(result.stdout)
        return summary if summary["killed"] else None

    summary = wait_until(played, "no process was killed") or {}
    assert summary["holds"] is True
    assert [check["problems"] for check in summary["checks"]] == [[]] * len(summary["checks"])
    assert summary["tried"] == summary["committed"] + summary["conflicted"]
    assert summary["committed"] > 0
    assert summary["killed"] > 0
    assert summary["in_doubt"] == summary["were_committed"] + summary["were_not"]
    assert summary["cuts"] > 0


def test_a_person_reads_how_it_went() -> None:
    result = demo("bank", "--seconds", "3", "--movers", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    for words in ("transfers tried", "times a process was killed", "cuts audited", "Nothing was lost"):
        assert words in result.stdout
    assert "✗" not in result.stdout


@pytest.mark.begins_first
def test_the_shop_never_shows_half_of_a_run() -> None:
    result = demo("shop", "--json")
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads(result.stdout)
    assert report["holds"] is True
    assert report["torn"] == []
    assert report["looks"] > 0
    assert (report["refused_runs"], report["published_runs"], report["kills"]) == (1, 2, 1)

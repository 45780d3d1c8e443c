"""What `make demo` shows is true, on a store with transactions of its own and on one that can only swap documents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def demo(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lakepact", "demo", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("kind", ["sqlite", "files"])
def test_processes_are_killed_and_nothing_is_lost(kind: str, tmp_path: Path) -> None:
    options = [] if kind == "sqlite" else ["--store", f"file://{tmp_path}/store"]
    result = demo("--seconds", "6", "--movers", "3", "--json", *options)
    assert result.returncode == 0, result.stdout + result.stderr
    summary = json.loads(result.stdout)
    assert summary["holds"] is True
    assert [check["problems"] for check in summary["checks"]] == [[]] * len(summary["checks"])
    assert summary["tried"] == summary["committed"] + summary["conflicted"]
    assert summary["committed"] > 0
    assert summary["killed"] > 0
    assert summary["in_doubt"] == summary["were_committed"] + summary["were_not"]
    assert summary["cuts"] > 0


def test_a_person_reads_how_it_went() -> None:
    result = demo("--seconds", "3", "--movers", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    for words in ("transfers tried", "times a process was killed", "cuts audited", "Nothing was lost"):
        assert words in result.stdout
    assert "✗" not in result.stdout

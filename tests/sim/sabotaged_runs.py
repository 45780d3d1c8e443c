"""Run a simulation in a process of its own: on a sabotaged copy of the source, or twice with other hash seeds."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.sim.sabotages import Sabotage, sabotaged_copy

ROOT = Path(__file__).parents[2]


def assert_repeatable(module: str, seeds: int = 20) -> None:
    """Run the same seeds under two hash seeds. Both runs must make the same storage calls in the same order."""
    runs = [
        subprocess.run(
            [sys.executable, "-m", module, "--seeds", str(seeds)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert "storage calls: " in runs[0]
    assert runs[0] == runs[1]


def assert_caught(module: str, sabotage: Sabotage, tmp_path: Path, *arguments: str, replay: str | None = None) -> None:
    """Run a simulation with these arguments. It must name a promise that the sabotage breaks, and how to replay it."""
    folder = sabotaged_copy(sabotage, tmp_path)
    run = subprocess.run(
        [sys.executable, "-m", module, "--seeds", str(sabotage.seeds), *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert f"simulating {folder}" in run.stdout, run.stdout + run.stderr
    caught = re.search(r"(P\d+) is broken in seed", run.stdout)
    assert caught is not None, f"not caught in {sabotage.seeds} seeds:\n{run.stdout}{run.stderr}"
    assert run.returncode == 1
    assert caught[1] in sabotage.promises, run.stdout
    assert f"replay it with:  {replay or f'python -m {module} --start '}" in run.stdout

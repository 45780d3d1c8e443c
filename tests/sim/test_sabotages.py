"""Test the tester: every sabotage of the kernel is caught, by a promise it breaks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.sabotages import SABOTAGES, Sabotage, sabotaged_copy

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_the_simulator_catches(sabotage: Sabotage, tmp_path: Path) -> None:
    folder = sabotaged_copy(sabotage, tmp_path)
    chosen = [argument for name in sabotage.scenarios for argument in ("--scenario", name)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim", "--jobs", "1", "--seeds", str(sabotage.seeds), *chosen],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert f"simulating {folder}" in done.stdout, done.stdout + done.stderr
    caught = re.search(r"(P\d+) is broken in seed", done.stdout)
    assert caught is not None, f"not caught in {sabotage.seeds} seeds:\n{done.stdout}{done.stderr}"
    assert done.returncode == 1
    assert caught[1] in sabotage.promises, done.stdout


def test_there_are_enough_of_them_for_every_promise() -> None:
    assert len({sabotage.name for sabotage in SABOTAGES}) == len(SABOTAGES) >= 15
    covered = {promise for sabotage in SABOTAGES for promise in sabotage.promises}
    assert covered == {f"P{number}" for number in range(1, 11)}


def test_a_sabotage_that_no_longer_fits_the_source_is_an_error(tmp_path: Path) -> None:
    from dataclasses import replace

    stale = replace(SABOTAGES[0].edits[0], old="a text that was never there")
    with pytest.raises(ValueError, match="occurs 0 times"):
        sabotaged_copy(replace(SABOTAGES[0], edits=(stale,)), tmp_path)

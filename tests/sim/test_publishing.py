"""Open transactions keep the isolation they asked for, and the simulation of them notices each broken rule."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.sim.publishing import run_seed
from tests.sim.sabotages import PUBLISHING, Sabotage, sabotaged_copy

ROOT = Path(__file__).parents[2]


def test_no_update_is_lost_and_no_dependency_is_ignored() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen += run_seed(seed)
    for event in (
        "increment serializable",
        "increment snapshot",
        "increment given up",
        "book",
        "book given up",
        "probe",
    ):
        assert seen[event], f"never happened: {event}"


def test_a_seed_is_the_same_every_time() -> None:
    assert run_seed(7) == run_seed(7)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("sabotage", PUBLISHING, ids=lambda sabotage: sabotage.name)
def test_the_simulation_catches(sabotage: Sabotage, tmp_path: Path) -> None:
    folder = sabotaged_copy(sabotage, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.sim.publishing", "--seeds", str(sabotage.seeds)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    assert f"simulating {folder}" in done.stdout, done.stdout + done.stderr
    caught = re.search(r"(P\d+) is broken in seed", done.stdout)
    assert caught is not None, f"not caught in {sabotage.seeds} seeds:\n{done.stdout}{done.stderr}"
    assert caught[1] in sabotage.promises, done.stdout

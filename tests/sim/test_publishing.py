"""Open transactions keep the isolation they asked for, and the simulation of them notices each broken rule."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sim.publishing import run_seed
from tests.sim.sabotaged_runs import assert_caught, assert_repeatable
from tests.sim.sabotages import PUBLISHING, Sabotage


def test_no_update_is_lost_and_no_dependency_is_ignored() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen += run_seed(seed).counters
    for event in (
        "increment serializable",
        "increment snapshot",
        "increment given up",
        "book",
        "book given up",
        "probe",
    ):
        assert seen[event], f"never happened: {event}"


def test_a_seed_makes_the_same_storage_calls_whatever_the_hash_seed() -> None:
    assert_repeatable("tests.sim.publishing")


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("sabotage", PUBLISHING, ids=lambda sabotage: sabotage.name)
def test_the_simulation_catches(sabotage: Sabotage, tmp_path: Path) -> None:
    assert_caught("tests.sim.publishing", sabotage, tmp_path)

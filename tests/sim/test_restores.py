"""After a restore nothing of the lost future counts as new history, and the simulation notices each broken rule."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sim.restores import run_seed
from tests.sim.sabotaged_runs import assert_caught, assert_repeatable
from tests.sim.sabotages import RESTORES, Sabotage


def test_receipts_and_files_of_the_new_history_are_complete_and_those_of_the_lost_one_stay() -> None:
    events: Counter[str] = Counter()
    for seed in range(30):
        events += run_seed(seed).counters
    for event in (
        "crash",
        "loss without a crash",
        "restore",
        "restore of an older backup",
        "receipt in the background",
        "receipt by the reconciler",
        "unchanged for the reconciler",
        "replay of a request in the backup",
        "lost table registered",
        "file collected",
    ):
        assert events[event], f"never happened: {event}"


def test_a_seed_makes_the_same_storage_calls_whatever_the_hash_seed() -> None:
    assert_repeatable("tests.sim.restores")


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("sabotage", RESTORES, ids=lambda sabotage: sabotage.name)
def test_the_simulation_catches(sabotage: Sabotage, tmp_path: Path) -> None:
    assert_caught("tests.sim.restores", sabotage, tmp_path)

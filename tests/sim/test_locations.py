"""Tables at locations that contain one another are never both created, and the simulation notices each broken rule."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sim.locations import run_seed
from tests.sim.sabotaged_runs import assert_caught, assert_repeatable
from tests.sim.sabotages import LOCATIONS, Sabotage


def test_no_table_contains_another_whatever_the_order_of_requests() -> None:
    events: Counter[str] = Counter()
    for seed in range(100):
        events += run_seed(seed).counters
    for request in ("create_chosen", "create_default", "create_in_transaction", "create_view", "move", "undrop"):
        assert events[request], f"never happened: {request}"
        assert events[f"{request} refused for an overlap"], f"never refused for an overlap: {request}"


def test_a_seed_makes_the_same_storage_calls_whatever_the_hash_seed() -> None:
    assert_repeatable("tests.sim.locations")


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("sabotage", LOCATIONS, ids=lambda sabotage: sabotage.name)
def test_the_simulation_catches(sabotage: Sabotage, tmp_path: Path) -> None:
    assert_caught("tests.sim.locations", sabotage, tmp_path)

"""Test the tester: every sabotage of the kernel is caught, by a promise it breaks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim.sabotaged_runs import assert_caught
from tests.sim.sabotages import SABOTAGES, Sabotage, sabotaged_copy


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda sabotage: sabotage.name)
def test_the_simulator_catches(sabotage: Sabotage, tmp_path: Path) -> None:
    chosen = [argument for name in sabotage.scenarios for argument in ("--scenario", name)]
    assert_caught("tests.sim", sabotage, tmp_path, "--jobs", "1", *chosen, replay="make sim SEED=")


def test_there_are_enough_of_them_for_every_promise() -> None:
    assert len({sabotage.name for sabotage in SABOTAGES}) == len(SABOTAGES) >= 15
    covered = {promise for sabotage in SABOTAGES for promise in sabotage.promises}
    assert covered == {f"P{number}" for number in range(1, 11)}


def test_a_sabotage_that_no_longer_fits_the_source_is_an_error(tmp_path: Path) -> None:
    from dataclasses import replace

    stale = replace(SABOTAGES[0].edits[0], old="a text that was never there")
    with pytest.raises(ValueError, match="occurs 0 times"):
        sabotaged_copy(replace(SABOTAGES[0], edits=(stale,)), tmp_path)

"""Every schedule of the small worlds, up to a bound on preemptions; of the largest, as many as there is time for."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.sim.broken import PromiseBroken
from tests.sim.exhaustive import SMALL_WORLDS, SmallWorld, search
from tests.sim.oracle import Oracle

LONG = bool(os.environ.get("LAKEPACT_LONG"))
SCHEDULES = 6_000
SAMPLED = 1_500
TOO_LARGE = (
    "two writers, each of one cell, and a reader of both",
    "two writers, one lost answer",
    "two writers, one crash, one lost answer, one recoverer",
)
"""Worlds with more schedules than an ordinary test run searches; `LAKEPACT_LONG=1` gives each of them five minutes."""


@pytest.mark.begins_first
@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("world", SMALL_WORLDS, ids=lambda world: world.name)
def test_no_schedule_breaks_a_promise(world: SmallWorld, record_property: Callable[[str, object], None]) -> None:
    schedules = SAMPLED if world.name in TOO_LARGE else SCHEDULES
    found = search(world, seconds=300) if LONG else search(world, schedules=schedules)
    print(found)
    record_property("search", str(found))
    assert found.complete or world.name in TOO_LARGE, str(found)


def test_two_searches_of_one_world_are_the_same_search() -> None:
    world = SMALL_WORLDS[0]
    first, second = search(world, schedules=100), search(world, schedules=100)
    assert (first.states, first.ends) == (second.states, second.ends)


def test_the_search_comes_across_what_it_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A false alarm, planted where a lock is taken off another's cell: some schedule gets there and raises it."""

    def alarm(self: Oracle, *_: object) -> None:
        raise PromiseBroken("P0", "planted")

    monkeypatch.setattr(Oracle, "_lock_removed", alarm)
    with pytest.raises(PromiseBroken, match="planted") as caught:
        search(SmallWorld("a crash", crashes=1, preemptions=0), schedules=SCHEDULES)
    assert "schedule" in caught.value.detail

"""Every schedule of the small worlds, up to a bound on preemptions."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.sim.broken import PromiseBroken
from tests.sim.exhaustive import SMALL_WORLDS, SmallWorld, search
from tests.sim.oracle import Oracle

SECONDS = 1_200.0 if os.environ.get("LAKEPACT_LONG") else 25.0


@pytest.mark.timeout(2_400)
@pytest.mark.parametrize("world", SMALL_WORLDS, ids=lambda world: world.name)
def test_no_schedule_breaks_a_promise(world: SmallWorld, record_property: Callable[[str, object], None]) -> None:
    found = search(world, seconds=SECONDS)
    print(found)
    record_property("schedules", found.schedules)
    assert found.complete or found.schedules > 500, str(found)


def test_the_search_reaches_a_state_that_few_schedules_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """A false alarm planted where a lock is overwritten only after a crash: the search must come across it."""

    def alarm(self: Oracle, *_: object) -> None:
        raise PromiseBroken("P0", "planted")

    monkeypatch.setattr(Oracle, "_lock_removed", alarm)
    with pytest.raises(PromiseBroken, match="planted"):
        search(SmallWorld("a crash", crashes=1, preemptions=0), seconds=60)

"""A process that publishes Delta versions is killed with SIGKILL after every storage operation, one run each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from lakepact.kernel.identity import uuid7
from lakepact.runtime import SystemClock, SystemRng
from lakepact.stores import open_store
from tests.crash.delta import DELTA_ACTS, audit, seed
from tests.crash.scenario import SETTINGS, Job
from tests.crash.test_crash import MORE_POINTS_THAN_ANY_COMMIT_HAS, SITES


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("act", DELTA_ACTS)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_process_killed_at_any_operation_leaves_all_of_a_version_or_nothing(
    store: str, act: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    points, happened = asyncio.run(_kill_at_every_point(store, act, tmp_path))
    record_property("figure", f"{store}, {act}: killed at each of {points} operations, {happened} after its commit")
    assert points >= 4
    assert 0 < happened < points, "some kills must fall before the commit point and some after it"


async def _kill_at_every_point(kind: str, act: str, folder: Path) -> tuple[int, int]:
    clock, rng = SystemClock(), SystemRng()
    async with SITES[kind](folder) as site:
        store = await open_store(site.url, SETTINGS, options=site.options)
        await seed(store, uuid7(clock.now_ms(), rng.bits(74)))
        happened = 0
        for at in range(1, MORE_POINTS_THAN_ANY_COMMIT_HAS):
            job = Job(uuid7(clock.now_ms(), rng.bits(74)), base=at)
            survived = await site.run(act, job, at)
            before = await audit(store, job, DELTA_ACTS[act])
            if survived is not None:
                assert before, "the victim lived and its versions are not there"
                await store.close()
                return at - 1, happened
            happened += before
        raise AssertionError("the victim never came to its end")

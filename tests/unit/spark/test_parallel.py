"""Writes that run at the same time: all of them, or the first failure once none runs any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial
from itertools import count
from typing import Any

import pytest

from lakepact.spark.jobs.projections import parallel
from lakepact.spark.jobs.projections.parallel import run_in_parallel
from tests.support.waiting import PATIENCE_S


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def inherit(spark: object) -> Callable[[Any], Any]:
        return lambda task: task

    monkeypatch.setattr(parallel, "inheritable_thread_target", inherit)


def run(tasks: dict[str, Callable[[], None]], on_done: Callable[[str], None] = lambda name: None) -> None:
    run_in_parallel(None, tasks, on_done)  # type: ignore[arg-type]


def test_every_task_runs_and_is_reported() -> None:
    names = [f"t{number}" for number in range(10)]
    ran: list[str] = []
    reported: list[str] = []
    run({name: partial(ran.append, name) for name in names}, reported.append)
    assert sorted(ran) == names
    assert sorted(reported) == names


def test_a_failure_cancels_what_waits_and_is_raised_when_nothing_runs_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    waits = count()
    begun, cancelled = threading.Event(), threading.Event()

    def wait_twice(*arguments: Any, **options: Any) -> Any:
        # The first wait ends with the failure. Before the second one, the tasks that have not started are cancelled.
        if next(waits):
            cancelled.set()
        return wait(*arguments, **options)

    def fail() -> None:
        # Until one of the others runs, all of them could be cancelled.
        assert begun.wait(PATIENCE_S)
        raise ValueError("no room")

    def write(name: str) -> None:
        begun.set()
        assert cancelled.wait(PATIENCE_S)
        ran.append(name)

    monkeypatch.setattr(parallel, "wait", wait_twice)
    with pytest.raises(ValueError, match="no room"):
        run({"first": fail, **{f"t{number}": partial(write, f"t{number}") for number in range(20)}})
    # The thread of the failure may have taken one more task before the others were cancelled.
    assert ran and set(ran) <= {"t0", "t1", "t2"}

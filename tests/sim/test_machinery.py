"""The simulator's own parts: scheduler, store, processes, history."""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from lakepact.errors import StoreUnavailable
from lakepact.kernel.ports import Applied, Refused, Unknown, WriteOutcome
from tests.sim.broken import PromiseBroken
from tests.sim.documents import Log, ProcessDocuments, Request, Storage
from tests.sim.faults import Fate, Faults
from tests.sim.history import Operation, check_strictly_serializable
from tests.sim.scheduler import Scheduler, Task, suspend


class Writes:
    """An observer that only counts."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bytes]] = []

    def written(self, request: Request, name: str, data: bytes) -> None:
        self.seen.append((name, data))

    def deleted(self, request: Request, name: str) -> None:
        self.seen.append((name, b""))


class Bench:
    """A store with one fate for every request."""

    def __init__(self, fate: Fate = Fate.NORMAL) -> None:
        rates = ((1.0, fate),) if fate is not Fate.NORMAL else ()
        self.scheduler = Scheduler(Random(0))
        self.writes = Writes()
        self.faults = Faults(rates=rates, timeout_s=1.0, late_s=5.0, slow_s=5.0)
        log = Log(self.scheduler)
        self.storage = Storage(self.scheduler, self.faults, self.writes, Counter(), log)
        self.documents = ProcessDocuments(self.storage)

    def run(self, steps: Coroutine[Any, Any, Any]) -> Task:
        task = self.scheduler.spawn(steps, host=None, root=None)
        assert self.scheduler.run(10_000)
        return task

    def create(self, name: str, data: bytes) -> WriteOutcome:
        outcome: WriteOutcome = self.run(self.documents.create(name, data)).result
        return outcome


def test_a_version_token_is_a_hash_of_the_content() -> None:
    bench = Bench()
    first, second = bench.create("a", b"x"), bench.create("b", b"x")
    assert isinstance(first, Applied)
    assert first == second
    assert isinstance(bench.create("a", b"y"), Refused)


def test_a_lost_request_is_unknown_to_a_write_and_an_error_to_a_read() -> None:
    bench = Bench(Fate.LOST)
    assert isinstance(bench.create("a", b"x"), Unknown)
    assert isinstance(bench.run(bench.documents.get("a")).failure, StoreUnavailable)
    assert bench.writes.seen == []
    assert bench.scheduler.now >= 2.0


@pytest.mark.parametrize("fate", [Fate.ANSWER_LOST, Fate.ERROR])
def test_an_answer_may_be_lost_though_the_write_was_applied(fate: Fate) -> None:
    bench = Bench(fate)
    assert isinstance(bench.create("a", b"x"), Unknown)
    assert bench.writes.seen == [("a", b"x")]


def test_a_busy_store_applies_nothing_and_cannot_be_sure() -> None:
    bench = Bench(Fate.BUSY)
    assert isinstance(bench.create("a", b"x"), Unknown)
    assert bench.writes.seen == []


def test_a_late_request_is_applied_after_its_sender_gave_up() -> None:
    bench = Bench(Fate.LATE)
    seen_at_answer: list[int] = []

    async def send() -> None:
        assert isinstance(await bench.documents.create("a", b"x"), Unknown)
        seen_at_answer.append(len(bench.writes.seen))

    bench.run(send())
    assert seen_at_answer == [0]
    assert bench.writes.seen == [("a", b"x")]


def test_a_copy_of_a_request_meets_its_own_condition_again() -> None:
    bench = Bench(Fate.TWICE)
    assert isinstance(bench.create("a", b"x"), Applied)
    assert bench.writes.seen == [("a", b"x")]

    async def aba() -> None:
        token = bench.storage.documents["a"].token
        bench.faults.rates, bench.faults.total = (), 0.0
        changed = await bench.documents.swap("a", token, b"y")
        assert isinstance(changed, Applied)
        assert isinstance(await bench.documents.swap("a", changed.token, b"x"), Applied)
        # The same bytes again, so the old token is valid again: this is what must never happen to the kernel.
        assert isinstance(await bench.documents.swap("a", token, b"z"), Applied)

    assert bench.run(aba()).failure is None


def test_names_are_listed_in_order_after_a_cursor() -> None:
    bench = Bench()
    for name in ("b/2", "a/1", "b/1", "b/3", "c/1"):
        bench.create(name, b"x")
    page = bench.run(bench.documents.list("b/", "b/1", 1)).result
    assert [entry.name for entry in page] == ["b/2"]
    everything = bench.run(bench.documents.list("b/", None, 10)).result
    assert [entry.name for entry in everything] == ["b/1", "b/2", "b/3"]


def test_children_all_end_before_the_first_error_is_raised() -> None:
    scheduler = Scheduler(Random(1))
    ended: list[str] = []

    async def child(name: str, pause_s: float, *, fail: bool) -> str:
        await scheduler.sleep(pause_s)
        ended.append(name)
        if fail:
            raise ValueError(name)
        return name

    async def parent() -> list[str]:
        return await scheduler.all([child("a", 3, fail=False), child("b", 2, fail=True), child("c", 1, fail=True)])

    task = scheduler.spawn(parent(), host=None, root=None)
    assert scheduler.run(1_000)
    assert ended == ["c", "b", "a"]
    assert str(task.failure) == "b"


def test_two_runs_of_one_seed_take_the_same_turns() -> None:
    def turns(seed: int) -> list[int]:
        scheduler = Scheduler(Random(seed), eager=0.3)
        taken: list[int] = []

        async def walk(number: int) -> None:
            for _ in range(20):
                taken.append(number)
                scheduler.soon(scheduler.me())
                await suspend()

        for number in range(4):
            scheduler.spawn(walk(number), host=None, root=None)
        assert scheduler.run(1_000)
        return taken

    assert turns(5) == turns(5)
    assert turns(5) != turns(6)


# --- history ---


def test_a_serial_history_has_an_order() -> None:
    check_strictly_serializable(
        [
            Operation("t1", 0, 1, {}, {"a": 0}),
            Operation("t2", 2, 3, {"a": 1}, {"b": 0}),
            Operation("cut", 4, 5, {"a": 1, "b": 1}, {}),
        ]
    )


def test_write_skew_has_no_order() -> None:
    history = [Operation("t1", 0, 9, {"b": 0}, {"a": 0}), Operation("t2", 0, 9, {"a": 0}, {"b": 0})]
    with pytest.raises(PromiseBroken, match="P4"):
        check_strictly_serializable(history)


def test_a_torn_cut_has_no_order() -> None:
    history = [Operation("t1", 0, 9, {}, {"a": 0, "b": 0}), Operation("cut", 0, 9, {"a": 1, "b": 0}, {})]
    with pytest.raises(PromiseBroken, match="P4"):
        check_strictly_serializable(history)


def test_a_stale_read_breaks_real_time_only() -> None:
    write = Operation("t1", 0, 1, {}, {"a": 0})
    check_strictly_serializable([write, Operation("cut", 1, 3, {"a": 0}, {})])
    with pytest.raises(PromiseBroken, match="P4"):
        check_strictly_serializable([write, Operation("cut", 2, 3, {"a": 0}, {})])


def test_what_nobody_was_told_of_may_come_late() -> None:
    check_strictly_serializable([Operation("t1", 0, None, {}, {"a": 0}), Operation("cut", 5, 6, {"a": 0}, {})])


def test_an_order_seen_by_a_reader_binds_the_others() -> None:
    """The reader has seen t2 and not t1, but t1 read what t2 replaced: t1 < t2 < cut < t1."""
    history = [
        Operation("t1", 0, 9, {"a": 0}, {"b": 0}),
        Operation("t2", 0, 3, {}, {"a": 0}),
        Operation("cut", 4, 5, {"a": 1, "b": 0}, {}),
    ]
    with pytest.raises(PromiseBroken, match="P4"):
        check_strictly_serializable(history)

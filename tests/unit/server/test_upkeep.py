"""One runner works at a time; a lease that has expired may be taken; a job that fails does not stop the others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lakepact.kernel.identity import uuid7
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Transaction, Write
from lakepact.kernel.ports import CellStore
from lakepact.runtime import AsyncioTasks, SystemClock
from lakepact.stores import open_store
from lakepact.upkeep.lease import UPKEEP, Lease
from lakepact.upkeep.runner import MOST_PASSES, Job, Runner, count_job, store_jobs


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.ms = SystemClock().now_ms()

    def confirmed_ms(self) -> int:
        return self.now_ms()

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)
        await asyncio.sleep(0)


class Rng:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uniform(self) -> float:
        return self._random.random()

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class World:
    def __init__(self, store: CellStore, clock: Clock) -> None:
        self.store = store
        self.clock = clock

    @staticmethod
    async def new() -> World:
        clock = Clock()
        return World(await open_store("memory://", clock=clock, rng=Rng(0), tasks=AsyncioTasks()), clock)

    def lease(self, owner: str, lease_s: float = 30) -> Lease:
        return Lease(self.store, self.clock, Rng(sum(owner.encode())), owner=owner, lease_s=lease_s)

    def runner(self, owner: str, jobs: dict[str, Job]) -> Runner:
        return Runner(self.lease(owner), jobs, self.clock, Rng(1), interval_s=10)

    async def revision(self) -> int:
        return (await self.store.read([UPKEEP]))[UPKEEP].revision


async def test_a_lease_has_one_holder_until_it_expires() -> None:
    world = await World.new()
    first, second = world.lease("first"), world.lease("second")
    assert await first.hold()
    assert not await second.hold()
    world.clock.ms += 29_999
    assert not await second.hold()
    world.clock.ms += 1
    assert await second.hold()
    assert not await first.hold()


async def test_a_holder_renews_in_the_second_half_of_its_lease_and_not_before() -> None:
    world = await World.new()
    first, second = world.lease("first"), world.lease("second")
    assert await first.hold()
    world.clock.ms += 14_000
    assert await first.hold()
    assert await world.revision() == 1
    world.clock.ms += 2_000
    assert await first.hold()
    assert await world.revision() == 2
    world.clock.ms += 29_000
    assert not await second.hold()


async def test_a_lease_that_is_let_go_can_be_taken_at_once_and_only_its_holder_lets_go() -> None:
    world = await World.new()
    first, second = world.lease("first"), world.lease("second")
    assert await first.hold()
    await second.release()
    assert not await second.hold()
    await first.release()
    assert await second.hold()


async def test_of_many_who_have_all_seen_a_lease_free_one_gets_it() -> None:
    world = await World.new()
    everybody = asyncio.Barrier(20)

    class Together:
        """The same store; but nobody goes on before all have read."""

        commit = world.store.commit

        async def read(self, keys: Iterable[Key]) -> Mapping[Key, Cell]:
            found = await world.store.read(keys)
            await everybody.wait()
            return found

    def lease(number: int) -> Lease:
        together: Any = Together()
        return Lease(together, world.clock, Rng(number), owner=f"owner {number}", lease_s=30)

    held = await asyncio.gather(*(lease(number).hold() for number in range(20)))
    assert held.count(True) == 1


async def test_a_lease_that_makes_no_sense_is_taken() -> None:
    world = await World.new()
    await world.store.commit(
        Transaction(uuid7(world.clock.now_ms(), 5), "", (Write(UPKEEP, 0, {"owner": 7, "until_ms": "tomorrow"}),))
    )
    assert await world.lease("first").hold()


async def test_only_the_holder_does_the_jobs() -> None:
    world = await World.new()
    done: list[str] = []

    def job(name: str) -> Job:
        async def work() -> bool:
            done.append(name)
            return False

        return work

    first = world.runner("first", {"a": job("first a"), "b": job("first b")})
    second = world.runner("second", {"a": job("second a")})
    assert await first.turn()
    assert not await second.turn()
    assert done == ["first a", "first b"]


async def test_a_job_goes_on_while_there_is_more_and_one_that_fails_does_not_stop_the_others() -> None:
    world = await World.new()
    passes: list[int] = []
    done: list[str] = []

    async def long() -> bool:
        passes.append(1)
        return len(passes) % 5 != 0

    async def failing() -> bool:
        raise OSError("no disk")

    async def endless() -> bool:
        done.append("endless")
        return True

    async def last() -> bool:
        done.append("last")
        return False

    assert await world.runner("first", {"long": long, "failing": failing, "endless": endless, "last": last}).turn()
    assert len(passes) == 5
    assert done == ["endless"] * MOST_PASSES + ["last"]


async def test_a_holder_that_took_too_long_leaves_the_rest_to_whoever_has_the_lease_now() -> None:
    world = await World.new()
    done: list[str] = []

    async def slow() -> bool:
        world.clock.ms += 60_000
        assert await world.lease("second").hold()
        return True

    async def never() -> bool:
        done.append("never")
        return False

    assert not await world.runner("first", {"slow": slow, "never": never}).turn()
    assert not done


async def test_a_runner_takes_turns_in_the_background_and_lets_go_when_it_stops() -> None:
    world = await World.new()
    turns = asyncio.Queue[int]()

    async def job() -> bool:
        turns.put_nowait(world.clock.ms)
        return False

    runner = world.runner("first", {"job": job})
    runner.start()
    first, second = await turns.get(), await turns.get()
    assert second - first == 10_000
    await runner.stop()
    await runner.stop()
    assert await world.lease("second").hold()


async def test_every_store_wants_recovery_and_collection() -> None:
    world = await World.new()
    jobs = store_jobs(world.store)
    assert list(jobs) == ["recover", "collect"]
    assert [await job() for job in jobs.values()] == [False, False]


async def test_the_lease_tells_others_how_the_jobs_of_its_holder_went() -> None:
    world = await World.new()

    async def fine() -> bool:
        return False

    async def broken() -> bool:
        raise RuntimeError("secret")

    lease = world.lease("a")
    runner = Runner(lease, {"fine": fine, "broken": broken}, world.clock, Rng(1), interval_s=10)
    assert await runner.turn()
    # It is written when the lease is renewed, and not before: a note alone leaves no record.
    await world.clock.sleep(20)
    assert await lease.hold()
    told = (await world.store.read([UPKEEP]))[UPKEEP].value or {}
    assert set(told["jobs"]) == {"fine", "broken"}
    assert told["jobs"]["fine"]["error"] is None and told["jobs"]["broken"]["error"] == "RuntimeError"
    assert "secret" not in str(told)
    assert runner.runs["fine"].began_ms > 0


async def test_who_holds_the_lease_is_told_of_the_end_of_a_turn_and_who_does_not_too() -> None:
    world, turns = await World.new(), list[tuple[str, bool]]()

    def heard(owner: str) -> Callable[[bool], None]:
        return lambda held: turns.append((owner, held))

    runners = [
        Runner(world.lease(owner), {"nothing": _nothing}, world.clock, Rng(1), interval_s=10, on_turn=heard(owner))
        for owner in ("a", "b")
    ]
    for runner in runners:
        await runner.turn()
    assert turns == [("a", True), ("b", False)]


async def _nothing() -> bool:
    return False


async def test_transactions_under_way_are_counted_by_state() -> None:
    world, counted = await World.new(), list[Mapping[str, int]]()
    for number in range(3):
        await world.store.begin(uuid7(world.clock.now_ms(), number), ttl_s=60.0)
    assert await count_job(world.store, counted.append)() is False
    assert counted == [{"open": 3, "prepared": 0}]

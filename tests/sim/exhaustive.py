"""Every schedule of a small world: two writers of the same two cells, a crash, a lost answer, a recoverer.

A schedule is a list of choices. What a task does between two awaits touches nothing shared, so only the order in which
requests are applied matters: a choice lets one request take effect, or one sleeper wake, or a process die, or an
answer be lost (the request stays in flight and may still be applied, or never). Coroutines cannot be copied, so each
schedule is replayed from the start; a state that was seen before is not searched again. What a process does next
depends only on what it was told so far, so a state is: the documents, the requests in flight, and what each process
was told.

With a bound on preemptions (switches away from a process that could go on) the search is complete up to that bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Final

from lakepact.errors import LakepactError
from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.model import Transaction
from lakepact.kernel.ports import Unknown
from lakepact.kernel.settings import KernelSettings
from tests.sim.broken import PromiseBroken
from tests.sim.calls import Disconnected
from tests.sim.client import Client
from tests.sim.documents import Request
from tests.sim.faults import Fate, no_faults
from tests.sim.garbage import rarely_collected
from tests.sim.process import Process
from tests.sim.scheduler import Event, Task
from tests.sim.world import Conditions, World

CELLS: Final = (key_of("w", "a"), key_of("w", "b"))
_FAR_AHEAD_S: Final = 1_000.0
_SETTINGS: Final = KernelSettings(
    lease_s=100.0,
    deadline_s=13.0,
    retryable_s=500.0,
    horizon_days=1,
    attempts=2,
    resends=1,
    backoff_s=4.0,
    max_backoff_s=4.0,
)
"""Few attempts and long pauses: a call ends after a handful of choices, whatever they are."""

_MOST_CHOICES: Final = 200
_MASK: Final = (1 << 128) - 1


@dataclass(frozen=True, slots=True)
class SmallWorld:
    """What the search may do besides choosing the order."""

    name: str
    crashes: int = 0
    lost_answers: int = 0
    recoverer: bool = False
    reader: bool = False
    plans: str = "same"
    """Both write both cells (`same`); or one each (`apart`), the first one depending on the other cell (`follow`), or
    both of them (`skew`)."""

    preemptions: int | None = None


SMALL_WORLDS: Final = (
    SmallWorld("two writers of two cells", preemptions=1),
    SmallWorld("two writers, each of one cell", plans="apart"),
    SmallWorld("two writers, each of one cell, and a reader of both", plans="apart", reader=True),
    SmallWorld("a writer, one who depends on it, and a reader of both", plans="follow", reader=True, preemptions=2),
    SmallWorld("write skew", plans="skew", preemptions=2),
    SmallWorld("write skew and a reader", plans="skew", reader=True, preemptions=1),
    SmallWorld("two writers, one recoverer", recoverer=True, preemptions=1),
    SmallWorld("two writers, one crash", crashes=1, preemptions=0),
    SmallWorld("two writers, one lost answer", lost_answers=1, preemptions=1),
    SmallWorld(
        "two writers, one crash, one lost answer, one recoverer",
        crashes=1,
        lost_answers=1,
        recoverer=True,
        preemptions=0,
    ),
)


@dataclass(slots=True)
class Search:
    """How far a search came."""

    world: SmallWorld
    schedules: int = 0
    states: int = 0
    ends: int = 0
    """Different ends that schedules came to, in what was stored and shown; each was checked."""

    complete: bool = False
    seconds: float = 0.0

    def __str__(self) -> str:
        how = "complete" if self.complete else "cut short"
        bound = "any number of" if self.world.preemptions is None else f"up to {self.world.preemptions}"
        return (
            f"{self.world.name}: {self.schedules:,} schedules, {self.states:,} states, {self.ends:,} ends with {bound} "
            f"preemptions, {how}, {self.seconds:.1f} s"
        )


@dataclass(frozen=True, slots=True)
class Option:
    """One thing that may happen next."""

    kind: str
    process: str
    event: Request | tuple[float, int, Event] | Process | None = None


@dataclass(slots=True)
class Told:
    """What a process was told so far, as a number, and how many requests it has sent."""

    digest: int = 0
    sent: int = 0


@dataclass(slots=True)
class Play:
    """One replay of the small world."""

    rules: SmallWorld
    world: World = field(init=False)
    in_flight: list[tuple[Request, int]] = field(default_factory=list)
    orphans: set[Request] = field(default_factory=set)
    told: dict[str, Told] = field(default_factory=dict)
    crashes: int = 0
    losses: int = 0
    preemptions: int = 0
    last: str = ""

    def __post_init__(self) -> None:
        rules = self.rules
        processes = 3 + rules.recoverer + rules.reader
        conditions = Conditions(_SETTINGS, no_faults(), processes, patience_s=None, steady=True)
        self.world = world = World(Random(0), conditions)
        world.scheduler.tick_s = 0.0
        _, second, spare = world.processes[:3]
        # Whose clock is far ahead thinks every lease is over, and may fence at any moment.
        second.clock.skew_s = spare.clock.skew_s = _FAR_AHEAD_S
        client = world.client()
        for process in world.processes[:3]:
            world.perform(world.network.call(process, "read", lambda cells: cells.read(CELLS), subject=CELLS))
        first_plan, second_plan = self._plans(client)
        world.act(_writer(world, first_plan, world.processes[0], spare))
        world.act(_writer(world, second_plan, second, spare))
        if rules.recoverer:
            world.processes[3].clock.skew_s = _FAR_AHEAD_S
            world.act(_recoverer(world, world.processes[3]))
        if rules.reader:
            world.act(_reader(world, world.processes[-1]))
        self.rest()

    def _plans(self, client: Client) -> tuple[Transaction, Transaction]:
        one, other = CELLS
        client.random = Random(1)
        read = self.world.perform(client.read(CELLS))
        match self.rules.plans:
            case "same":
                return (
                    client.plan(read, {one: {"by": 1}, other: {"by": 1}}),
                    client.plan(read, {one: {"by": 2}, other: {"by": 2}}),
                )
            case "apart":
                return client.plan(read, {one: {"by": 1}}), client.plan(read, {other: {"by": 2}})
            case "follow":
                return client.plan(read, {one: {"by": 1}}, reads=[other]), client.plan(read, {other: {"by": 2}})
            case _:
                return (
                    client.plan(read, {one: {"by": 1}}, reads=[other]),
                    client.plan(read, {other: {"by": 2}}, reads=[one]),
                )

    # --- going on ---

    def rest(self) -> None:
        """Run every task as far as it goes by itself; requests it sends wait in flight."""
        pool = self.world.scheduler.pool
        while pool:
            event = pool.pop(0)
            if isinstance(event, Request):
                told = self._told(str(event.host))
                told.sent += 1
                self.in_flight.append((event, told.sent))
            else:
                self.world.scheduler.steps += 1
                event.fire()

    def options(self) -> list[Option]:
        """What may happen next, the ones that need no preemption first."""
        rules = self.rules
        found = [Option("apply", str(request.host), request) for request, _ in self.in_flight]
        asleep = [timer for timer in self.world.scheduler.sleeping() if isinstance(timer[2], Task)]
        found += [Option("wake", str(timer[2].host), timer) for timer in asleep if not timer[2].dead]  # type: ignore[attr-defined]
        if self.losses < rules.lost_answers:
            found += [
                Option("lose", str(request.host), request)
                for request, _ in self.in_flight
                if not request.reads and request not in self.orphans
            ]
        if self.crashes < rules.crashes:
            # Only a process that is at work can be missed, and each process is at work for one writer.
            found += [Option("crash", process.name, process) for process in self.world.processes[:3] if process.waiting]
        going_on = [option for option in found if option.process == self.last]
        found = going_on + [option for option in found if option.process != self.last]
        if self.could_go_on and rules.preemptions is not None and self.preemptions >= rules.preemptions:
            found = _reads_in_order(going_on)
        if found and all(option.event in self.orphans for option in found):
            found.append(Option("end", ""))
        return found

    @property
    def could_go_on(self) -> bool:
        """Whether the process that moved last has a request in flight. One that sleeps has made room for others."""
        return any(str(request.host) == self.last for request, _ in self.in_flight if request not in self.orphans)

    def choose(self, option: Option) -> None:
        """Let it happen, and everything that follows by itself."""
        scheduler = self.world.scheduler
        scheduler.steps += 1
        if option.process != self.last and self.could_go_on:
            self.preemptions += 1
        self.last = option.process
        event = option.event
        match option.kind:
            case "apply":
                assert isinstance(event, Request)
                number = self._take(event)
                event.fire()
                if event not in self.orphans:
                    self._tell(option.process, "apply", number, event.name, str(event.outcome))
            case "lose":
                assert isinstance(event, Request)
                self.losses += 1
                event.fate = Fate.ANSWER_LOST
                self.orphans.add(event)
                number = next(number for request, number in self.in_flight if request is event)
                self._tell(option.process, "lose", number)
                event.storage.answer(event, Unknown("lost"))
            case "wake":
                assert isinstance(event, tuple)
                self._tell(option.process, "wake", str(event[0]))
                scheduler.wake_early(event)
            case "crash":
                assert isinstance(event, Process)
                self._crash(event)
            case _:
                self.in_flight.clear()
        self.rest()

    def _take(self, wanted: Request) -> int:
        for place, (request, number) in enumerate(self.in_flight):
            if request is wanted:
                del self.in_flight[place]
                return number
        raise AssertionError("a request was applied twice")

    def _crash(self, process: Process) -> None:
        self.crashes += 1
        self._tell(process.name, "crash")
        for request, _ in self.in_flight:
            if request.host is process:
                request.fate = Fate.ANSWER_LOST
                self.orphans.add(request)
        # The pool is empty while choices are made, so nothing in flight is scattered by the crash itself.
        self.world.bury_later(process.crash(self.world.storage))

    def _told(self, process: str) -> Told:
        return self.told.setdefault(process, Told())

    def _tell(self, process: str, *what: str | int) -> None:
        # Answers of one round may come in any order and leave the process in the same state, so they add up.
        told = self._told(process)
        told.digest = (told.digest + int(_fingerprint(what), 16)) & _MASK

    def state(self) -> str:
        """A fingerprint of everything the future depends on."""
        flying = sorted(
            (str(request.host), number, request.name, str(request.token), request.data, request in self.orphans)
            for request, number in self.in_flight
        )
        told = sorted((process, told.digest) for process, told in self.told.items())
        bounds = (self.last, self.preemptions) if self.rules.preemptions is not None else ()
        return _fingerprint(
            (self._documents(), flying, told, self.crashes, self.losses, self.world.scheduler.now, bounds)
        )

    def end(self) -> str:
        """A fingerprint of what was stored and what was shown: all that the last checks look at."""
        cuts = [sorted(cut.reads.items()) for cut in self.world.answers.cuts]
        return _fingerprint((self._documents(), cuts, list(self.world.oracle.effects)))

    def _documents(self) -> list[tuple[str, str]]:
        return sorted((name, document.token) for name, document in self.world.storage.documents.items())


def _fingerprint(value: object) -> str:
    """Not `hash`: two states that are taken for one would hide every schedule between them."""
    return blake2b(repr(value).encode(), digest_size=16).hexdigest()


def _reads_in_order(options: list[Option]) -> list[Option]:
    """Nobody can come between the reads of one process any more, so their order makes no difference: take the first."""
    reads = [option for option in options if isinstance(option.event, Request) and option.event.reads]
    return [option for option in options if option not in reads[1:]]


async def _writer(world: World, plan: Transaction, process: Process, spare: Process) -> None:
    """Commits; if its process dies, asks another one with the same id."""
    for chosen in (process, spare):
        try:
            await world.network.call(
                chosen, "commit", lambda cells: cells.commit(plan), transaction_id=plan.id, subject=plan
            )
            return
        except Disconnected:
            continue
        except LakepactError:
            return


async def _recoverer(world: World, process: Process) -> None:
    try:
        await world.network.call(process, "recover", lambda cells: cells.recover())
    except (LakepactError, Disconnected):
        return


async def _reader(world: World, process: Process) -> None:
    keys: tuple[Key, ...] = CELLS
    try:
        await world.network.call(process, "read", lambda cells: cells.read(keys), subject=keys)
    except (LakepactError, Disconnected):
        return


@rarely_collected()
def search(rules: SmallWorld, *, schedules: int | None = None, seconds: float | None = None) -> Search:
    """All schedules, or as many as these bounds allow, then from all over. Raises `PromiseBroken` with its schedule."""
    began = time.monotonic()
    chance = Random(0)
    found = Search(rules)
    seen: set[str] = set()
    ends: set[str] = set()
    # Each entry is a schedule to follow; from its end on, the first option is taken and the others are put here.
    todo: list[tuple[int, ...]] = [()]
    while todo:
        place = chance.randrange(len(todo))
        todo[place], todo[-1] = todo[-1], todo[place]
        schedule = todo.pop()
        found.schedules += 1
        play = Play(rules)
        try:
            todo.extend(_follow(play, schedule, seen, ends))
        except PromiseBroken as broken:
            path = " ".join(map(str, schedule))
            raise PromiseBroken(broken.promise, f"{broken.detail}\nin {rules.name!r}, schedule {path}") from None
        finally:
            play.world.close()
        if found.schedules == schedules or (seconds is not None and time.monotonic() - began > seconds):
            break
    found.complete = not todo
    found.states, found.ends = len(seen), len(ends)
    found.seconds = time.monotonic() - began
    return found


def _follow(play: Play, schedule: tuple[int, ...], seen: set[str], ends: set[str]) -> Iterator[tuple[int, ...]]:
    path = list(schedule)
    for choice in schedule:
        play.choose(play.options()[choice])
    while True:
        state = play.state()
        if state in seen:
            return
        seen.add(state)
        options = play.options()
        if not options or len(path) > _MOST_CHOICES:
            break
        for other in range(len(options) - 1, 0, -1):
            yield (*path, other)
        play.choose(options[0])
        path.append(0)
    end = play.end()
    if end not in ends:
        ends.add(end)
        play.world.settle()
        play.world.check()

"""One seed, from its first step to its last check.

A run has three parts. First the actors work while things go wrong. Then the faults stop, and everything that was begun
must come to an end within bounded steps. Then the upkeep runs, and what is left is compared with the account of the
oracle: nothing stuck, nothing lost, nothing torn, and one serial order for all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from lakepact.kernel.cells import DocumentCells
from lakepact.kernel.identity import TransactionId, timestamp_ms
from lakepact.kernel.keys import Key
from lakepact.kernel.model import Cell, Committed, Transaction, TransactionRecord
from lakepact.kernel.settings import KernelSettings
from tests.sim.answers import Answers, BackgroundErrors
from tests.sim.broken import PromiseBroken
from tests.sim.calls import Network
from tests.sim.client import Client
from tests.sim.clocks import SimEvidence, Source
from tests.sim.counters import Counters
from tests.sim.documents import Log, Storage
from tests.sim.faults import Faults
from tests.sim.formats import short
from tests.sim.history import check_strictly_serializable
from tests.sim.oracle import FINAL, Oracle
from tests.sim.process import EPOCH_MS, Ports, Process, SimClock, SimRng, SteadyRng
from tests.sim.scheduler import Scheduler, Task

T = TypeVar("T")

_DAY_MS: Final = 86_400_000
_HEAL_STEPS: Final = 150_000
_REST_STEPS: Final = 150_000
_RECOVERY_PASSES: Final = 8
_CALM: Final = 0.02
"""How slowly time goes once the faults have stopped: leases, however short, are then long enough."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a world is made of, besides its actors."""

    settings: KernelSettings
    faults: Faults
    processes: int = 3
    skew_s: float = 0.0
    """How far clocks may be off, either way."""

    eager: float = 0.0
    patience_s: float | None = 1.0
    """How long a client waits for an answer; None: until the process has died."""

    pace_s: float = 0.05
    """The longest pause of an actor between two things it does."""

    crash_every_s: float = 0.0
    stall_every_s: float = 0.0
    jump_every_s: float = 0.0
    outage_every_s: float = 0.0
    evidence: Source | None = None
    """What confirms the clocks of processes. None: nothing does, and none is off by more than `skew_s`."""

    wrong_every_s: float = 0.0
    """How often the clock of a process is set wrong by days, or right again."""

    steady: bool = False
    """Whether what a process draws by chance never depends on what another one drew."""

    busy_steps: int = 6_000
    """How long the actors may work while things go wrong."""


@dataclass(slots=True)
class Report:
    """What one seed came to."""

    steps: int
    trace: int
    counters: Counters = field(default_factory=Counter)


class Finished:
    """Stops the run when the last actor has ended, and lets no error of an actor pass."""

    __slots__ = ("_scheduler", "left")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.left = 0

    def ended(self, task: Task) -> None:
        if task.failure is not None:
            raise task.failure
        self.left -= 1
        if self.left == 0:
            self._scheduler.stopped = True


class World:
    def __init__(self, random: Random, conditions: Conditions, *, verbose: bool = False) -> None:
        self.conditions = conditions
        self.settings = conditions.settings
        self.random = random
        self.counters: Counters = Counter()
        self.scheduler = Scheduler(random, eager=conditions.eager)
        self.log = Log(self.scheduler, verbose=verbose)
        self.oracle = Oracle(self.scheduler, self.counters)
        self.answers = Answers(self.scheduler, self.oracle, self.counters)
        self.storage = Storage(self.scheduler, conditions.faults, self.oracle, self.counters, self.log)
        self.network = Network(self.scheduler, conditions.faults, self.answers, self.log, conditions.patience_s)
        self.oracle.may_delete = self._beyond_the_horizon
        self.answers.too_old = self._may_be_refused
        self.closing_checks: list[Callable[[Mapping[Key, Cell]], None]] = []
        self._background = BackgroundErrors()
        self._clients: list[Client] = []
        self._actors = Finished(self.scheduler)
        self._graveyard: list[Task] = []
        self._lives = 0
        self._evidence = None if conditions.evidence is None else SimEvidence(self.scheduler, conditions.evidence)
        self._healing = False
        self.processes = [self._process(self._clock()) for _ in range(conditions.processes)]

    # --- making ---

    def _clock(self) -> SimClock:
        skew_s = self.conditions.skew_s
        if not skew_s:
            return SimClock(self.scheduler)
        return SimClock(self.scheduler, self.random.uniform(-skew_s, skew_s), self.random.choice((1.0, 0.9, 1.1)))

    def _process(self, clock: SimClock) -> Process:
        self._lives += 1
        rng = SteadyRng(Random(self._lives)) if self.conditions.steady else SimRng(self.random)
        trusted = None if self._evidence is None else self._evidence.clock(clock)
        return Process(f"process {self._lives}", self.storage, self._cells, self._background, clock, rng, trusted)

    def _cells(self, ports: Ports) -> DocumentCells:
        return DocumentCells(ports.documents, ports.clock, ports.rng, ports.tasks, self.settings)

    def client(self, pace_s: float | None = None) -> Client:
        client = Client(self.network, self.processes, self._clock(), pace_s or self.conditions.pace_s)
        self._clients.append(client)
        return client

    def act(self, actor: Coroutine[Any, Any, None]) -> None:
        """Let this actor work in the first part of the run."""
        self._actors.left += 1
        self.scheduler.spawn(actor, host=None, root=None, ended=self._actors)

    def sent(self) -> list[Transaction]:
        """Every plan that clients have asked to be committed so far, for those who ask again."""
        return self.answers.asked

    # --- running ---

    def work(self) -> None:
        """The actors at work while things go wrong, and then until all they began has ended."""
        faults = self.conditions.faults
        faults.on, self._healing = True, False
        for client in self._clients:
            client.running = True
        self._start_chaos()
        if self._actors.left:
            self.scheduler.run(self.conditions.busy_steps)
        self._heal()

    def _heal(self) -> None:
        self.conditions.faults.on = False
        self._healing = True
        self.scheduler.tick_s *= _CALM
        self.correct_clocks()
        for client in self._clients:
            client.running = False
        for place, process in enumerate(self.processes):
            if not process.alive:
                self.processes[place] = self._process(process.clock)
        if self._actors.left and not self.scheduler.run(_HEAL_STEPS):
            raise PromiseBroken("P6", f"{self._actors.left} actors are stuck though all faults have stopped")
        self._clients.clear()
        self._rest()
        self.scheduler.tick_s /= _CALM

    def _rest(self) -> None:
        """Until nothing at all is going on: what was late has landed, background work is done."""
        if not self.scheduler.run(_REST_STEPS):
            raise PromiseBroken("P6", "background work goes on for ever though all faults have stopped")

    def perform(self, steps: Coroutine[Any, Any, T]) -> T:
        """Run one thing to its end, and everything it leaves behind, in a world without faults."""
        done: list[T] = []

        async def keep() -> None:
            done.append(await steps)

        finished = Finished(self.scheduler)
        finished.left = 1
        self.scheduler.spawn(keep(), host=None, root=None, ended=finished)
        if not self.scheduler.run(_REST_STEPS):
            raise PromiseBroken("P6", "a call goes on for ever though there are no faults")
        self._rest()
        return done[0]

    def pass_time(self, seconds: float) -> None:
        """Nothing happens for this long, but for what every process does all the time."""
        self.scheduler.now += seconds
        self._read_evidence()

    def bury_later(self, dead: list[Task]) -> None:
        """Keep the coroutines of dead tasks until nobody minds what their `finally` blocks do."""
        self._graveyard.extend(dead)

    def close(self) -> None:
        """Free what the dead left behind. Nobody may look at the world afterwards."""
        self._healing = True
        for process in self.processes:
            self._graveyard.extend(process.tasks)
        for task in self._graveyard:
            task.dead = True
            task.bury()

    # --- things going wrong ---

    def _start_chaos(self) -> None:
        conditions = self.conditions
        for every_s, happen in (
            (conditions.crash_every_s, self._crash_one),
            (conditions.stall_every_s, self._stall_one),
            (conditions.jump_every_s, self._jump_one),
            (conditions.outage_every_s, self._outage),
            (conditions.wrong_every_s, self._set_clock_wrong),
            (conditions.wrong_every_s, self._read_evidence),
        ):
            if every_s:
                self._again(every_s, happen)

    def _again(self, every_s: float, happen: Callable[[], None]) -> None:
        self.scheduler.after(every_s * 2 * self.random.random(), Mishap(self, every_s, happen))

    def mishap(self, every_s: float, happen: Callable[[], None]) -> None:
        if not self._healing:
            happen()
            self._again(every_s, happen)

    def _crash_one(self) -> None:
        place = self.random.randrange(len(self.processes))
        process = self.processes[place]
        if not process.alive:
            return
        self.log.add("CRASH", process)
        self.bury_later(process.crash(self.storage))
        self.scheduler.after(self.settings.lease_s * 2 * self.random.random(), Restart(self, place, process))

    def restart(self, place: int, dead: Process) -> None:
        if self.processes[place] is dead:
            self.processes[place] = self._process(dead.clock)
            self.log.add("RESTART", self.processes[place])

    def _stall_one(self) -> None:
        process = self.random.choice(self.processes)
        if process.alive and not process.stalled:
            seconds = self.settings.lease_s * self.random.choice((0.5, 1.5, 4.0))
            self.counters["process stalled beyond its lease"] += seconds > self.settings.lease_s
            self.log.add("STALL", process, f"for {seconds} s")
            process.stall(self.scheduler, seconds)

    def _jump_one(self) -> None:
        clock = self.random.choice(self.processes).clock
        clock.skew_s = self.random.uniform(-self.conditions.skew_s, self.conditions.skew_s)
        self.counters["clock jumped"] += 1
        self.log.add("CLOCK", f"is off by {clock.skew_s} s now")

    def _set_clock_wrong(self) -> None:
        clock = self.random.choice(self.processes).clock
        clock.wrong_s = self.random.choice((0.0, 1.0, 1.0, -1.0)) * self.random.uniform(1.0, 40.0) * _DAY_MS / 1000
        self.counters["clock wrong by days"] += clock.wrong_s != 0
        self.log.add("CLOCK", f"is wrong by {clock.wrong_s / 86_400:.1f} days now")

    def _read_evidence(self) -> None:
        for process in self.processes:
            if self._evidence is not None and process.trusted is not None and process.alive:
                self._evidence.read(process.trusted)

    def correct_clocks(self) -> None:
        """All clocks are right again, and every process has noticed."""
        for process in self.processes:
            process.clock.wrong_s = 0.0
        self._read_evidence()

    def reboot(self, wrong_s: float) -> None:
        """Nothing goes on; the machine starts anew, and its clock is wrong by this much."""
        assert self._evidence is not None
        self._evidence.reboot()
        clock = SimClock(self.scheduler)
        clock.wrong_s = wrong_s
        self.counters["restarted with a wrong clock"] += 1
        self.log.add("REBOOT", f"with a clock that is wrong by {wrong_s / 86_400:.1f} days")
        self.processes[:] = [self._process(clock) for _ in self.processes]

    def _outage(self) -> None:
        self.conditions.faults.outage_until = self.scheduler.now + self.settings.lease_s * self.random.random()
        self.counters["outage"] += 1
        self.log.add("OUTAGE", f"until {self.conditions.faults.outage_until}")

    # --- time ---

    def _now_ms(self) -> int:
        return EPOCH_MS + int(self.scheduler.now * 1000)

    def _age_ms(self, transaction_id: str) -> int:
        return self._now_ms() - timestamp_ms(TransactionId(transaction_id))

    def _beyond_the_horizon(self, transaction_id: str) -> bool:
        """Old enough to be forgotten, by any clock: the slack is far more than clocks are off."""
        horizon_ms = self.settings.horizon_days * _DAY_MS
        return self._age_ms(transaction_id) > horizon_ms + (self.settings.slack_s - 4 * self.conditions.skew_s) * 1000

    def _may_be_refused(self, transaction_id: str) -> bool:
        return self._age_ms(transaction_id) > self.settings.horizon_days * _DAY_MS - 4_000 * self.conditions.skew_s

    # --- the end ---

    def settle(self) -> None:
        """Upkeep until nothing is left to do, by one process; then once more, by another, which must change nothing."""
        settings = self.settings
        self.scheduler.tick_s *= _CALM
        self.network.patience_s = None
        self.pass_time(2 * self.conditions.skew_s + max(settings.lease_s, settings.max_ttl_s, settings.retryable_s) + 1)
        self.processes[:] = [self._process(SimClock(self.scheduler))]
        passes = 0
        while self._recover_once():
            passes += 1
            if passes > _RECOVERY_PASSES:
                raise PromiseBroken("P6", f"recovery still finds work after {passes} passes")
            # What was given up waits for its own id once more before it is ended.
            self.pass_time(settings.retryable_s)
        self._check_nothing_stuck()
        self.perform(self.client().call("close", lambda cells: cells.close()))
        before = dict(self.storage.documents)
        self.processes[:] = [self._process(SimClock(self.scheduler))]
        self._recover_once()
        if self.storage.documents != before:
            changed = sorted(name for name, doc in self.storage.documents.items() if before.get(name) != doc)
            raise PromiseBroken("P7", f"recovery by another process changed {changed}")

    def _recover_once(self) -> bool:
        """One pass; whether it found anything to do."""
        client = self.client()
        done = self.perform(client.call("recover", lambda cells: cells.recover()))
        return bool(done.finished or done.given_up or done.expired or done.left or done.more)

    def _check_nothing_stuck(self) -> None:
        for record in self.oracle.records.values():
            if record.state not in FINAL or not record.finalized:
                raise PromiseBroken("P6", f"{short(record.id)} is still {record.state} (finalized: {record.finalized})")
        for cell in self.oracle.cells.values():
            if cell.lock is not None and self.oracle.counts(cell, cell.lock):
                raise PromiseBroken("P6", f"{cell.key} is still locked by {short(cell.lock[0])}")

    def check(self) -> None:
        """What is there, as a fresh process reads it, against what the oracle knows; then one order for everything."""
        keys = [Key(key) for key in sorted(self.oracle.versions)]
        cells = self.perform(self.client().read(keys)) if keys else {}
        for key in keys:
            revision, value = self.oracle.current(key)
            cell = cells[key]
            if (cell.revision, cell.value) != (revision, value):
                raise PromiseBroken("P5", f"{key} should be {value} at {revision}, and is {cell}")
        for check in self.closing_checks:
            check(cells)
        self._check_listings(keys)
        self._check_acknowledged()
        check_strictly_serializable(self.answers.operations())
        self._check_all_writable(keys, cells)

    def _check_listings(self, keys: list[Key]) -> None:
        """Scans and listings of transactions, page by page, show everything once and nothing else."""
        live = [key for key in keys if self.oracle.current(key)[1] is not None]
        scanned = [cell.key for cell in self.perform(self._scanned())]
        if sorted(scanned) != live:
            raise PromiseBroken("P5", f"a scan shows {sorted(scanned)}, and these are there: {live}")
        listed = [record.id for record in self.perform(self._listed())]
        if sorted(listed) != sorted(self.oracle.records):
            raise PromiseBroken(
                "P5", f"{len(listed)} transactions are listed, and {len(self.oracle.records)} are there"
            )

    async def _scanned(self) -> list[Cell]:
        client, found, after = self.client(), list[Cell](), None
        while True:
            page = await client.call("scan page", lambda cells, after=after: cells.scan("w", after, 3))  # type: ignore[misc]
            found.extend(page.cells)
            after = page.after
            if after is None:
                return found

    async def _listed(self) -> list[TransactionRecord]:
        client, found, after = self.client(), list[TransactionRecord](), None
        while True:
            page = await client.call(
                "transactions",
                lambda cells, after=after: cells.transactions(after=after, limit=20),  # type: ignore[misc]
            )
            found.extend(page.transactions)
            after = page.after
            if after is None:
                return found

    def _check_acknowledged(self) -> None:
        """Whoever was told "committed" can still look it up, unless it is beyond the horizon."""
        now = self.scheduler.steps
        told = [name for name, attempts in self.answers.attempts.items() if attempts.acknowledged < now]
        for transaction_id in self.random.sample(told, min(4, len(told))):
            found = self.perform(self.client().lookup(TransactionId(transaction_id)))
            if found is None and not self._beyond_the_horizon(transaction_id):
                raise PromiseBroken("P5", f"{short(transaction_id)} was committed, and there is no trace of it")

    def _check_all_writable(self, keys: list[Key], cells: Mapping[Key, Cell]) -> None:
        """One commit over all cells at once must get through, and leave no lock behind."""
        if not keys:
            return
        client = self.client()
        probe = client.plan(cells, {key: cells[key].value for key in keys}, request="probe")
        self.oracle.invariants.clear()
        result = self.perform(client.commit(probe))
        if not isinstance(result, Committed):
            raise PromiseBroken("P6", f"with nobody in the way a commit was answered with {result}")
        for cell in self.oracle.cells.values():
            if cell.lock is not None:
                raise PromiseBroken("P6", f"{cell.key} is still locked by {short(cell.lock[0])} after a clean commit")

    def report(self) -> Report:
        return Report(self.scheduler.steps, self.storage.trace, self.counters)


class Mishap:
    __slots__ = ("_every_s", "_happen", "_world")

    def __init__(self, world: World, every_s: float, happen: Callable[[], None]) -> None:
        self._world = world
        self._every_s = every_s
        self._happen = happen

    def fire(self) -> None:
        self._world.mishap(self._every_s, self._happen)


class Restart:
    __slots__ = ("_dead", "_place", "_world")

    def __init__(self, world: World, place: int, dead: Process) -> None:
        self._world = world
        self._place = place
        self._dead = dead

    def fire(self) -> None:
        self._world.restart(self._place, self._dead)

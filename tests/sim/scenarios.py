"""Which actors and which faults a seed is made of. The seed alone decides, so the seed alone replays it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from lakepact.kernel.keys import Key, key_of
from lakepact.kernel.settings import KernelSettings
from tests.sim.actors.bank import Tally, auditor, check_count, check_sum, counter, teller
from tests.sim.actors.lists import (
    appender,
    key_reuser,
    lists_grow_by_one,
    loner,
    quitter,
    reader,
    refuser,
    replanner,
    scanner,
)
from tests.sim.actors.names import (
    check_directory,
    clerk,
    demolisher,
    directory_reader,
    founder,
    no_orphans,
)
from tests.sim.actors.overlays import overlay, two_phase
from tests.sim.actors.sharing import marks_only_grow, sharing
from tests.sim.actors.skew import Pair, dependent, follower, never_both_off, on_duty
from tests.sim.actors.upkeep import collector, late_retrier, recoverer
from tests.sim.clocks import Source
from tests.sim.faults import Fate, Faults, drawn_faults, no_faults
from tests.sim.world import Conditions, Report, World

Scenario = Callable[[World], None]

_SLACK_S: Final = 600.0
_DAY_S: Final = 86_400.0


class Run:
    """One seed, from its first step to its last check."""

    def __init__(self, seed: int, *, verbose: bool = False) -> None:
        random = Random(seed)
        self.scenario = name_of_scenario(seed)
        self.world = World(random, drawn_conditions(random, self.scenario), verbose=verbose)

    def finish(self) -> Report:
        """Run it. Raises `PromiseBroken`."""
        world = self.world
        try:
            SCENARIOS[self.scenario](world)
            world.settle()
            world.check()
            return world.report()
        finally:
            world.close()

    @property
    def steps(self) -> int:
        return self.world.scheduler.steps

    def log_tail(self) -> list[str]:
        return self.world.log.tail()


def name_of_scenario(seed: int) -> str:
    names = list(SCENARIOS)
    return names[seed % len(names)]


def drawn_conditions(random: Random, scenario: str) -> Conditions:
    """The circumstances of a seed. Most things are off, rare or frequent, each independently of the others."""
    lease_s = random.choice((0.05, 0.2, 1.0))
    settings = KernelSettings(
        lease_s=lease_s,
        deadline_s=lease_s * random.choice((2.0, 4.0, 8.0)),
        open_ttl_s=lease_s * random.choice((2.0, 8.0)),
        max_ttl_s=lease_s * 10,
        retryable_s=lease_s * random.choice((4.0, 30.0)),
        horizon_days=1,
        max_ahead_s=_SLACK_S,
        slack_s=_SLACK_S,
        trim_after_s=lease_s * random.choice((1.0, 10.0)),
        attempts=random.choice((3, 6, 12)),
        resends=random.choice((1, 3)),
        backoff_s=lease_s / 50,
        max_backoff_s=lease_s / 5,
        cached_bytes=random.choice((1, 5_000, 1_000_000)),
    )
    if scenario == "calm":
        unhurried = replace(settings, lease_s=10.0, deadline_s=30.0)
        return Conditions(settings=unhurried, faults=no_faults(), patience_s=60.0)
    faults = drawn_faults(random, lease_s=lease_s, late_s=min(lease_s * random.choice((5, 20, 100)), _SLACK_S / 4))
    if scenario == "collection":
        # What comes late must have a chance to come after everything it belongs to has been ended and tidied up.
        settings = replace(settings, retryable_s=lease_s * 4)
        faults = replace(faults, rates=(*faults.rates, (0.05, Fate.LATE)), late_s=min(lease_s * 60, _SLACK_S / 4))
    if scenario == "slow traffic" or (scenario == "namespaces" and random.random() < 0.5):
        # Nothing is lost and nobody dies, but everything takes its time: commits overlap for as long as reads take.
        prefix = random.choice(("transactions/", "cells/", "?"))
        slow = Faults(((0.2, Fate.SLOW), (0.2, Fate.SLOW_ANSWER)), slow_s=0.4, slow_prefix=prefix, laziness=0.9)
        unhurried = replace(settings, lease_s=10.0, deadline_s=40.0, backoff_s=0.02, max_backoff_s=0.1)
        return Conditions(settings=unhurried, faults=slow, patience_s=60.0, pace_s=0.02)
    often = (0.0, 0.0, lease_s * 0.3, lease_s, lease_s * 4)
    drawn = Conditions(
        settings=settings,
        faults=faults,
        processes=random.randint(2, 4),
        skew_s=random.choice((0.0, 0.0, lease_s / 2, lease_s * 5)),
        eager=random.choice((0.0, 0.0, 0.3, 0.7)),
        patience_s=lease_s * random.choice((0.5, 2.0, 8.0)),
        pace_s=lease_s * random.choice((0.02, 0.1, 0.3)),
        crash_every_s=random.choice(often),
        stall_every_s=random.choice(often),
        jump_every_s=random.choice(often),
        outage_every_s=random.choice((0.0, 0.0, lease_s * 2)),
    )
    if scenario == "collection" and (evidence := random.choice((None, Source.STORE, Source.WATERMARK))) is not None:
        return replace(drawn, evidence=evidence, wrong_every_s=lease_s * random.choice((0.5, 2.0)))
    return drawn


def _tables(random: Random) -> list[Key]:
    return [key_of("w", "tables", f"t{number}") for number in range(random.randint(2, 5))]


def _upkeep(world: World) -> None:
    """In most runs somebody recovers while the others work."""
    if world.random.random() < 0.7:
        world.act(recoverer(world.client(), 4, world.settings.lease_s * 2))


# --- scenarios ---


def lists(world: World) -> None:
    """Writers of one to four tables, some with one id through all conflicts; readers of cuts; a loner."""
    tables = _tables(world.random)
    world.oracle.invariants.append(lists_grow_by_one)
    for _ in range(world.random.randint(1, 3)):
        world.act(appender(world.client(), tables, 3))
    for _ in range(world.random.randint(0, 2)):
        world.act(replanner(world.client(), tables, 2))
    world.act(reader(world.client(), tables, 6))
    world.act(reader(world.client(), tables[:1], 4))
    world.act(loner(world.client(), key_of("w", "alone", "c"), 3, store_is_faultless=not world.conditions.faults.on))
    if world.random.random() < 0.3:
        world.act(key_reuser(world.client(), tables, 1))
    if world.random.random() < 0.3:
        world.act(refuser(world.client(), world.scheduler, tables, 2))
    if world.random.random() < 0.3:
        world.act(scanner(world.client(), "w/tables", 3))
    _upkeep(world)
    world.work()


def bank(world: World) -> None:
    """Transfers and an auditor; counters beside them."""
    accounts = [key_of("w", "accounts", f"a{number}") for number in range(world.random.randint(3, 5))]
    tallies = {key_of("w", "counters", f"n{number}"): Tally() for number in range(2)}
    for _ in range(3):
        world.act(teller(world.client(), accounts, 3))
    world.act(auditor(world.client(), accounts, 6))
    for key, tally in tallies.items():
        for _ in range(2):
            world.act(counter(world.client(), key, 2, tally))
    _upkeep(world)
    world.work()
    world.closing_checks.append(lambda cells: check_sum({key: cells[key] for key in accounts if key in cells}))
    for key, tally in tallies.items():
        world.closing_checks.append(lambda cells, key=key, tally=tally: check_count(cells, key, tally))  # type: ignore[misc]


def skew(world: World) -> None:
    """Transactions that depend on what they only read, and readers who would see an impossible order."""
    pairs: list[Pair] = [(key_of("w", "duty", f"{n}a"), key_of("w", "duty", f"{n}b")) for n in range(2)]
    others = [key_of("w", "chain", f"x{number}") for number in range(3)]
    world.oracle.invariants.append(never_both_off(pairs))
    for _ in range(3):
        world.act(on_duty(world.client(), pairs, 4))
    for _ in range(3):
        world.act(dependent(world.client(), others, 4))
    world.act(reader(world.client(), [key for pair in pairs for key in pair], 6))
    for _ in range(2):
        world.act(reader(world.client(), others, 6))
    _upkeep(world)
    world.work()


def names(world: World) -> None:
    """Creates, drops, creations anew and renames: two names and a pointer at a time."""
    known = [key_of("w", "names", f"n{number}") for number in range(4)]
    pointers = [key_of("w", "pointers", f"p{number}") for number in range(2)]
    for _ in range(3):
        world.act(clerk(world.client(), known, pointers, 4))
    world.act(directory_reader(world.client(), known, pointers, 6))
    world.act(scanner(world.client(), "w/names", 3))
    _upkeep(world)
    world.work()
    world.closing_checks.append(
        lambda cells: check_directory(cells, known, pointers) if set(known) | set(pointers) <= set(cells) else None
    )


def namespaces(world: World) -> None:
    """A parent dropped while a creation below it is undecided."""
    parents = [key_of("w", "namespaces", f"s{number}") for number in range(2)]
    world.oracle.invariants.append(no_orphans(parents))
    for _ in range(3):
        world.act(founder(world.client(), parents, 5))
    for _ in range(2):
        world.act(demolisher(world.client(), parents, 3, world.counters))
    _upkeep(world)
    world.work()


def overlays(world: World) -> None:
    """Open transactions beside ordinary ones."""
    tables = _tables(world.random)
    lease_s = world.settings.lease_s
    world.oracle.invariants.append(lists_grow_by_one)
    for _ in range(3):
        world.act(overlay(world.client(), world.scheduler, tables, 2, (lease_s * 0.5, lease_s * 4, lease_s * 8)))
    world.act(two_phase(world.client(), tables, 2, lease_s * 4))
    world.act(appender(world.client(), tables, 2))
    world.act(reader(world.client(), tables, 4))
    _upkeep(world)
    world.work()


def shared_overlays(world: World) -> None:
    """Open transactions that several clients work in at the same time, each planning on what the others stage."""
    counters = [key_of("w", "counters", f"n{number}") for number in range(world.random.randint(1, 3))]
    tables = _tables(world.random)
    lease_s = world.settings.lease_s
    world.oracle.invariants.append(lists_grow_by_one)
    world.oracle.invariants.append(marks_only_grow)
    for _ in range(2):
        clients = [world.client() for _ in range(world.random.randint(2, 3))]
        world.act(sharing(clients, world.scheduler, counters, tables, 2))
    world.act(overlay(world.client(), world.scheduler, tables, 2, (lease_s * 4, lease_s * 8)))
    world.act(appender(world.client(), tables, 2))
    world.act(reader(world.client(), [*counters, *tables], 4))
    _upkeep(world)
    world.work()


def collection(world: World) -> None:
    """Days go by: records are trimmed and deleted while old requests come again and new work goes on."""
    tables = _tables(world.random)
    pointers = [key_of("w", "pointers", f"p{number}") for number in range(2)]
    known = [key_of("w", "names", f"n{number}") for number in range(3)]
    world.oracle.invariants.append(lists_grow_by_one)
    lease_s = world.settings.lease_s
    for day in range(4):
        world.act(appender(world.client(), tables, 2))
        world.act(clerk(world.client(), known, pointers, 2))
        world.act(reader(world.client(), tables, 2))
        # Nobody comes back to these after their day: a lock left on one of them is met only at the very end.
        world.act(quitter(world.client(), [key_of("w", "cold", f"day{day}", f"c{number}") for number in range(3)], 4))
        if world.random.random() < 0.3:
            world.act(overlay(world.client(), world.scheduler, tables, 1, (lease_s * 4,)))
        if day:
            world.act(late_retrier(world.client(), world.sent(), 4))
            for _ in range(2):
                world.act(collector(world.client(), 3, lease_s))
        world.act(recoverer(world.client(), 6, lease_s * 8))
        world.work()
        if world.conditions.evidence is Source.WATERMARK and world.random.random() < 0.5:
            world.reboot(_DAY_S * world.random.uniform(1.0, 40.0))
            world.perform(world.client().call("collect", lambda cells: cells.collect(limit=200)))
            world.correct_clocks()
        beyond_the_horizon = (_DAY_S + _SLACK_S * 0.9, _DAY_S + _SLACK_S * 1.5)
        world.pass_time(world.random.choice((lease_s * 12, _DAY_S * 0.4, *beyond_the_horizon)))


def traffic(world: World) -> None:
    """Many commits that do not meet, and readers who look at all of them: orders, rather than conflicts."""
    lanes = [key_of("w", "lanes", f"l{number}") for number in range(5)]
    following = [key_of("w", "followers", f"f{number}") for number in range(2)]
    world.oracle.invariants.append(lists_grow_by_one)
    for lane in lanes:
        # The pauses leave a lane as its last commit left it, locked for a while: readers must sort that out.
        world.act(appender(world.client(pace_s=world.conditions.faults.slow_s * 0.5), [lane], 4))
    for leader, mine in zip(lanes, following, strict=False):
        world.act(follower(world.client(), leader, mine, 3))
    for _ in range(2):
        world.act(reader(world.client(), lanes, 7))
    world.act(reader(world.client(), [*lanes[:2], *following], 7))
    _upkeep(world)
    world.work()


def calm(world: World) -> None:
    """No faults at all: then nobody is ever unavailable, unknown or late, and a loner is never held up."""
    lists(world)


SCENARIOS: Final[dict[str, Scenario]] = {
    "lists": lists,
    "bank": bank,
    "skew": skew,
    "overlays": overlays,
    "names": names,
    "namespaces": namespaces,
    "collection": collection,
    "lists again": lists,
    "skew again": skew,
    "shared overlays": shared_overlays,
    "traffic": traffic,
    "slow traffic": traffic,
    "calm": calm,
}
"""A prime number of them, so that every stride through the seeds meets all."""

"""Many seeds on several processes, and what to print of them."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice

from tests.sim.broken import PromiseBroken
from tests.sim.counters import SOMETIMES, Counters
from tests.sim.garbage import rarely_collected
from tests.sim.scenarios import Run, name_of_scenario

CHUNK = 11
"""Seeds a worker takes at a time: as many as there are scenarios, so that chunks cost about the same."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A seed that broke a promise, and all that is needed to see it again."""

    seed: int
    promise: str
    detail: str
    tail: tuple[str, ...]

    def __str__(self) -> str:
        log = "\n".join(f"  {line}" for line in self.tail)
        return (
            f"{self.promise} is broken in seed {self.seed} ({name_of_scenario(self.seed)}):\n  {self.detail}\n"
            f"the last that happened:\n{log}\n"
            f"replay it with:  make sim SEED={self.seed}"
        )


@dataclass(slots=True)
class Result:
    """What some seeds came to."""

    seeds: int = 0
    steps: int = 0
    seconds: float = 0.0
    counters: Counters = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.seeds += other.seeds
        self.steps += other.steps
        self.counters.update(other.counters)
        self.failures.extend(other.failures)

    @property
    def never(self) -> list[str]:
        """What should have happened somewhere and did not."""
        return [name for name in SOMETIMES if not self.counters[name]]

    def summary(self) -> str:
        counted = "\n".join(f"  {count_:>9}  {name}" for name, count_ in sorted(self.counters.items()))
        pace = (
            f"{self.seeds / self.seconds:,.0f} seeds/s, {self.steps / self.seconds:,.0f} steps/s"
            if self.seconds
            else ""
        )
        return f"{self.seeds:,} seeds, {self.steps:,} steps in {self.seconds:,.1f} s ({pace})\n{counted}"


def run_one(seed: int, *, verbose: bool = False) -> Result:
    run = Run(seed, verbose=verbose)
    try:
        with rarely_collected():
            report = run.finish()
    except PromiseBroken as broken:
        failure = Failure(seed, broken.promise, broken.detail, tuple(run.log_tail()))
        return Result(seeds=1, steps=run.steps, failures=[failure])
    return Result(seeds=1, steps=report.steps, counters=report.counters)


def run_seeds(seeds: Iterable[int]) -> Result:
    total = Result()
    for seed in seeds:
        total.add(run_one(seed))
    return total


def run_batch(
    start: int,
    seeds: int | None,
    *,
    jobs: int = 1,
    minutes: float | None = None,
    scenarios: Collection[str] = (),
    stop_at_failure: bool = True,
) -> Result:
    """Seeds from `start` on, of these scenarios if any are named: so many, or for so long, or until one fails."""
    began = time.monotonic()
    total = Result()
    chosen = (seed for seed in count(start) if not scenarios or name_of_scenario(seed) in scenarios)
    for result in _results(islice(chosen, seeds), jobs):
        total.add(result)
        if total.failures and stop_at_failure:
            break
        if minutes is not None and time.monotonic() - began > minutes * 60:
            break
    total.seconds = time.monotonic() - began
    return total


def _results(seeds: Iterator[int], jobs: int) -> Iterator[Result]:
    if jobs == 1:
        yield from map(run_one, seeds)
        return
    # The pool would take an endless supply of seeds at once, so it is fed by the handful.
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        while handful := [chunk for _ in range(4 * jobs) if (chunk := list(islice(seeds, CHUNK)))]:
            yield from pool.imap_unordered(run_seeds, handful)

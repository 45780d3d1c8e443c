"""`python -m tests.sim`: run seeds, replay one, or search the small worlds. Exit 1 if a promise is broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lakepact.kernel import cells
from tests.sim.batch import Result, run_batch, run_one
from tests.sim.broken import PromiseBroken
from tests.sim.exhaustive import SMALL_WORLDS, search
from tests.sim.scenarios import SCENARIOS


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    print(f"simulating {Path(cells.__file__).parent}")
    if options.exhaustive:
        return _search(options.minutes)
    if options.seed is not None:
        return _report(run_one(options.seed, verbose=not options.quiet))
    return _report(
        run_batch(
            options.start,
            None if options.minutes is not None and options.seeds is None else options.seeds or 5_000,
            jobs=options.jobs,
            minutes=options.minutes,
            scenarios=options.scenario or (),
            stop_at_failure=not options.keep_going,
        )
    )


def _report(result: Result) -> int:
    print(result.summary())
    for failure in result.failures:
        print()
        print(failure)
    if result.failures:
        return 1
    print("every promise held")
    return 0


def _search(minutes: float | None) -> int:
    try:
        for world in SMALL_WORLDS:
            print(search(world, seconds=None if minutes is None else minutes * 60 / len(SMALL_WORLDS)), flush=True)
    except PromiseBroken as broken:
        print(f"{broken.promise} is broken: {broken.detail}")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many seeds (5,000 unless --minutes is given)")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes to use")
    parser.add_argument("--minutes", type=float, help="stop after this long")
    parser.add_argument("--seed", type=int, help="replay this one seed, telling everything that happens")
    parser.add_argument("--quiet", action="store_true", help="with --seed: tell only how it ended")
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="only seeds of this scenario")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure")
    parser.add_argument("--exhaustive", action="store_true", help="search the small worlds instead")
    return parser


if __name__ == "__main__":
    sys.exit(main())

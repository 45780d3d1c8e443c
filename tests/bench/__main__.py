"""`python -m tests.bench [SECTION …]`: print the figures, as ratios measured in this run."""

from __future__ import annotations

import argparse
import asyncio
import time

from tests.bench import (
    age,
    auth,
    collection,
    commits,
    cuts,
    delta,
    latency,
    memory,
    mirrors,
    overlay,
    projections,
    rest,
    rights,
    rounds,
    soak,
    spark,
    sql,
    storm,
    ui,
    vending,
)
from tests.bench.report import say

SECTIONS = {
    "rounds": rounds.run,
    "latency": latency.run,
    "sql": sql.run,
    "cuts": cuts.run,
    "memory": memory.run,
    "age": age.run,
    "rest": rest.run,
    "commits": commits.run,
    "auth": auth.run,
    "rights": rights.run,
    "overlay": overlay.run,
    "delta": delta.run,
    "mirrors": mirrors.run,
    "ui": ui.run,
    "spark": spark.run,
    "collection": collection.run,
    "vending": vending.run,
    "projections": projections.run,
    "storm": storm.run,
    "soak": soak.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"any of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--receipts", type=int, default=projections.Sizes.receipts, help="how many are projected")
    parser.add_argument("--minutes", type=float, default=soak.Minutes.value, help="how long a soak test takes a store")
    arguments = parser.parse_args()
    soak.Minutes.value = arguments.minutes
    projections.Sizes.receipts = arguments.receipts
    chosen = arguments.sections or list(SECTIONS)
    for name in chosen:
        if name not in SECTIONS:
            parser.error(f"there is no section {name!r}; choose from {', '.join(SECTIONS)}")
    began = time.perf_counter()
    for name in chosen:
        asyncio.run(SECTIONS[name]())
    say(f"\nall figures measured in one run, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

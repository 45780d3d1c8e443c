"""Print the tables of `specs/README.md` from fresh runs: `python -m tests.spec`, `--long` for the large."""

from __future__ import annotations

import sys

from tests.spec.cases import LARGE, SMALL, VARIANTS, WITNESSES
from tests.spec.tables import sound_row, variant_row, witness_row
from tests.spec.tlc import check


def main(arguments: list[str]) -> None:
    if arguments == ["--long"]:
        for world in LARGE:
            print(sound_row(world, check(world, heap="3g", timeout_s=4 * 3600)), flush=True)
        return
    for world in SMALL:
        print(sound_row(world, check(world)), flush=True)
    for variant in VARIANTS:
        print(variant_row(variant, check(variant.world, variant.sabotage, (variant.refutes,))), flush=True)
    for claim, world in WITNESSES:
        print(witness_row(claim, world, check(world, promises=(claim,))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

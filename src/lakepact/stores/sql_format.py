"""The format of a database: a program reads its own and the next, upgrades older ones, and refuses newer ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lakepact.errors import FormatTooNew

FORMAT: Final = 3
"""The schema this release creates."""

NEWEST_READABLE: Final = FORMAT + 1
"""The next format only adds to this one, so that a fleet can be upgraded one process at a time."""


def upgrades(found: int, steps: Mapping[int, str], where: str) -> list[tuple[int, str]]:
    """The scripts that bring a database from the format found to ours, each with the format it leads to.

    Format 0 is an empty database. A newer format is never touched.
    """
    if found > NEWEST_READABLE:
        raise FormatTooNew(
            f"{where} has format {found}; this release reads up to {NEWEST_READABLE} and leaves it as it is. "
            f"Upgrade this process"
        )
    return [(reached, steps[reached]) for reached in range(found + 1, FORMAT + 1)]

"""What collection takes away, said before it happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import structlog

from lakepact.catalog.files import MetadataFiles
from lakepact.kernel.ports import Tasks

_AT_ONCE: Final = 16
_log = structlog.get_logger(__name__)


class Class(StrEnum):
    RECORDS = "records"
    """What transactions were asked, and what became of them: by the kernel's own rule."""

    DROPPED = "dropped"
    """Files and locations of dropped tables."""

    ABANDONED = "abandoned"
    """New tables of transactions that were given up."""

    RECEIPTS = "receipts"
    """Receipts that are packed and projected, as single files; and days of them, if they are not kept for ever."""

    SNAPSHOTS = "snapshots"
    """Snapshots that the tables' own properties let go of."""


@dataclass(frozen=True, slots=True)
class Removal:
    """One thing that goes."""

    rule: Class
    what: str
    """A file, or what else it is: `location <...>`, `rows of <id>`, `snapshot <id>`."""

    table: str
    why: str


@dataclass(slots=True)
class Report:
    """What one pass did, or would have done."""

    removals: list[Removal] = field(default_factory=list)
    """The first of them; `counts` has all."""

    counts: dict[Class, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    """What could not be judged, and therefore stays; with the reason."""

    tells: bool = True
    """Whether what is left is logged at once. Whoever prints the report says it there."""

    def add(self, removal: Removal) -> None:
        self.counts[removal.rule] = self.counts.get(removal.rule, 0) + 1
        if len(self.removals) < MOST_SHOWN:
            self.removals.append(removal)

    def leave(self, what: str, error: object) -> None:
        if self.tells:
            _log.warning("collection leaves something for later", what=what, reason=str(error))
        self.left.append(f"{what}: {error}")


MOST_SHOWN: Final = 100_000
"""Removals that a report names one by one."""


def told(removal: Removal) -> None:
    """Every removal leaves a line in the log, before it happens."""
    _log.info("collected", rule=removal.rule, what=removal.what, table=removal.table, why=removal.why)


class Remover:
    """Deletes files, or only says so."""

    def __init__(self, files: MetadataFiles, tasks: Tasks, report: Report, *, dry_run: bool) -> None:
        self._files = files
        self._tasks = tasks
        self._report = report
        self.dry_run = dry_run

    async def files(self, removals: Sequence[Removal]) -> None:
        """In this order, a few at a time."""
        for start in range(0, len(removals), _AT_ONCE):
            batch = removals[start : start + _AT_ONCE]
            for one in batch:
                self.note(one)
            if not self.dry_run:
                await self._tasks.all([self._files.delete(one.what) for one in batch])

    def note(self, removal: Removal) -> None:
        """This goes too, by other hands."""
        self._report.add(removal)
        if not self.dry_run:
            told(removal)

"""All kinds of collection for one warehouse, by hand or now and then in a server."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from lakepact.catalog import Catalog
from lakepact.kernel.ports import Clock
from lakepact.upkeep.collection.abandoned import Abandoned
from lakepact.upkeep.collection.expiry import Expiry
from lakepact.upkeep.collection.purge import Purge
from lakepact.upkeep.collection.references import References
from lakepact.upkeep.collection.removal import Class, Remover, Report
from lakepact.upkeep.runner import Job

CLASSES: Final = (Class.DROPPED, Class.ABANDONED, Class.SNAPSHOTS)
"""Those that are collected a warehouse at a time. Records are the store's own."""


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    drop_retention_s: float = 604_800.0
    abandoned_retention_s: float = 604_800.0


class Collector:
    def __init__(self, catalog: Catalog, settings: CollectorSettings) -> None:
        self._catalog = catalog
        references = References(catalog.parts)
        self._purge = Purge(catalog, references, retention_s=settings.drop_retention_s)
        self._abandoned = Abandoned(catalog, retention_s=settings.abandoned_retention_s)
        self._expiry = Expiry(catalog)

    async def run(self, classes: Collection[Class], report: Report, *, dry_run: bool = False) -> None:
        """One pass. What goes, and what cannot be judged, is in the report. Safe at any time, by anyone, and to be
        interrupted anywhere: the next pass goes on."""
        remover = Remover(self._catalog.parts.files, self._catalog.parts.tasks, report, dry_run=dry_run)
        if Class.SNAPSHOTS in classes:
            await self._expiry.run(remover, report)
        if Class.DROPPED in classes:
            await self._purge.run(remover, report)
        if Class.ABANDONED in classes:
            await self._abandoned.run(remover, report)


def collection_job(
    catalogs: Mapping[str, Catalog],
    clock: Clock,
    settings: CollectorSettings,
    *,
    interval_s: float,
    expire: bool,
    on_left: Callable[[str, int], None] = lambda warehouse, count: None,
) -> Job:
    """A job of upkeep: one warehouse a pass, and all of them once an interval.

    `on_left` hears after every pass how much of a warehouse could not be judged, and was left as it is.
    """
    collectors = {name: Collector(catalog, settings) for name, catalog in catalogs.items()}
    classes = [one for one in CLASSES if expire or one is not Class.SNAPSHOTS]
    waiting: list[str] = []
    next_s = clock.monotonic_s() + interval_s

    async def collect() -> bool:
        nonlocal next_s
        if not waiting:
            if clock.monotonic_s() < next_s:
                return False
            next_s = clock.monotonic_s() + interval_s
            waiting.extend(collectors)
        name, report = waiting.pop(), Report()
        await collectors[name].run(classes, report)
        on_left(name, len(report.left))
        return bool(waiting)

    return collect

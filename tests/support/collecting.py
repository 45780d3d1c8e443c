"""Collection as `lakepact gc` does it, beside a server that is running."""

from __future__ import annotations

from collections.abc import Collection

from lakepact.cli.gc import collector_settings
from lakepact.server.app import without_server
from lakepact.settings import Settings
from lakepact.upkeep.collection import CLASSES, Class, Collector, Report


async def collected(
    settings: Settings, *, dry_run: bool = False, classes: Collection[Class] = CLASSES, **given: float
) -> Report:
    """One pass over all warehouses; `given` are settings that are other than the server's."""
    settings = settings.model_copy(update=given)
    report = Report()
    async with without_server(settings) as opened:
        for catalog in opened.catalogs.values():
            await Collector(catalog, collector_settings(settings)).run(classes, report, dry_run=dry_run)
    return report

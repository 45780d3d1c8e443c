"""Collection as `lakepact gc` does it, beside a server that is running."""

from __future__ import annotations

from collections.abc import Collection

from lakepact.cli.gc import catalogs_of, collector_settings
from lakepact.settings import Settings
from lakepact.stores import open_store
from lakepact.upkeep.collection import CLASSES, Class, Collector, Report


async def collected(
    settings: Settings, *, dry_run: bool = False, classes: Collection[Class] = CLASSES, **given: float
) -> Report:
    """One pass over all warehouses; `given` are settings that are other than the server's."""
    settings = settings.model_copy(update=given)
    store = await open_store(settings.store, settings.kernel(), options=settings.store_options)
    report = Report()
    try:
        async with catalogs_of(settings, store) as catalogs:
            for catalog in catalogs.values():
                await Collector(catalog, collector_settings(settings)).run(classes, report, dry_run=dry_run)
    finally:
        await store.close()
    return report

"""What Spark remembers of tables, and how it is made to look again after a publish.

A catalog that caches serves a table as it was for half a minute, and a cached frame for ever. Whoever has committed a
transaction expects to see it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyspark.sql import SparkSession

from lakepact.client import Published
from lakepact.spark.clones import has_cached_frames, invalidate_table, loaded_catalogs
from lakepact.spark.names import quoted
from lakepact.spark.settings import CatalogSettings

_log = logging.getLogger(__name__)


def refresh(spark: SparkSession, catalogs: Iterable[CatalogSettings], published: Iterable[Published]) -> None:
    """Let a session look again at what was published. Never raises: the commit has happened."""
    try:
        frames = has_cached_frames(spark)
        loaded = loaded_catalogs(spark)
    except Exception as error:
        _log.warning("Spark did not say what it has cached; REFRESH TABLE makes it look again: %s", error)
        return
    for catalog in catalogs:
        # One that was never used, or that remembers nothing, need not be asked.
        if catalog.name in loaded and (catalog.cached or frames):
            for one in published:
                _refresh_table(spark, catalog.name, one, frames=frames)


def _refresh_table(spark: SparkSession, catalog: str, published: Published, *, frames: bool) -> None:
    table = quoted((catalog, *published.identifier))
    try:
        if frames:
            # It loads the table from the server, and drops the cached frames that read it.
            spark.catalog.refreshTable(table)
        else:
            invalidate_table(spark, catalog, published.identifier)
    except Exception as error:
        # A view is nothing that Spark would remember, and refuses.
        _log.info("%s was not refreshed: %s", table, error)

"""Who follows tables. These words are the same in SQL, settings, metrics and messages."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Engine(StrEnum):
    DELTA_LOG = "delta_log"
    """The log beside the files of every Delta table, for Spark, delta-rs and whoever else reads one."""

    DUCKDB = "duckdb"
    """A DuckDB file with a view of every table, Delta and Iceberg."""


ENGINES: Final = tuple(Engine)

"""What `SparkSession.active()` gives while a file is loaded and no Spark is running.

Files for `pyspark.pipelines` begin with `spark = SparkSession.active()`, and use it inside of functions only. So they
can be loaded, and their graph be judged and drawn, before a Spark is started; a stage gets a real session in its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from lakepact.pipelines.errors import InvalidPipeline


class NeedsSession(InvalidPipeline):
    """The file asks Spark for something while it is loaded, so Spark has to be there first."""


class Placeholder:
    """Stands for a session that is not there yet."""

    def __getattr__(self, name: str) -> NoReturn:
        raise NeedsSession(
            f"spark.{name} is used while the file is loaded, before there is a Spark; use it in a function"
        )


@contextmanager
def placeholders() -> Iterator[None]:
    """In this block there is an active session, if need be one that is none."""
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        yield
        return
    if SparkSession.getActiveSession() is not None:
        yield
        return
    spark: Any = SparkSession
    active = spark.__dict__["active"]
    spark.active = staticmethod(Placeholder)
    try:
        yield
    finally:
        spark.active = active
